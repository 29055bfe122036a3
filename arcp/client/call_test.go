package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func TestCallReturnsTheFirstAnswer(t *testing.T) {
	scripted(t, bearer, `
		C list: session.list_jobs
		S: nack corr=list {"code":"INVALID_REQUEST","message":"no"}
		S: nack corr=list {"code":"INVALID_REQUEST","message":"a duplicate"}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		got, err := c.Call(t.Context(), arcp.Frame(arcp.SessionListJobs, arcp.SessionListJobsPayload{}))
		want(t, "a refusal is an answer like any", err, nil)
		want(t, "answer", client.RemoteErrorOf(&got).Message, "no")
		for env := range c.Unsolicited(t.Context()) {
			want(t, "a second answer is unsolicited", client.RemoteErrorOf(&env).Message, "a duplicate")
			break
		}
	})
}

func TestCallIDInUse(t *testing.T) {
	scripted(t, bearer, "C a: ping\nwait 1s\nS: pong corr=a", func(t *testing.T, c *client.Client, _ *fake) {
		env := arcp.Frame(arcp.Ping, arcp.PingPayload{})
		env.ID = "msg_mine"
		done := make(chan error)
		go func() {
			_, err := c.Call(t.Context(), env)
			done <- err
		}()
		synctest.Wait()
		_, err := c.Call(t.Context(), env)
		want(t, "second", fmt.Sprint(err), "call ping: the id msg_mine is in use")
		want(t, "first", <-done, nil)
	})
}

func TestPingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, f := start(t, opened+"hang")
		c, err := client.New(t.Context(), conn, bearer)
		if err != nil {
			t.Fatal(err)
		}
		defer f.conn.Abort()
		defer c.Abort()
		<-f.donec
		pong := func(delay time.Duration, nonce string) {
			env, err := f.read()
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(delay)
			if nonce == "" {
				p, _ := arcp.DecodePayload[arcp.PingPayload](&env)
				nonce = p.Nonce
			}
			f.send(`pong corr=` + string(env.ID) + ` {"nonce":"` + nonce + `"}`)
		}
		go pong(time.Second, "")
		rtt, err := c.Ping(t.Context())
		want(t, "error", err, nil)
		want(t, "round trip", rtt, time.Second)
		go pong(0, "another")
		_, err = c.Ping(t.Context())
		wantAs[*client.ProtocolError](t, "a pong with another nonce", err)
	})
}

func TestClientAnswersPings(t *testing.T) {
	scripted(t, bearer, `
		S: ping id=msg_p1 {"nonce":"n1"}
		C pong: pong {"nonce":"n1"}
		S: session.ping id=msg_p2 {"nonce":"n2","sent_at":"2026-05-09T13:00:00Z"}
		C spong: session.pong {"ping_nonce":"n2"}
	`, func(t *testing.T, _ *client.Client, f *fake) {
		synctest.Wait()
		want(t, "sent", f.types(), []arcp.Type{arcp.SessionOpen, arcp.Pong, arcp.SessionPong})
		want(t, "a pong is correlated to its ping", f.received[1].CorrelationID, "msg_p1")
		want(t, "a pong is correlated to its ping", f.received[2].CorrelationID, "msg_p2")
	})
}

func TestListJobsReadsAllPages(t *testing.T) {
	const entry = `{"job_id":"%s","agent":"a@1","status":"running","created_at":"2026-05-09T13:00:00Z","last_event_seq":3}`
	page := func(next string, ids ...string) string {
		var s strings.Builder
		for i, id := range ids {
			if i > 0 {
				s.WriteString(",")
			}
			s.WriteString(fmt.Sprintf(entry, id))
		}
		return `{"request_id":"r","jobs":[` + s.String() + `],"next_cursor":` + next + `}`
	}
	scripted(t, bearer, `
		C one: session.list_jobs {"filter":{"status":["running"]},"limit":2,"cursor":"c0"}
		S: session.jobs corr=one `+page(`"c1"`, "job_1")+`
		C two: session.list_jobs {}
		S: session.jobs corr=two `+page(`"c2"`, "job_1", "job_2")+`
		C three: session.list_jobs {"cursor":"c2"}
		S: session.jobs corr=three `+page(`null`, "job_3")+`
		C four: session.list_jobs
		S: nack corr=four {"code":"INVALID_REQUEST","message":"bad cursor"}
		C five: session.list_jobs
		S: pong corr=five
	`, func(t *testing.T, c *client.Client, _ *fake) {
		got, err := c.ListJobs(t.Context(), client.ListJobsParams{Filter: &arcp.JobFilter{Status: []string{"running"}}, Limit: 2, Cursor: "c0"})
		want(t, "error", err, nil)
		want(t, "jobs", len(got.Jobs), 1)
		want(t, "next", *got.NextCursor, "c1")

		var ids []arcp.JobID
		for j, err := range c.Jobs(t.Context(), client.ListJobsParams{}) {
			want(t, "error", err, nil)
			ids = append(ids, j.JobID)
		}
		want(t, "all pages", ids, []arcp.JobID{"job_1", "job_2", "job_3"})

		for _, err := range c.Jobs(t.Context(), client.ListJobsParams{}) {
			want(t, "code", wantAs[*client.RemoteError](t, "refused", err).Code, arcp.CodeInvalidRequest)
		}
		_, err = c.ListJobs(t.Context(), client.ListJobsParams{})
		wantAs[*client.ProtocolError](t, "an answer of another type", err)
	})
}

func TestCancelReturnsTheRefusal(t *testing.T) {
	scripted(t, bearer, `
		C one: cancel {"target":"job","target_id":"job_1","reason":"enough","deadline_ms":1500}
		S: cancel.accepted corr=one {"target_id":"job_1"}
		C two: cancel
		S: cancel.refused corr=two {"target_id":"job_1","reason":"already_terminal","code":"FAILED_PRECONDITION"}
		C three: cancel
		S: nack corr=three {"code":"UNIMPLEMENTED","message":"no"}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		want(t, "accepted", c.Cancel(t.Context(), client.CancelParams{JobID: "job_1", Reason: "enough", Deadline: 1500 * time.Millisecond}), nil)
		e := wantAs[*client.CancelRefusedError](t, "refused", c.Cancel(t.Context(), client.CancelParams{JobID: "job_1"}))
		want(t, "text", e.Error(), "cancel of job_1 refused: already_terminal")
		wantAs[*client.RemoteError](t, "nack", c.Cancel(t.Context(), client.CancelParams{JobID: "job_1"}))
	})
}

func TestReplyHasJobAndCorrelation(t *testing.T) {
	scripted(t, bearer, `
		S: permission.request id=msg_q job=job_1 seq=1 {"permission":"p","resource":"r","operation":"o"}
		C deny: permission.deny {"permission":"p","reason":"no"}
	`, func(t *testing.T, c *client.Client, f *fake) {
		for env, err := range c.Unsolicited(t.Context()) {
			want(t, "error", err, nil)
			want(t, "reply", c.Reply(&env, arcp.PermissionDeny, arcp.PermissionDenyPayload{Permission: "p", Reason: "no"}), nil)
			break
		}
		synctest.Wait()
		answer := f.received[len(f.received)-1]
		want(t, "correlated", answer.CorrelationID, "msg_q")
		want(t, "about the job", answer.JobID, "job_1")
	})
}

func TestClientAcknowledgesEveryNthEvent(t *testing.T) {
	opts := bearer
	opts.AckEvery = 2
	scripted(t, opts, `
		S: log seq=1 {"level":"info","message":"1"}
		S: log seq=2 {"level":"info","message":"2"}
		C a: session.ack {"last_processed_seq":2}
		S: log seq=3 {"level":"info","message":"3"}
		C b: session.ack {"last_processed_seq":3}
	`, func(t *testing.T, c *client.Client, f *fake) {
		synctest.Wait()
		c.Ack(1) // already acknowledged: sends nothing
		c.Ack(3)
		synctest.Wait()
		want(t, "sent", f.types(), []arcp.Type{arcp.SessionOpen, arcp.SessionAck, arcp.SessionAck})
	})
}

func TestOnEventTakesMessages(t *testing.T) {
	var seen, stray []arcp.Type
	opts := bearer
	opts.OnEnvelope = func(env *arcp.Envelope) bool {
		seen = append(seen, env.Type)
		return env.Type == arcp.Log
	}
	opts.OnUnsolicited = func(env *arcp.Envelope) { stray = append(stray, env.Type) }
	scripted(t, opts, `
		S: log seq=1 {"level":"info","message":"1"}
		S: metric seq=2 {"name":"n","value":1,"unit":"u"}
	`, func(t *testing.T, _ *client.Client, _ *fake) {
		synctest.Wait()
		want(t, "OnEnvelope sees everything", seen, []arcp.Type{arcp.SessionAccepted, arcp.Log, arcp.Metric})
		want(t, "what it took is not routed", stray, []arcp.Type{arcp.Metric})
	})
}

func TestUnsolicitedKeepsTheNewest(t *testing.T) {
	opts := bearer
	opts.Limits.Unsolicited = 2
	scripted(t, opts, `
		S: event.emit seq=1 {"name":"1"}
		S: event.emit seq=2 {"name":"2"}
		S: event.emit seq=3 {"name":"3"}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var seqs []uint64
		for env, err := range c.Unsolicited(ctx) {
			if err != nil {
				wantIs(t, "why it ended", err, context.Canceled)
				continue
			}
			if seqs = append(seqs, env.EventSeq); len(seqs) == 2 {
				cancel()
			}
		}
		want(t, "kept", seqs, []uint64{2, 3})
	})
}

func TestContextsEndWaiting(t *testing.T) {
	reason := errors.New("the caller left")
	for name, call := range map[string]func(context.Context, *client.Client) error{
		"Call": func(ctx context.Context, c *client.Client) error {
			_, err := c.Call(ctx, arcp.Frame(arcp.Ping, arcp.PingPayload{}))
			return err
		},
		"Invoke": func(ctx context.Context, c *client.Client) error { _, err := c.Invoke(ctx, echo); return err },
		"Ping":   func(ctx context.Context, c *client.Client) error { _, err := c.Ping(ctx); return err },
		"ListJobs": func(ctx context.Context, c *client.Client) error {
			_, err := c.ListJobs(ctx, client.ListJobsParams{})
			return err
		},
		"Cancel": func(ctx context.Context, c *client.Client) error {
			return c.Cancel(ctx, client.CancelParams{JobID: "job_1"})
		},
		"Subscribe": func(ctx context.Context, c *client.Client) error {
			_, err := c.SubscribeJob(ctx, client.SubscribeJobParams{JobID: "job_1"})
			return err
		},
		"SubscribeFeed": func(ctx context.Context, c *client.Client) error {
			_, err := c.SubscribeFeed(ctx, client.SubscribeFeedParams{})
			return err
		},
		"Close": func(ctx context.Context, c *client.Client) error { return c.Close(ctx, "") },
		"Unsolicited": func(ctx context.Context, c *client.Client) error {
			for _, err := range c.Unsolicited(ctx) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, bearer, "hang", func(t *testing.T, c *client.Client, _ *fake) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, reason)
				defer cancel()
				wantIs(t, "why it returned", call(ctx, c), reason)
			})
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	scripted(t, bearer, "C invoke: tool.invoke\nS: job.accepted corr=invoke job=job_1 seq=1 {\"job_id\":\"job_1\"}", func(t *testing.T, c *client.Client, _ *fake) {
		j, err := c.Invoke(t.Context(), echo)
		want(t, "error", err, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = j.Wait(ctx)
		wantIs(t, "Wait", err, context.DeadlineExceeded)
		want(t, "the connection is unharmed", c.Err(), nil)
	})
}

// If the runtime reads nothing, Send blocks when the buffers are full. The reader and a caller with a
// context are not blocked.
func TestSendBlocksWhenBuffersAreFull(t *testing.T) {
	opts := bearer
	opts.Limits.SendBuffer = 32 << 10
	scripted(t, opts, "hang", func(t *testing.T, c *client.Client, f *fake) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stuck := make(chan error)
		go func() {
			env := arcp.Frame(arcp.Log, arcp.LogPayload{Level: "info", Message: string(make([]byte, 1000))})
			for {
				if err := c.Send(env); err != nil {
					stuck <- err
					return
				}
			}
		}()
		synctest.Wait()
		_, err := c.Call(ctx, arcp.Frame(arcp.Ping, arcp.PingPayload{}))
		wantIs(t, "a call gives up with its context", err, context.DeadlineExceeded)
		for range 10 {
			if err := f.send(`ping {"nonce":"x"}`); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		want(t, "the reader goes on", c.Err(), nil)
		c.Abort()
		wantIs(t, "Send ends with the client", <-stuck, client.ErrClosed)
	})
}
