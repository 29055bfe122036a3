package conformance

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/transport"
)

// sentFrames records the frames of each connection of a target.
type sentFrames struct {
	mu    sync.Mutex
	conns []*sentConn
}

type sentConn struct {
	transport.Conn
	of     *sentFrames
	frames []string
}

func (c *sentConn) Write(frame []byte) error {
	c.of.mu.Lock()
	c.frames = append(c.frames, string(frame))
	c.of.mu.Unlock()
	return c.Conn.Write(frame)
}

// record makes the target record the frames that checks send.
func (s *sentFrames) record(target Target) Target {
	dial := target.Dial
	target.Dial = func(ctx context.Context) (transport.Conn, error) {
		tc, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		c := &sentConn{Conn: tc, of: s}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		return c, nil
	}
	return target
}

// Sessions of checks do not stay on the server, whatever the outcome of the check.
func TestSessionsAreClosed(t *testing.T) {
	var sent sentFrames
	runChecks(t, sent.record(fakeTarget(t)),
		testCheck("x.passes", func(t *checkRun) { t.Open(); t.Open() }),
		testCheck("x.fails", func(t *checkRun) { t.Open(); t.Failf("broken") }),
		testCheck("x.panics", func(t *checkRun) { t.Open(); panic("oops") }),
	)
	if len(sent.conns) < 5 { // the probe has others
		t.Fatalf("%d connections, want at least 5", len(sent.conns))
	}
	for i, c := range sent.conns {
		last := c.frames[len(c.frames)-1]
		env, err := arcp.Decode([]byte(last))
		if err != nil || env.Type != arcp.SessionClose || env.SessionID == "" || !strings.Contains(string(env.Payload), `"forget":true`) {
			t.Errorf("connection %d: the last message is %s (%v), want session.close with forget", i, last, err)
		}
	}
}

// A connection without a session, or one that a check has ended, gets no message.
func TestOnlySessionsAreClosed(t *testing.T) {
	var sent sentFrames
	runChecks(t, sent.record(fakeTarget(t)), testCheck("x.ends", func(t *checkRun) { t.Dial(); t.Open().Drop() }))
	for _, c := range sent.conns[len(sent.conns)-2:] {
		if n := len(c.frames); n > 1 {
			t.Errorf("sent %q, want at most the session.open", c.frames)
		}
	}
}

// The draft dialect has no member to end a session: it is closed.
func TestDraftSessionsAreClosed(t *testing.T) {
	var sent sentFrames
	plain := ownTarget(t)
	target := plain
	target.Dialect, target.Dial = arcp.DialectDraft, plain.dial
	target = sent.record(target)
	for _, res := range runChecks(t, target, testCheck("x.passes", func(t *checkRun) {
		c := t.DialDraft(nil)
		frame, _ := t.target.library().Frame(string(script.SessionHello), t.target.library().Hello(t.target.Token), nil)
		if err := c.WriteFrame(frame); err != nil {
			t.Failf("session.hello: %v", err)
		}
		if _, err := c.ReadFrame(); err != nil {
			t.Failf("session.welcome: %v", err)
		}
	})) {
		if res.Status != Passed {
			t.Errorf("%s: %s %s", res.ID, res.Status, res.Reason)
		}
	}
	if len(sent.conns) != 2 { // the first is the probe's
		t.Errorf("%d connections, want 2", len(sent.conns))
	}
	for i, c := range sent.conns {
		if last := c.frames[len(c.frames)-1]; !strings.Contains(last, `"session.close"`) {
			t.Errorf("connection %d: the last message is %s, want session.close", i, last)
		}
	}
}
