package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// submit submits a job and returns the id it was accepted under.
func (p *peer) submit(name, args string) arcp.JobID {
	p.Helper()
	p.send("tool.invoke", fmt.Sprintf(`{"tool":%q,"arguments":%s}`, name, args))
	return p.until("job.accepted").JobID
}

// Frames in order, numbers without a gap, and the answers of submits in the
// order of the submits.
func TestManySubmitsInFlight(t *testing.T) {
	const jobs = 200
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		go func() {
			for i := range jobs {
				_, _ = p.try("tool.invoke", []string{`{"tool":"demo.echo"}`, `{"tool":"demo.none"}`, `{"tool":7}`,
					`{"tool":"demo.fail","arguments":{"code":"ABORTED","message":"x"}}`}[i%4])
			}
		}()
		var seq uint64
		answered, ended := make(map[arcp.MessageID]bool), 0
		for ended < jobs {
			env := p.read()
			if env.EventSeq != 0 {
				if seq++; env.EventSeq != seq {
					b.Fatalf("event_seq %d after %d", env.EventSeq, seq-1)
				}
			}
			if !answered[env.CorrelationID] {
				answered[env.CorrelationID] = true
				if want := arcp.MessageID(fmt.Sprintf("msg_%d", len(answered)+1)); env.CorrelationID != want {
					b.Fatalf("%s is answered before %s", env.CorrelationID, want)
				}
			}
			if env.Type.Terminal() || env.Type == arcp.Nack {
				ended++
			}
		}
	})
}

// A session that never reads delays neither the job nor its followers.
func TestSlowFollower(t *testing.T) {
	const events, size = 1000, 10_000 // 10 MB
	inBubble(t, nil, func(b *fixture) {
		fast, slow := b.dial("alice"), b.dial("alice")
		id := fast.submit("demo.emit", fmt.Sprintf(`{"count":%d,"bytes":%d,"delay_ms":1000}`, events, size))
		slow.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, id))
		slow.expect("job.subscribed")
		synctest.Wait() // from here on it reads nothing

		began, n := time.Now(), 0
		for env := fast.read(); env.Type != arcp.JobCompleted; env = fast.read() {
			if env.Type == arcp.Log {
				n++
			}
		}
		if took := time.Since(began); n != events || took > 2*time.Second {
			t.Errorf("%d events in %v, want %d after the delay of a second", n, took, events)
		}
		if written := b.sum("arcp_envelopes_total", `"log"`); written > events+100 {
			t.Errorf("%v events written, want only what the slow session's buffers have room for besides", written)
		}
		n = 0
		for env := slow.read(); env.Type != arcp.JobCompleted; env = slow.read() {
			if env.Type == arcp.Log {
				n++
			}
		}
		if n != events {
			t.Errorf("when it reads, it gets %d events, want all %d", n, events)
		}
	})
}

// job.subscribe sends the answer, the requested history, and then new events, each once. A job
// of another principal does not exist.
func TestFollow(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		owner, other, stranger := b.dial("alice"), b.dial("alice"), b.dial("bob")
		id := owner.submit("demo.emit", `{"count":4,"bytes":1,"interval_ms":1000}`)
		owner.expect("job.started", "log", "log")
		subscribe := func(p *peer, more string) {
			p.send("job.subscribe", fmt.Sprintf(`{"job_id":%q%s}`, id, more))
		}
		subscribe(other, `,"history":true,"from_event_seq":5`)
		if e := refusal(t, other.expect("nack")); e.Code != arcp.CodeInvalidRequest {
			t.Errorf("after an event that has not come: %+v", e)
		}
		subscribe(other, `,"history":true,"from_event_seq":2`)
		env := other.expect("job.subscribed")
		sub, err := arcp.DecodePayload[arcp.JobSubscribedPayload](&env)
		if err != nil || sub.SubscribedFrom != 4 || !sub.Replayed || env.EventSeq != 0 || env.JobID != id {
			t.Errorf("%s %+v, %v: want it to say where the history ends", env.JobID, sub, err)
		}
		first := other.expect("log")
		if first.EventSeq != 1 || !bytes.Contains(first.Extensions, []byte(`"event_seq":3`)) || first.SessionID != other.session {
			t.Errorf("number %d, extensions %s: want its own number, and the origin's beside it", first.EventSeq, first.Extensions)
		}
		other.expect("log", "log", "log", "job.completed")

		subscribe(other, "")
		if env := other.expect("job.subscribed"); env.JobID != id {
			t.Errorf("a second subscribe is answered for job %q, want %q", env.JobID, id)
		}
		subscribe(owner, `,"history":true`)
		owner.until("job.subscribed")
		subscribe(stranger, "")
		if e := refusal(t, stranger.expect("nack")); e.Code != arcp.CodeJobNotFound {
			t.Errorf("%+v: want JOB_NOT_FOUND", e)
		}
		owner.submit("demo.echo", `{}`)
		owner.until("job.completed")
		late := b.dial("alice")
		subscribe(late, `,"history":true,"from_event_seq":8`) // of another job, but the session is that far
		late.expect("job.subscribed")                         // of a job that has ended: nothing will come
		synctest.Wait()
		subscribe(late, `,"history":true`)
		late.expect("job.subscribed", "job.accepted", "job.started", "log", "log", "log", "log", "job.completed")
		late.send("ping", "{}")
		late.expect("pong")
	})
}

// Events between the read of a job's row and the beginning of a follow are neither lost nor
// reported wrongly, above all the job's end.
func TestFollowOfARunningJobLosesNothing(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		owner, other := b.dial("alice"), b.dial("alice")
		follow := func(dwell time.Duration, more string) arcp.JobSubscribedPayload {
			id := owner.submit("demo.emit", `{"count":4,"bytes":1,"interval_ms":1000}`)
			owner.expect("job.started", "log", "log")
			b.st.set(func() { b.st.dwell = dwell })
			other.send("job.subscribe", fmt.Sprintf(`{"job_id":%q%s}`, id, more))
			env := other.expect("job.subscribed")
			p, err := arcp.DecodePayload[arcp.JobSubscribedPayload](&env)
			if err != nil {
				t.Fatal(err)
			}
			owner.until("job.completed")
			return p
		}
		if p := follow(1500*time.Millisecond, ""); p.CurrentStatus != "running" || p.SubscribedFrom != 5 {
			t.Errorf("%+v, want what comes after event 5", p)
		}
		other.expect("log", "job.completed")
		if p := follow(time.Minute, ""); p.CurrentStatus != "completed" || p.SubscribedFrom != 14 {
			t.Errorf("%+v, want it to say that the job has ended with event 14", p)
		}
		other.silent("a job that has ended")
		if p := follow(time.Minute, `,"history":true`); p.CurrentStatus != "completed" || p.SubscribedFrom != 21 {
			t.Errorf("%+v, want it to say that the job has ended with event 21", p)
		}
		other.expect("job.accepted", "job.started", "log", "log", "log", "log", "job.completed")
		other.silent("all of it was given")
	})
}

func TestUnfollow(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		owner, other := b.dial("alice"), b.dial("alice")
		id := owner.submit("demo.emit", `{"count":3,"bytes":1,"interval_ms":1000}`)
		other.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, id))
		other.expect("job.subscribed")
		synctest.Wait()
		other.send("job.unsubscribe", fmt.Sprintf(`{"job_id":%q}`, id))
		other.send("job.unsubscribe", `{"job_id":"job_none"}`)
		owner.until("job.completed")
		other.send("ping", "{}")
		for env := other.read(); env.Type != arcp.Pong; env = other.read() {
			if env.Type.Terminal() {
				t.Error("the end of a job that was unfollowed was sent")
			}
		}
	})
}

// A follow that the store refuses is not remembered as one.
func TestFollowFails(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		owner, other := b.dial("alice"), b.dial("alice")
		id := owner.submit("demo.sleep", `{"ms":1000}`)
		synctest.Wait()
		b.st.set(func() { b.st.fail = errors.New("boom") })
		for range 2 {
			other.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, id))
			if e := refusal(t, other.expect("nack")); e.Code != arcp.CodeUnavailable {
				t.Errorf("%+v: want UNAVAILABLE each time", e)
			}
			synctest.Wait()
		}
	})
}

// Acks let the store forget, 64 events at a time or all of them, never more than
// was sent.
func TestAckTrims(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.submit("demo.emit", `{"count":200,"bytes":1}`)
		p.until("job.completed")
		trimmed := func() uint64 {
			synctest.Wait()
			row, err := b.st.Session(context.Background(), p.session)
			if err != nil {
				b.Fatal(err)
			}
			return row.TrimmedTo
		}
		for _, step := range []struct{ ack, want uint64 }{{5, 0}, {100, 100}, {3, 100}, {100, 100}, {105, 100}, {1 << 63, 203}} {
			p.send("session.ack", fmt.Sprintf(`{"last_processed_seq":%d}`, step.ack))
			if got := trimmed(); got != step.want {
				t.Errorf("after an ack of %d the log begins after %d, want %d", step.ack, got, step.want)
			}
		}
		p.submit("demo.echo", "{}")
		if env := p.until("job.completed"); env.EventSeq != 206 {
			t.Errorf("the numbers go on at %d, want 206", env.EventSeq)
		}
	})
}

// An ack above the last sent number does not acknowledge later events.
func TestAckBeyond(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.submit("demo.emit", `{"count":3000,"bytes":1000,"delay_ms":10}`)
		time.Sleep(time.Second)
		p.send("session.ack", `{"last_processed_seq":18446744073709551615}`)
		synctest.Wait()
		if row, err := b.st.Session(context.Background(), p.session); err != nil || row.TrimmedTo == 0 || row.TrimmedTo > 1000 {
			t.Errorf("the log begins after %d, %v; want what was written to be forgotten, and nothing else of 3,003", row.TrimmedTo, err)
		}
		if env := p.until("job.completed"); env.EventSeq != 3003 {
			t.Errorf("the end has the number %d, want 3003", env.EventSeq)
		}
	})
}

// Pages are stable while jobs are added. A cursor is valid for one filter and one principal.
// Jobs of other principals are invisible.
func TestListJobs(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, stranger := b.dial("alice"), b.dial("bob")
		var want []arcp.JobID
		for range 25 {
			want = append(want, p.submit("demo.echo", "{}"))
		}
		p.until("job.completed")
		list := func(p *peer, payload string) arcp.SessionJobsPayload {
			b.Helper()
			id := p.send("session.list_jobs", payload)
			env := p.until("session.jobs")
			page, err := arcp.DecodePayload[arcp.SessionJobsPayload](&env)
			if err != nil || page.RequestID != arcp.MessageID(id) {
				b.Fatalf("%s, %v: want the answer to %s", env.Payload, err, id)
			}
			return page
		}
		var got []arcp.JobID
		cursor := ""
		for range 10 {
			page := list(p, fmt.Sprintf(`{"limit":7,"cursor":%q}`, cursor))
			for _, j := range page.Jobs {
				got = append(got, j.JobID)
			}
			if page.NextCursor == nil {
				break
			}
			cursor = *page.NextCursor
			if len(want) < 27 {
				want = append(want, p.submit("demo.echo", "{}"))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the pages have %v, want %v", got, want)
		}
		if page := list(stranger, "{}"); len(page.Jobs) != 0 {
			t.Errorf("another principal sees %d jobs", len(page.Jobs))
		}
		for why, payload := range map[string]string{
			"another filter": fmt.Sprintf(`{"cursor":%q,"filter":{"agent":"demo.echo"}}`, cursor),
			"not a cursor":   `{"cursor":"AAAA"}`,
			"tampered with":  fmt.Sprintf(`{"cursor":%q}`, "AB"+cursor[2:]),
		} {
			p.send("session.list_jobs", payload)
			if e := refusal(t, p.until("nack")); e.Code != arcp.CodeInvalidRequest {
				t.Errorf("%s: %+v, want INVALID_REQUEST", why, e)
			}
		}
		stranger.send("session.list_jobs", fmt.Sprintf(`{"cursor":%q}`, cursor))
		if e := refusal(t, stranger.expect("nack")); e.Code != arcp.CodeInvalidRequest {
			t.Errorf("another principal's cursor: %+v, want INVALID_REQUEST", e)
		}
		synctest.Wait()
		if n := len(list(p, `{"filter":{"status":["success"],"agent":"demo.echo@1.0.0"}}`).Jobs); n != len(want) {
			t.Errorf("%d jobs by status and agent, want %d", n, len(want))
		}
		if n := len(list(p, `{"filter":{"status":["running","error"]}}`).Jobs); n != 0 {
			t.Errorf("%d jobs that run or failed, want none", n)
		}
	})
}

// Another session of the same principal may end a session; its jobs continue.
func TestCancelSession(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		one, two, stranger := b.dial("alice"), b.dial("alice"), b.dial("bob")
		id := two.submit("demo.sleep", `{"ms":60000}`)
		cancel := func(p *peer, target arcp.SessionID) {
			p.send("cancel", fmt.Sprintf(`{"target":"session","target_id":%q}`, target))
		}
		cancel(stranger, two.session)
		stranger.expect("cancel.refused")
		cancel(one, "sess_none")
		one.expect("cancel.refused")
		cancel(one, two.session)
		one.expect("cancel.accepted")
		two.until("session.evicted")
		two.closed("evicted", transport.ClosePolicy)
		cancel(one, one.session)
		one.expect("cancel.accepted", "session.evicted")
		one.closed("evicted", transport.ClosePolicy)

		late := b.dial("alice")
		late.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, id))
		late.expect("job.subscribed")
		late.until("job.completed")
		if n := b.sum("arcp_session_evictions_total", ""); n != 2 {
			t.Errorf("%v evictions counted, want 2", n)
		}
	})
}

// A session.open that names a session of another principal does not affect it.
func TestOpenNamesASession(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, stranger := b.dial("alice"), b.connect(nil)
		frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_1","type":"session.open","timestamp":"2030-01-02T15:04:05Z","session_id":%q,`+
			`"payload":{"auth":{"scheme":"bearer","token":"bob-%s"},"client":{"kind":"test","version":"1"}}}`, p.session, token)
		if err := errors.Join(stranger.conn.Write([]byte(frame)), stranger.conn.Flush()); err != nil {
			b.Fatal(err)
		}
		if env := stranger.expect("session.accepted"); env.SessionID == p.session {
			t.Errorf("bob was given alice's session %s", env.SessionID)
		}
		p.send("ping", "{}")
		p.expect("pong")
	})
}

// Jobs outlive the connection, but for those that asked not to.
func TestDisconnect(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		stays := p.submit("demo.sleep", `{"ms":60000}`)
		p.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":60000},"on_disconnect":"cancel"}`)
		goes := p.until("job.accepted").JobID
		_ = p.conn.Abort()
		state := func(id arcp.JobID) arcp.JobState {
			synctest.Wait()
			j, err := b.st.Job(context.Background(), id)
			if err != nil {
				b.Fatal(err)
			}
			return j.State
		}
		time.Sleep(4 * time.Second)
		if s := state(goes); s != arcp.StateRunning {
			t.Errorf("%s after 4 s, want the job to be given 5", s)
		}
		time.Sleep(2 * time.Second)
		if s := state(goes); s != arcp.StateCancelled {
			t.Errorf("%s, want it cancelled", s)
		}
		time.Sleep(time.Minute)
		if s := state(stays); s != arcp.StateCompleted {
			t.Errorf("%s, want it completed", s)
		}
	})
}

func TestClose(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		id := p.submit("demo.sleep", `{"ms":60000}`)
		p.send("session.close", `{"open_jobs":"cancel","reason":"done"}`)
		p.until("session.closed")
		p.closed("it asked for it", transport.CloseNormal)
		synctest.Wait()
		if j, err := b.st.Job(context.Background(), id); err != nil || j.State != arcp.StateCancelled {
			t.Errorf("job %s, %v; want it cancelled with the session", j.State, err)
		}
	})
}

// Shutdown gives the jobs their time, tells the sessions everything and then
// that it is over, closes with 1001, and closes the store last.
func TestShutdownInOrder(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, opening := b.dial("alice"), b.connect(nil)
		p.submit("demo.sleep", `{"ms":5000}`)
		p.expect("job.started")
		synctest.Wait()
		done := make(chan struct{})
		go func() { b.shutdown(time.Minute); close(done) }()
		synctest.Wait()
		if err := b.rt.Ready(); !errors.Is(err, runtime.ErrShutdown) {
			t.Errorf("Ready = %v, want ErrShutdown", err)
		}
		p.send("tool.invoke", `{"tool":"demo.echo"}`)
		if e := refusal(t, p.expect("job.failed")); e.Code != arcp.CodeUnavailable || len(e.Details) == 0 {
			t.Errorf("%+v: want UNAVAILABLE and a time to wait", e)
		}
		p.send("ping", "{}")
		p.expect("pong") // the session lives until the jobs have ended
		late := b.connect(nil)
		late.open("alice")
		if e := refusal(t, late.expect("session.rejected")); e.Code != arcp.CodeUnavailable || len(e.Details) == 0 {
			t.Errorf("a new connection: %+v, want UNAVAILABLE and a time to wait", e)
		}
		opening.open("alice")
		if e := refusal(t, opening.expect("session.rejected")); e.Code != arcp.CodeUnavailable {
			t.Errorf("%+v: want UNAVAILABLE", e)
		}
		began := time.Now()
		env := p.expect("job.completed", "session.close")
		if !strings.Contains(string(env.Payload), "shutdown") || time.Since(began) > 5*time.Second {
			t.Errorf("%s after %v", env.Payload, time.Since(began))
		}
		p.closed("shutdown", transport.CloseGoingAway)
		opening.closed("shutdown", transport.CloseGoingAway)
		<-done
		b.serve.Wait()
		if b.st.closed != 1 || b.st.delayed != 0 {
			t.Errorf("the store was closed %d times, and %d commits came after that", b.st.closed, b.st.delayed)
		}
	})
}

// Jobs that still run after the shutdown timeout are left to the next runtime on the store. It
// ends them before it serves clients.
func TestShutdownAndRestart(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		id := p.submit("demo.emit", `{"count":1,"bytes":1,"delay_ms":3600000}`) // it must not run twice
		p.expect("job.started")
		began := time.Now()
		b.shutdown(10 * time.Second)
		if took := time.Since(began); took > 13*time.Second {
			t.Errorf("Shutdown took %v, want its 10 s and a farewell", took)
		}
		p.until("session.close")
		p.closed("shutdown", transport.CloseGoingAway)

		b.st.set(func() { b.st.closed = 0 })
		b.boot(nil)
		p = b.dial("alice")
		p.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, id))
		e := refusal(t, p.expect("job.subscribed", "job.accepted", "job.started", "job.failed"))
		if e.Code != arcp.CodeAborted || !e.Retryable {
			t.Errorf("%+v: want ABORTED, which may be retried", e)
		}
	})
}

// A peer that neither reads nor goes does not hold Shutdown up.
func TestShutdownOfAStuckPeer(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.submit("demo.emit", `{"count":2000,"bytes":1000}`)
		synctest.Wait()
		began := time.Now()
		b.shutdown(10 * time.Second)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("Shutdown took %v", took)
		}
	})
}

// If events that the session was not sent are no longer kept, the connection ends: it never
// has a gap.
func TestUnreadableEvents(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.submit("demo.emit", `{"count":3000,"bytes":30000,"delay_ms":1000}`) // 90 MB: more than is kept in memory
		time.Sleep(5 * time.Second)
		// This trims events that the client has not read.
		results := make([]store.Result, 1)
		if err := b.st.Store.Commit([]*store.Write{store.NewWrite(&store.TrimSession{Session: p.session, Seq: 2000})}, results); err != nil {
			b.Fatal(err)
		}
		if why := string(p.until("backpressure").Payload); !strings.Contains(why, "backlog_overflow") {
			t.Errorf("backpressure %s", why)
		}
		p.closed("a gap", transport.CloseOverloaded)
	})
}

// No log record of any level has a token or its proof.
func TestNoSecretsInTheLog(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(c *runtime.Config) { c.Log = zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.TraceLevel) }, func(b *fixture) {
		secret := "alice-" + token
		p := b.connect(nil)
		for _, payload := range []string{
			`{"auth":{"scheme":"bearer","token":"` + secret + `-wrong"},"client":{"kind":"test","version":"1"}}`,
			`{"auth":{"scheme":"bearer","token":"` + secret + `","token":"` + secret + `"},"client":{"kind":"test","version":"1"}}`,
			`{"auth":{"scheme":7,"token":"` + secret + `"},"client":{"kind":"test","version":"1"}}`,
			`{"auth":"` + secret + `"}`,
			`{"auth":{"scheme":"bearer","token":"` + secret + `"}`,
		} {
			_, _ = p.try("session.open", payload)
		}
		synctest.Wait()
		q := b.connect(nil)
		q.open("alice")
		env := q.expect("session.accepted")
		accepted, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&env)
		if err != nil || accepted.ResumeToken == "" {
			b.Fatalf("%s: want a token to resume with", env.Payload)
		}
		q.send("session.resume", fmt.Sprintf(`{"resume_token":%q,"last_event_seq":0}`, accepted.ResumeToken))
		q.expect("nack")
		q.send("session.close", "{}")
		q.expect("session.closed")
		synctest.Wait()
		if log.Len() == 0 {
			t.Error("nothing was logged: the test proves nothing")
		}
		for _, s := range []string{token, accepted.ResumeToken} {
			if strings.Contains(log.String(), s) {
				t.Errorf("the log has a secret:\n%s", log.String())
			}
		}
	})
}

// counting counts the events that are read of jobs' logs.
type counting struct {
	store.Store
	read atomic.Int64
}

func (c *counting) JobEvents(ctx context.Context, id arcp.JobID, after uint64, fn func(*store.Event) bool) error {
	return c.Store.JobEvents(ctx, id, after, func(e *store.Event) bool {
		c.read.Add(1)
		return fn(e)
	})
}

// A late position in a long log is found without reading the events before it.
func TestSubscribeFromALatePosition(t *testing.T) {
	const events = 5000
	var read *counting
	inBubble(t, func(c *runtime.Config) { read = &counting{Store: c.Store}; c.Store = read }, func(b *fixture) {
		owner := b.dial("alice")
		owner.send("tool.invoke", `{"tool":"demo.echo"}`) // so that numbers and places differ
		owner.until("job.completed")
		owner.send("tool.invoke", fmt.Sprintf(`{"tool":"demo.emit","arguments":{"count":%d,"bytes":1}}`, events-3))
		end := owner.until("job.completed")
		first := end.EventSeq - events + 1
		for _, from := range []uint64{1, first - 1, first, first + 1, first + 1234, end.EventSeq - 2, end.EventSeq - 1, end.EventSeq} {
			read.read.Store(0)
			p := b.dial("alice")
			p.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true,"from_event_seq":%d}`, end.JobID, from))
			p.until("job.subscribed")
			if n := read.read.Load(); n > 20 {
				t.Errorf("%d events were read to find the position %d", n, from)
			}
			p.send("ping", "{}")
			next := p.read()
			if from == end.EventSeq {
				if next.Type != arcp.Pong {
					t.Errorf("after the last event comes %s", next.Type)
				}
				continue
			}
			var at struct {
				Origin struct {
					Seq uint64 `json:"event_seq"`
				} `json:"arcpx.arcp.origin.v1"`
			}
			for next.Type == arcp.Pong {
				next = p.read()
			}
			if err := arcp.Unmarshal(next.Extensions, &at); err != nil || at.Origin.Seq != max(from+1, first) {
				t.Errorf("after %d comes %d (%v)", from, at.Origin.Seq, err)
			}
			_ = p.conn.Abort()
		}
	})
}
