package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// peer is the other end of a connection. Frames wait until it reads.
type peer struct {
	*fixture
	conn    transport.Conn
	session arcp.SessionID
	sent    int // frames; the last one has this number in its id

	ignoreToolChanges bool // read skips tools.changed
}

// connect makes a connection. info, if not nil, changes the runtime's information about it.
func (f *fixture) connect(info func(*transport.Info)) *peer {
	near, far := transport.Pipe(transport.Limits{})
	served := far
	if info != nil {
		i := far.Info()
		info(&i)
		served = connWithInfo{far, i}
	}
	if *perturb {
		served, near = perturbedConn{served}, perturbedConn{near}
	}
	f.serve.Go(func() { _ = f.rt.Serve(context.Background(), served) }) // the peer sees how it ended
	f.Cleanup(func() { _ = near.Abort() })
	return &peer{fixture: f, conn: near}
}

// perturbedConn is a connection whose frames are late at random.
type perturbedConn struct{ transport.Conn }

func (c perturbedConn) Read() ([]byte, error) {
	frame, err := c.Conn.Read()
	yieldRandomly()
	return frame, err
}

// connWithInfo is a connection with another Info.
type connWithInfo struct {
	transport.Conn
	info transport.Info
}

func (c connWithInfo) Info() transport.Info { return c.info }

// dial opens a session of a principal.
func (f *fixture) dial(name string) *peer {
	f.Helper()
	p := f.connect(nil)
	p.open(name)
	p.expect("session.accepted")
	return p
}

func (p *peer) open(name string) {
	p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"%s-%s"},"client":{"kind":"test","version":"1"}}`, name, token))
}

// send sends a frame and returns its id.
func (p *peer) send(typ, payload string) string {
	p.Helper()
	id, err := p.try(typ, payload)
	if err != nil {
		p.Fatalf("send %s: %v", typ, err)
	}
	return id
}

func (p *peer) try(typ, payload string) (id string, err error) {
	p.sent++
	id = fmt.Sprintf("msg_%d", p.sent)
	frame := fmt.Sprintf(`{"arcp":"1.1","id":%q,"type":%q,"timestamp":"2030-01-02T15:04:05Z","payload":%s}`, id, typ, payload)
	return id, errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush())
}

// read waits for the next frame.
func (p *peer) read() arcp.Envelope {
	p.Helper()
	raw, err := p.conn.Read()
	if err != nil {
		p.Fatalf("read: %v", err)
	}
	env, err := arcp.Decode(raw)
	if err != nil {
		p.Fatalf("the runtime sent an invalid frame: %s: %v", raw, err)
	}
	if p.session == "" {
		p.session = env.SessionID
	}
	if p.ignoreToolChanges && env.Type == arcp.EventEmit && bytes.Contains(env.Payload, []byte(`"tools.changed"`)) {
		return p.read()
	}
	return env
}

// expect reads frames of these types, in this order, and returns the last.
func (p *peer) expect(types ...arcp.Type) (env arcp.Envelope) {
	p.Helper()
	for _, t := range types {
		if env = p.read(); env.Type != t {
			p.Fatalf("sent %s %s, want %s", env.Type, env.Payload, t)
		}
	}
	return env
}

// until reads up to a frame of a type.
func (p *peer) until(t arcp.Type) arcp.Envelope {
	p.Helper()
	for {
		if env := p.read(); env.Type == t {
			return env
		}
	}
}

// closed reads up to the end of the connection and compares its close code.
func (p *peer) closed(why string, code transport.CloseCode) {
	p.Helper()
	for {
		_, err := p.conn.Read()
		if err == nil {
			continue
		}
		if te, ok := errors.AsType[*transport.Error](err); !ok || !te.Remote || te.Code != code {
			p.Fatalf("%s: the connection ended with %v, want the runtime to close it with %d", why, err, code)
		}
		return
	}
}

// refusal is the payload of a frame that reports a failure.
func refusal(t testing.TB, env arcp.Envelope) arcp.Error {
	t.Helper()
	e, err := arcp.DecodePayload[arcp.Error](&env)
	if err != nil || e.Code == "" {
		t.Fatalf("%s %s: want it to report a failure", env.Type, env.Payload)
	}
	return e
}

// submit submits a job and returns the id it was accepted under.
func (p *peer) submit(name, args string) arcp.JobID {
	p.Helper()
	p.send("tool.invoke", fmt.Sprintf(`{"tool":%q,"arguments":%s}`, name, args))
	return p.until("job.accepted").JobID
}

// subscribe opens a subscription and returns its id.
func (p *peer) subscribe(payload string) arcp.SubscriptionID {
	p.Helper()
	p.send("subscribe", payload)
	return p.until("subscribe.accepted").SubscriptionID
}

// human opens a session with a person.
func (f *fixture) human(name string) *peer {
	f.Helper()
	p := f.connect(nil)
	p.openHuman(name, "")
	p.expect("session.accepted")
	return p
}

func (p *peer) openHuman(name, id string) {
	p.sent++
	session := ""
	if id != "" {
		session = fmt.Sprintf(`"session_id":%q,`, id)
	}
	frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_open%d",%s"type":"session.open","timestamp":"2030-01-02T15:04:05Z","payload":{"auth":{"scheme":"bearer","token":"%s-%s"},`+
		`"client":{"kind":"test","version":"1"},"capabilities":{"human_input":true}}}`, p.sent, session, name, token)
	if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
		p.Fatal(err)
	}
}

// run runs a tool and returns its result, or its error.
func (p *peer) run(name, args string) (arcp.Raw, *arcp.Error) {
	p.Helper()
	id := p.send("tool.invoke", fmt.Sprintf(`{"tool":%q,"arguments":%s}`, name, args))
	var chunks arcp.Raw // of a long result
	for {
		env := p.read()
		if string(env.CorrelationID) != id {
			continue
		}
		switch env.Type {
		case arcp.JobResultChunk:
			chunk, err := arcp.DecodePayload[arcp.JobResultChunkPayload](&env)
			if err != nil {
				p.Fatal(err)
			}
			chunks = append(chunks, chunk.Data...)
		case arcp.JobCompleted:
			done, err := arcp.DecodePayload[arcp.JobCompletedPayload](&env)
			if err != nil {
				p.Fatal(err)
			}
			if len(chunks) > 0 {
				return chunks, nil
			}
			return done.Value, nil
		case arcp.JobFailed, arcp.JobCancelled, arcp.Nack:
			e := refusal(p.T, env)
			return nil, &e
		}
	}
}

// must is run of a call that succeeds.
func (p *peer) must(name, args string) map[string]any {
	p.Helper()
	raw, refused := p.run(name, args)
	if refused != nil {
		p.Fatalf("%s %s: %v", name, args, refused)
	}
	var out map[string]any
	if err := arcp.Unmarshal(raw, &out); err != nil {
		p.Fatalf("%s: %s: %v", name, raw, err)
	}
	return out
}

func codeOf(e *arcp.Error) arcp.Code {
	if e == nil {
		return ""
	}
	return e.Code
}

// refused runs a tool that is to fail with a code.
func (p *peer) refused(why, name, args string, code arcp.Code) *arcp.Error {
	p.Helper()
	v, err := p.run(name, args)
	if err == nil || err.Code != code {
		p.Fatalf("%s: %s %s returned %s, %v; want %s", why, name, args, v, err, code)
	}
	return err
}

// evicted reads up to the eviction and compares its code.
func (p *peer) evicted(why string, code arcp.Code) {
	p.Helper()
	env := p.until("session.evicted")
	e, err := arcp.DecodePayload[arcp.SessionEvictedPayload](&env)
	if err != nil || e.Code != code || e.Reason == "" {
		p.Errorf("%s: evicted with %s, %v, want %s", why, env.Payload, err, code)
	}
	p.closed(why, transport.ClosePolicy)
}

// wantOpen checks that the session is open.
func (p *peer) wantOpen(why string) {
	p.Helper()
	if _, err := p.try("ping", `{}`); err != nil {
		p.Fatalf("%s: %v", why, err)
	}
	p.expect("pong")
}

// resumeToken is the token that a handshake has brought.
func resumeToken(t testing.TB, env arcp.Envelope) string {
	t.Helper()
	var p struct {
		ResumeToken string `json:"resume_token"`
	}
	if err := arcp.Unmarshal(env.Payload, &p); err != nil || p.ResumeToken == "" {
		t.Fatalf("%s %s: want a resume token (%v)", env.Type, env.Payload, err)
	}
	return p.ResumeToken
}

// dialToken opens a session and returns its token too.
func (f *fixture) dialToken(name string) (*peer, string) {
	f.Helper()
	p := f.connect(nil)
	p.open(name)
	return p, resumeToken(f, p.expect("session.accepted"))
}

// resume makes a connection that asks for a session.
func (f *fixture) resume(token string, after uint64) *peer {
	f.Helper()
	p := f.connect(nil)
	p.sent = 1000 * (1 + len(f.resumed)) // ids of its own
	f.resumed = append(f.resumed, p)
	p.send("session.resume", fmt.Sprintf(`{"resume_token":%q,"last_event_seq":%d}`, token, after))
	return p
}
