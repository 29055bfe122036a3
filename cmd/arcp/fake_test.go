package main

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// fakeRuntime accepts sessions on a unix socket, and resumes them. Other messages go to
// handle, one at a time.
type fakeRuntime struct {
	t      *testing.T
	url    string
	handle func(c *fakeConn, env *arcp.Envelope)
	refuse bool // to resume

	mu  sync.Mutex
	seq uint64
}

// fakeConn is one connection of it, the nth.
type fakeConn struct {
	transport.Conn
	r *fakeRuntime
	n int
}

// listenUnix listens on a unix socket until the test ends.
func listenUnix(t *testing.T) (l *transport.UnixListener, url string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := transport.ListenUnix(path, transport.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, unixURL(path)
}

func newFakeRuntime(t *testing.T, handle func(c *fakeConn, env *arcp.Envelope)) *fakeRuntime {
	t.Helper()
	l, url := listenUnix(t)
	r := &fakeRuntime{t: t, url: url, handle: handle}
	go func() {
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(&fakeConn{conn, r, n})
		}
	}()
	return r
}

// cli runs a client command against the fake.
func (r *fakeRuntime) cli(args ...string) outcome {
	r.t.Helper()
	return cli(r.t, append(args, "--url", r.url)...)
}

func (r *fakeRuntime) serve(c *fakeConn) {
	defer c.Abort()
	for {
		frame, err := c.Read()
		if err != nil {
			return
		}
		env, err := arcp.Decode(frame)
		if err != nil {
			r.t.Errorf("the client sent %s: %v", frame, err)
			return
		}
		r.mu.Lock()
		r.receive(c, &env)
		r.mu.Unlock()
	}
}

func (r *fakeRuntime) receive(c *fakeConn, env *arcp.Envelope) {
	switch env.Type {
	case arcp.SessionOpen:
		r.seq = 0
		c.reply(env, arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: "sess_1", ResumeToken: "rt_1", ResumeWindowSec: 60})
	case arcp.SessionResume:
		if r.refuse {
			c.reply(env, arcp.SessionRejected, arcp.Errorf(arcp.CodeResumeWindowExpired, "too late"))
			return
		}
		c.reply(env, arcp.SessionResumed, arcp.SessionResumedPayload{SessionID: "sess_1", ResumeToken: "rt_1", ReplayedFrom: r.seq})
		r.handle(c, env)
	case arcp.SessionAck:
	case arcp.SessionClose:
		c.reply(env, arcp.SessionClosed, arcp.SessionClosedPayload{})
		c.Close(transport.CloseNormal, "")
	default:
		r.handle(c, env)
	}
}

func (c *fakeConn) send(env arcp.Envelope) {
	env.ARCP, env.SessionID = arcp.Version, "sess_1"
	if env.ID == "" {
		env.ID, env.Timestamp = arcp.NewMessageID(), time.Now()
	}
	if c.Write(env.Append(nil)) == nil {
		_ = c.Flush() // a client that disconnected has seen the answer
	}
}

func (c *fakeConn) reply(to *arcp.Envelope, t arcp.Type, payload any) {
	env := arcp.Frame(t, payload)
	env.CorrelationID = to.ID
	c.send(env)
}

// event sends the next event of the job job_1.
func (c *fakeConn) event(request arcp.MessageID, t arcp.Type, payload any) {
	c.r.seq++
	env := arcp.Frame(t, payload)
	env.JobID, env.CorrelationID, env.EventSeq = "job_1", request, c.r.seq
	c.send(env)
}

// complete accepts a submit and completes it.
func (c *fakeConn) complete(submit *arcp.Envelope, value string) {
	c.event(submit.ID, arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: "job_1"})
	c.event(submit.ID, arcp.JobCompleted, arcp.JobCompletedPayload{Value: arcp.Raw(value)})
}

// fed wraps an event for a subscription.
func (c *fakeConn) fed(sub arcp.SubscriptionID, id arcp.MessageID, t arcp.Type, payload any) {
	inner := arcp.Frame(t, payload)
	inner.ARCP, inner.ID, inner.Timestamp, inner.JobID = arcp.Version, id, time.Unix(1767366245, 0), "job_1"
	env := arcp.Frame(arcp.SubscribeEvent, arcp.SubscribeEventPayload{Event: inner.Append(nil)})
	env.SubscriptionID = sub
	c.send(env)
}
