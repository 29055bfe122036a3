package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

// steps is the number of job.progress events of a job.
const steps = 5

// breakingRuntime is a runtime that retains its sessions. Its connection breaks at frame number cut,
// in either direction: a received frame is lost before it is handled, a frame to send before
// it is sent.
type breakingRuntime struct {
	broken int

	mu      sync.Mutex
	frames  int
	conn    transport.Conn // nil: none
	feed    arcp.SubscriptionID
	opened  int             // tokens and feeds so far
	token   string          // the newest
	before  string          // "": the newest was used
	events  []arcp.Envelope // of the session
	answers map[arcp.MessageID]arcp.Envelope
	runs    int // jobs executed
}

func newBreakingRuntime(cut int) *breakingRuntime {
	return &breakingRuntime{broken: cut, answers: make(map[arcp.MessageID]arcp.Envelope)}
}

func (b *breakingRuntime) dial(context.Context) (transport.Conn, error) {
	near, far := transport.Pipe(transport.Limits{})
	go b.serve(far)
	return near, nil
}

func (b *breakingRuntime) serve(conn transport.Conn) {
	defer conn.Abort()
	for {
		frame, err := conn.Read()
		if err != nil {
			return
		}
		env, err := arcp.Decode(frame)
		if err != nil {
			return
		}
		b.mu.Lock()
		if !b.breaks(conn) {
			b.handle(conn, &env)
		}
		b.mu.Unlock()
	}
}

// breaks counts a frame, and breaks the connection at frame number cut.
func (b *breakingRuntime) breaks(conn transport.Conn) bool {
	b.frames++
	if b.frames != b.broken {
		return false
	}
	conn.Abort()
	if b.conn == conn {
		b.conn = nil
	}
	return true
}

func (b *breakingRuntime) handle(conn transport.Conn, env *arcp.Envelope) {
	if b.conn == conn {
		b.before = ""
	}
	switch env.Type {
	case arcp.SessionOpen:
		b.conn = conn
		b.reply(env, arcp.Frame(arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: "sess_1", ResumeToken: b.rotate(), ResumeWindowSec: 60}))
	case arcp.SessionResume:
		b.resume(conn, env)
	case arcp.ToolInvoke:
		b.invoke(env)
	case arcp.SessionListJobs:
		b.reply(env, arcp.Frame(arcp.SessionJobs, arcp.SessionJobsPayload{RequestID: env.ID}))
	case arcp.Subscribe:
		b.subscribe(env)
	case arcp.SessionClose:
		b.reply(env, arcp.Frame(arcp.SessionClosed, arcp.SessionClosedPayload{}))
	}
}

func (b *breakingRuntime) rotate() string {
	b.opened++
	b.before, b.token = b.token, fmt.Sprint("rt_", b.opened)
	return b.token
}

func (b *breakingRuntime) resume(conn transport.Conn, env *arcp.Envelope) {
	b.conn, b.feed = conn, ""
	p, _ := arcp.DecodePayload[arcp.SessionResumePayload](env)
	if p.ResumeToken != b.token && p.ResumeToken != b.before {
		b.reply(env, arcp.Frame(arcp.SessionRejected, arcp.Errorf(arcp.CodeResumeWindowExpired, "unknown token")))
		return
	}
	used := p.ResumeToken
	b.rotate()
	b.before = used
	b.reply(env, arcp.Frame(arcp.SessionResumed, arcp.SessionResumedPayload{SessionID: "sess_1", ResumeToken: b.token, ReplayedFrom: p.LastEventSeq}))
	for _, e := range b.events[p.LastEventSeq:] {
		b.send(e)
	}
}

// invoke executes a command once, and answers it each time.
func (b *breakingRuntime) invoke(env *arcp.Envelope) {
	if answer, again := b.answers[env.ID]; again {
		b.send(answer)
		return
	}
	b.runs++
	id := arcp.JobID(fmt.Sprint("job_", b.runs))
	b.answers[env.ID] = b.event(id, env.ID, arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: id})
	go b.execute(id, env.ID)
}

func (b *breakingRuntime) execute(id arcp.JobID, request arcp.MessageID) {
	for i := range steps {
		time.Sleep(10 * time.Millisecond)
		b.mu.Lock()
		b.event(id, request, arcp.JobProgress, arcp.JobProgressPayload{Current: float64(i + 1)})
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.event(id, request, arcp.JobCompleted, arcp.JobCompletedPayload{Value: arcp.Raw("7")})
}

func (b *breakingRuntime) event(id arcp.JobID, request arcp.MessageID, t arcp.Type, payload any) arcp.Envelope {
	env := arcp.Frame(t, payload)
	env.ARCP, env.SessionID, env.Timestamp, env.JobID, env.CorrelationID = arcp.Version, "sess_1", time.Now(), id, request
	env.EventSeq = uint64(len(b.events) + 1)
	env.ID = arcp.MessageID(fmt.Sprint("msg_", env.EventSeq))
	b.events = append(b.events, env)
	b.send(env)
	b.emit(env)
	return env
}

func (b *breakingRuntime) subscribe(env *arcp.Envelope) {
	p, _ := arcp.DecodePayload[arcp.SubscribePayload](env)
	b.opened++
	b.feed = arcp.SubscriptionID(fmt.Sprint("sub_", b.opened))
	answer := arcp.Frame(arcp.SubscribeAccepted, arcp.SubscribeAcceptedPayload{SubscriptionID: b.feed})
	answer.SubscriptionID = b.feed
	b.reply(env, answer)
	if p.Since == nil {
		return
	}
	after := 0
	fmt.Sscanf(string(p.Since.AfterMessageID), "msg_%d", &after)
	for _, e := range b.events[after:] {
		b.emit(e)
	}
	marker := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: client.FeedCaughtUp})
	marker.ARCP, marker.ID, marker.Timestamp = arcp.Version, arcp.NewMessageID(), time.Now()
	b.emit(marker)
}

// emit sends an event to the feed.
func (b *breakingRuntime) emit(env arcp.Envelope) {
	if b.feed != "" {
		wrapped := arcp.Frame(arcp.SubscribeEvent, arcp.SubscribeEventPayload{Event: env.Append(nil)})
		wrapped.SubscriptionID = b.feed
		b.send(wrapped)
	}
}

func (b *breakingRuntime) reply(to *arcp.Envelope, env arcp.Envelope) {
	env.CorrelationID = to.ID
	b.send(env)
}

func (b *breakingRuntime) send(env arcp.Envelope) {
	if b.conn == nil || b.breaks(b.conn) {
		b.feed = ""
		return
	}
	env.ARCP, env.SessionID = arcp.Version, "sess_1"
	if env.ID == "" {
		env.ID, env.Timestamp = arcp.NewMessageID(), time.Now()
	}
	if b.conn.Write(env.Append(nil)) != nil || b.conn.Flush() != nil {
		b.conn = nil
	}
}

// With a break at any frame, every event is received once, every command executed once, and every
// question answered.
func TestConnectionLostAtAnyFrame(t *testing.T) {
	for cut := 0; ; cut++ {
		reached := false
		t.Run(fmt.Sprint("frame ", cut), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreakingRuntime(cut)
				converse(t, b)
				b.mu.Lock()
				defer b.mu.Unlock()
				reached = cut <= b.frames
			})
		})
		if !reached || t.Failed() {
			if cut < 30 {
				t.Errorf("only %d frames were cut", cut)
			}
			return
		}
	}
}

func converse(t *testing.T, b *breakingRuntime) {
	opts := bearer
	opts.AckEvery = 2
	c, err := client.ConnectFunc(t.Context(), b.dial, opts)
	if b.broken == 1 || b.broken == 2 {
		wantIs(t, "the first connection is tried once", err, client.ErrConnectionLost)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	f, err := c.SubscribeFeed(t.Context(), client.SubscribeFeedParams{Since: &arcp.Since{AfterMessageID: "msg_0"}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		j, err := c.Invoke(t.Context(), echo)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.ListJobs(t.Context(), client.ListJobsParams{})
		want(t, "list", err, nil)
		next := uint64(n*(steps+2) + 1)
		for env, err := range j.Events(t.Context()) {
			want(t, "job's events", err, nil)
			want(t, "event_seq", env.EventSeq, next)
			next++
		}
		want(t, "the job's last event", next, uint64((n+1)*(steps+2)+1))
	}
	seen, markers := 0, 0
	for env, err := range f.Events(t.Context()) {
		want(t, "feed's events", err, nil)
		if env.Type == arcp.EventEmit {
			markers++
			continue
		}
		seen++
		want(t, "feed's event", env.EventSeq, uint64(seen))
		if seen == 2*(steps+2) {
			break
		}
	}
	want(t, "markers of one subscription", markers, 1)
	b.mu.Lock()
	want(t, "jobs executed", b.runs, 2)
	b.mu.Unlock()
	want(t, "close", c.Close(t.Context(), ""), nil)
}
