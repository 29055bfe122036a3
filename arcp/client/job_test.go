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

var echo = client.InvokeParams{Tool: "demo.echo", Arguments: map[string]int{"n": 1}}

func TestInvokeReturnsEventsAndResult(t *testing.T) {
	request := echo
	request.IdempotencyKey, request.TraceID = "key-1", "trace-1"
	request.Options.StrictCancel = true
	scripted(t, bearer, `
		C invoke: tool.invoke {"tool":"demo.echo","arguments":{"n":1},"strict_cancel":true}
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1","agent":"demo.echo@1.0.0"}
		S: job.started corr=invoke job=job_1 seq=2
		S: log job=job_1 seq=3 {"level":"info","message":"not correlated"}
		S: job.heartbeat job=job_1 {"sequence":1,"state":"running"}
		S: job.completed corr=invoke job=job_1 seq=4 {"value":{"n":1},"summary":"done"}
	`, func(t *testing.T, c *client.Client, f *fake) {
		j, err := c.Invoke(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "id", j.ID(), "job_1")
		want(t, "agent", j.Accepted().Agent, "demo.echo@1.0.0")
		result, err := j.Wait(t.Context())
		want(t, "error", err, nil)
		want(t, "value", string(result.Value), `{"n":1}`)
		want(t, "summary", result.Summary, "done")
		want(t, "terminal", result.Envelope.Type, arcp.JobCompleted)
		types, err := collect(t, j)
		want(t, "events end without an error", err, nil)
		want(t, "all that was said, also what only names the job", types,
			[]arcp.Type{arcp.JobAccepted, arcp.JobStarted, arcp.Log, arcp.JobHeartbeat, arcp.JobCompleted})
		_, open := c.Job("job_1")
		want(t, "an ended job is forgotten", open, false)
		sent := f.received[1]
		want(t, "key", sent.IdempotencyKey, "key-1")
		want(t, "trace", sent.TraceID, "trace-1")
		want(t, "session", sent.SessionID, "sess_1")
		want(t, "request id", j.RequestID(), sent.ID)
	})
}

// Invoke sends the trace context of its ctx, unless the job has a TraceID.
func TestInvokeSendsTheTraceContext(t *testing.T) {
	type key struct{}
	opts := bearer
	opts.Traceparent = func(ctx context.Context) string { p, _ := ctx.Value(key{}).(string); return p }
	for _, test := range []struct{ context, id, trace, span string }{
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "trace-1", "trace-1", ""},
		{"invalid", "", "", ""},
		{"", "", "", ""},
	} {
		scripted(t, opts, `
			C invoke: tool.invoke {"tool":"demo.echo","arguments":{"n":1}}
			S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1","agent":"demo.echo@1.0.0"}
		`, func(t *testing.T, c *client.Client, f *fake) {
			request := echo
			request.TraceID = test.id
			if _, err := c.Invoke(context.WithValue(t.Context(), key{}, test.context), request); err != nil {
				t.Fatal(err)
			}
			want(t, "trace", f.received[1].TraceID, test.trace)
			want(t, "parent span", f.received[1].SpanID, test.span)
		})
	}
}

func TestRefusedInvokeIsARemoteError(t *testing.T) {
	for name, answer := range map[string]string{
		"job.failed": `S: job.failed corr=invoke job=job_x {"code":"AGENT_NOT_AVAILABLE","message":"no such tool","retryable":false}`,
		"nack":       `S: nack corr=invoke {"code":"AGENT_NOT_AVAILABLE","message":"no such tool","retryable":false}`,
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, bearer, "C invoke: tool.invoke\n"+answer, func(t *testing.T, c *client.Client, _ *fake) {
				_, err := c.Invoke(t.Context(), echo)
				e := wantAs[*client.RemoteError](t, "a refusal is the runtime's word", err)
				want(t, "code", e.Code, arcp.CodeAgentNotAvailable)
				want(t, "text", err.Error(), "tool.invoke: "+name+": AGENT_NOT_AVAILABLE: no such tool")
				_, isJob := errors.AsType[*client.JobError](err)
				want(t, "a job that never was has not failed", isJob, false)
			})
		})
	}
}

func TestUnsuccessfulJobIsAJobError(t *testing.T) {
	for name, c := range map[string]struct {
		last  string
		state arcp.JobState
		code  arcp.Code
		text  string
	}{
		"failed": {`job.failed corr=invoke job=job_1 seq=2 {"code":"RATE_LIMITED","message":"slow down","retryable":true,"details":{"retry_after_seconds":1.5}}`,
			arcp.StateFailed, arcp.CodeResourceExhausted, "job_1 failed: RATE_LIMITED: slow down"},
		"cancelled": {`job.cancelled corr=invoke job=job_1 seq=2 {"reason":"user_aborted"}`,
			arcp.StateCancelled, arcp.CodeCancelled, "job_1 cancelled: CANCELLED: user_aborted"},
		"stopped by force": {`job.cancelled corr=invoke job=job_1 seq=2 {"code":"ABORTED"}`,
			arcp.StateCancelled, arcp.CodeAborted, "job_1 cancelled: ABORTED"},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, bearer, `
				C invoke: tool.invoke
				S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
				S: `+c.last, func(t *testing.T, cl *client.Client, _ *fake) {
				j, err := cl.Invoke(t.Context(), echo)
				if err != nil {
					t.Fatal(err)
				}
				_, err = j.Wait(t.Context())
				e := wantAs[*client.JobError](t, "outcome", err)
				want(t, "state", e.State, c.state)
				want(t, "code", e.Code, c.code)
				want(t, "text", err.Error(), c.text)
				wantAs[*client.RemoteError](t, "what it wraps", err)
				if after, ok := e.RetryAfter(); name == "failed" && (!ok || after != 1500*time.Millisecond) {
					t.Errorf("RetryAfter = %v, %v", after, ok)
				}
			})
		})
	}
}

func TestDirectInvokeReturnsTheAnswer(t *testing.T) {
	request := echo
	request.Options.Direct = true
	run := func(name, answer string, check func(*testing.T, client.Result, error)) {
		t.Run(name, func(t *testing.T) {
			scripted(t, bearer, "C invoke: tool.invoke {\"direct\":true}\n"+answer, func(t *testing.T, c *client.Client, _ *fake) {
				j, err := c.Invoke(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				result, err := j.Wait(t.Context())
				check(t, result, err)
			})
		})
	}
	run("result", `S: tool.result corr=invoke job=job_1 seq=1 {"value":5}`, func(t *testing.T, r client.Result, err error) {
		want(t, "error", err, nil)
		want(t, "value", string(r.Value), "5")
	})
	run("error", `S: tool.error corr=invoke job=job_1 seq=1 {"code":"UNKNOWN","message":"x"}`, func(t *testing.T, _ client.Result, err error) {
		want(t, "state", wantAs[*client.JobError](t, "outcome", err).State, arcp.StateFailed)
	})
	run("refused", `S: nack corr=invoke {"code":"INVALID_ARGUMENT","message":"x"}`, func(t *testing.T, _ client.Result, err error) {
		wantAs[*client.RemoteError](t, "outcome", err)
	})
}

// The same key submitted twice leads to one job with two handles. Each handle gets its
// acceptance and its terminal message; the events in between go to the first.
func TestIdempotentRetryReturnsTheSameJob(t *testing.T) {
	scripted(t, bearer, `
		C one: tool.invoke
		S: job.accepted corr=one job=job_1 seq=1 {"job_id":"job_1"}
		C two: tool.invoke
		S: job.accepted corr=two job=job_1 seq=2 {"job_id":"job_1"}
		S: job.started corr=one job=job_1 seq=3
		S: job.completed corr=one job=job_1 seq=4 {"value":1}
		S: job.completed corr=two job=job_1 seq=5 {"value":1}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		one, err := c.Invoke(t.Context(), echo)
		want(t, "first", err, nil)
		two, err := c.Invoke(t.Context(), echo)
		want(t, "second", err, nil)
		want(t, "same job", one.ID(), two.ID())
		types, _ := collect(t, one)
		want(t, "events of the first", types, []arcp.Type{arcp.JobAccepted, arcp.JobStarted, arcp.JobCompleted})
		types, _ = collect(t, two)
		want(t, "events of the second", types, []arcp.Type{arcp.JobAccepted, arcp.JobCompleted})
	})
}

func TestChildrenDoNotEndTheirParent(t *testing.T) {
	scripted(t, bearer, `
		C invoke: tool.invoke
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
		S: job.completed corr=invoke job=job_2 seq=2 {"value":"the child's"}
		S: job.completed corr=invoke job=job_1 seq=3 {"value":"own"}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		j, err := c.Invoke(t.Context(), echo)
		want(t, "error", err, nil)
		result, err := j.Wait(t.Context())
		want(t, "error", err, nil)
		want(t, "value", string(result.Value), `"own"`)
		for env := range c.Unsolicited(t.Context()) {
			want(t, "nobody follows the child", env.JobID, "job_2")
			break
		}
	})
}

func TestEventsReachTheirJobInAnyOrder(t *testing.T) {
	scripted(t, bearer, `
		C a: tool.invoke {"arguments":{"n":1}}
		C b: tool.invoke {"arguments":{"n":2}}
		S: job.accepted corr=b job=job_b seq=1 {"job_id":"job_b"}
		S: log job=job_a seq=2 {"level":"info","message":"before its acceptance and not correlated"}
		S: job.started corr=a job=job_a seq=3
		S: job.accepted corr=a job=job_a seq=4 {"job_id":"job_a"}
		S: job.completed corr=b job=job_b seq=5 {"value":2}
		S: job.completed corr=b job=job_b seq=6 {"value":"again"}
		S: job.completed corr=a job=job_a seq=7 {"value":1}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		jobs := make(chan *client.Job, 1)
		go func() {
			j, err := c.Invoke(t.Context(), client.InvokeParams{Tool: "demo.echo", Arguments: arcp.Raw(`{"n":1}`)})
			want(t, "a", err, nil)
			jobs <- j
		}()
		synctest.Wait() // a has been sent
		b, err := c.Invoke(t.Context(), client.InvokeParams{Tool: "demo.echo", Arguments: arcp.Raw(`{"n":2}`)})
		want(t, "b", err, nil)
		a := <-jobs
		want(t, "a's id", a.ID(), "job_a")
		want(t, "b's id", b.ID(), "job_b")
		ra, _ := a.Wait(t.Context())
		rb, _ := b.Wait(t.Context())
		want(t, "a's value", string(ra.Value), "1")
		want(t, "b's value is the first", string(rb.Value), "2")
		types, _ := collect(t, a)
		want(t, "a correlated event before the acceptance belongs to the job", types,
			[]arcp.Type{arcp.JobStarted, arcp.JobAccepted, arcp.JobCompleted})
		var stray []arcp.Type
		for env := range c.Unsolicited(t.Context()) {
			if stray = append(stray, env.Type); len(stray) == 2 {
				break
			}
		}
		want(t, "what belongs to nobody", stray, []arcp.Type{arcp.Log, arcp.JobCompleted})
	})
}

func TestFullEventBufferEndsTheIterator(t *testing.T) {
	opts := bearer
	opts.Limits.EventBuffer = 3
	scripted(t, opts, `
		C slow: tool.invoke
		S: job.accepted corr=slow job=job_1 seq=1 {"job_id":"job_1"}
		C other: tool.invoke
		S: job.accepted corr=other job=job_2 seq=2 {"job_id":"job_2"}
		S: log job=job_1 seq=3 {"level":"info","message":"1"}
		S: log job=job_1 seq=4 {"level":"info","message":"2"}
		S: log job=job_1 seq=5 {"level":"info","message":"3"}
		S: job.completed corr=other job=job_2 seq=6 {"value":2}
		S: job.completed corr=slow job=job_1 seq=7 {"value":1}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		slow, err := c.Invoke(t.Context(), echo)
		want(t, "slow", err, nil)
		other, err := c.Invoke(t.Context(), echo)
		want(t, "other", err, nil)
		result, err := slow.Wait(t.Context())
		want(t, "Wait works for a job whose events are not read", err, nil)
		want(t, "value", string(result.Value), "1")
		_, err = collect(t, slow)
		wantIs(t, "its iterator says that events are missing", err, client.ErrEventBufferFull)
		types, err := collect(t, other)
		want(t, "another job does not notice", err, nil)
		want(t, "its events", types, []arcp.Type{arcp.JobAccepted, arcp.JobCompleted})
	})
}

func TestDiscardedEventsKeepTheOutcome(t *testing.T) {
	scripted(t, bearer, `
		C invoke: tool.invoke
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
		S: job.completed corr=invoke job=job_1 seq=2 {"value":1}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		request := echo
		request.DiscardEvents = true
		j, err := c.Invoke(t.Context(), request)
		want(t, "error", err, nil)
		_, err = j.Wait(t.Context())
		want(t, "outcome", err, nil)
		types, err := collect(t, j)
		want(t, "nothing was kept", len(types), 0)
		want(t, "and that is no error", err, nil)
	})
}

func TestEventsContinueAfterLastMessage(t *testing.T) {
	scripted(t, bearer, `
		C invoke: tool.invoke
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
		S: job.started corr=invoke job=job_1 seq=2
		wait 1m
		S: job.completed corr=invoke job=job_1 seq=3 {"value":1}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		j, err := c.Invoke(t.Context(), echo)
		want(t, "error", err, nil)
		for env := range j.Events(t.Context()) {
			want(t, "first", env.Type, arcp.JobAccepted)
			break
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var got []string
		for env, err := range j.Events(ctx) {
			got = append(got, fmt.Sprint(env.Type, " ", err))
		}
		want(t, "until the context ends", strings.Join(got, ", "), "job.started <nil>,  "+context.DeadlineExceeded.Error())
		types, err := collect(t, j)
		want(t, "error", err, nil)
		want(t, "the rest", types, []arcp.Type{arcp.JobCompleted})
	})
}

func TestSubscribeJobReplaysHistory(t *testing.T) {
	scripted(t, bearer, `
		C sub: job.subscribe {"job_id":"job_1","from_event_seq":3,"history":true}
		S: job.subscribed corr=sub job=job_1 {"job_id":"job_1","current_status":"running","agent":"a@1","subscribed_from":5,"replayed":true}
		S: job.progress job=job_1 seq=1 {"current":1}
		S: job.completed job=job_1 seq=2 {"value":1}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		j, err := c.SubscribeJob(t.Context(), client.SubscribeJobParams{JobID: "job_1", After: new(uint64(3)), History: true})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "from", j.Subscribed().SubscribedFrom, 5)
		types, err := collect(t, j)
		want(t, "error", err, nil)
		want(t, "events", types, []arcp.Type{arcp.JobProgress, arcp.JobCompleted})
		_, err = j.Wait(t.Context())
		want(t, "outcome", err, nil)
		want(t, "releasing an ended job says nothing", j.Release(), nil)
	})
}

func TestSubscriptionEndsWithThePermission(t *testing.T) {
	scripted(t, bearer, `
		C sub: job.subscribe {"job_id":"job_1"}
		S: job.subscribed corr=sub job=job_1 {"job_id":"job_1","current_status":"running","agent":"a@1","subscribed_from":5}
		S: job.progress job=job_1 seq=1 {"current":1}
		S: nack job=job_1 {"code":"PERMISSION_DENIED","message":"the principal may not be observed any more"}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		j, err := c.SubscribeJob(t.Context(), client.SubscribeJobParams{JobID: "job_1"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = j.Wait(t.Context())
		refused, ok := errors.AsType[*client.RemoteError](err)
		if !ok || refused.Code != arcp.CodePermissionDenied {
			t.Errorf("the outcome is %v, want PERMISSION_DENIED", err)
		}
	})
}

func TestSubscribeRefusedOrLate(t *testing.T) {
	scripted(t, bearer, `
		C one: job.subscribe
		S: nack corr=one {"code":"JOB_NOT_FOUND","message":"no such job"}
		C two: job.subscribe
		S: job.subscribed corr=two job=job_2 {"job_id":"job_2","current_status":"completed","agent":"a","subscribed_from":5}
		C three: job.subscribe {"job_id":"job_3"}
		S: job.subscribed corr=three job=job_3 {"job_id":"job_3","current_status":"running","agent":"a","subscribed_from":0}
		C four: job.unsubscribe {"job_id":"job_3"}
	`, func(t *testing.T, c *client.Client, f *fake) {
		_, err := c.SubscribeJob(t.Context(), client.SubscribeJobParams{JobID: "job_1"})
		want(t, "code", wantAs[*client.RemoteError](t, "refused", err).Code, arcp.CodeJobNotFound)
		_, open := c.Job("job_1")
		want(t, "nothing is left of it", open, false)

		j, err := c.SubscribeJob(t.Context(), client.SubscribeJobParams{JobID: "job_2"})
		want(t, "late", err, nil)
		_, err = j.Wait(t.Context())
		wantIs(t, "the outcome will not come", err, client.ErrOutcomeMissed)

		j, err = c.SubscribeJob(t.Context(), client.SubscribeJobParams{JobID: "job_3"})
		want(t, "running", err, nil)
		want(t, "release", j.Release(), nil)
		_, err = j.Wait(t.Context())
		wantIs(t, "Wait of a released job", err, client.ErrReleased)
		synctest.Wait()
		want(t, "the subscription is given up", f.received[len(f.received)-1].Type, arcp.JobUnsubscribe)
	})
}

func TestSubscribersSeeWhatTheSubmitterSees(t *testing.T) {
	scripted(t, bearer, `
		C invoke: tool.invoke
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
		C sub: job.subscribe
		S: job.subscribed corr=sub job=job_1 {"job_id":"job_1","current_status":"running","agent":"a","subscribed_from":1}
		S: job.completed corr=invoke job=job_1 seq=2 {"value":1}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		own, err := c.Invoke(t.Context(), echo)
		want(t, "invoke", err, nil)
		other, err := c.SubscribeJob(t.Context(), client.SubscribeJobParams{JobID: "job_1"})
		want(t, "subscribe", err, nil)
		for name, j := range map[string]*client.Job{"submitter": own, "subscriber": other} {
			result, err := j.Wait(t.Context())
			want(t, name, err, nil)
			want(t, name, string(result.Value), "1")
		}
	})
}

func TestFeedReadsEventsOfOtherSessions(t *testing.T) {
	const inner = `{"arcp":"1.1","id":"msg_x","timestamp":"2026-05-09T13:00:00Z","type":"job.completed","session_id":"sess_2","job_id":"job_9","payload":{"value":1}}`
	scripted(t, bearer, `
		C sub: subscribe {"filter":{"types":["job.completed"]},"since":{"after_message_id":"msg_1"}}
		S: subscribe.accepted corr=sub sub=sub_1 {"subscription_id":"sub_1"}
		S: subscribe.event sub=sub_1 {"event":`+inner+`}
		S: subscribe.event sub=sub_1 {"event":{"type":"broken"}}
		S: subscribe.closed sub=sub_1 {"subscription_id":"sub_1","code":"BACKPRESSURE_OVERFLOW","reason":"too slow"}
		C again: subscribe
		S: nack corr=again {"code":"PERMISSION_DENIED","message":"not yours"}
		C third: subscribe
		S: subscribe.accepted corr=third sub=sub_3 {"subscription_id":"sub_3"}
		C bye: unsubscribe {"subscription_id":"sub_3"}
	`, func(t *testing.T, c *client.Client, f *fake) {
		feed, err := c.SubscribeFeed(t.Context(), client.SubscribeFeedParams{
			Filter: &arcp.EventFilter{Types: []arcp.Type{arcp.JobCompleted}}, Since: &arcp.Since{AfterMessageID: "msg_1"}})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "id", feed.ID(), "sub_1")
		var jobs []arcp.JobID
		for env, err := range feed.Events(t.Context()) {
			if err != nil {
				want(t, "why it ended", err.Error(), "subscribe.closed: BACKPRESSURE_OVERFLOW: too slow")
				break
			}
			jobs = append(jobs, env.JobID)
		}
		want(t, "original events, without what cannot be read", jobs, []arcp.JobID{"job_9"})

		_, err = c.SubscribeFeed(t.Context(), client.SubscribeFeedParams{})
		wantAs[*client.RemoteError](t, "refused", err)

		feed, err = c.SubscribeFeed(t.Context(), client.SubscribeFeedParams{})
		want(t, "third", err, nil)
		want(t, "close", feed.Close(), nil)
		want(t, "close twice", feed.Close(), nil)
		for range feed.Events(t.Context()) {
			t.Error("a closed feed delivers nothing")
		}
		synctest.Wait()
		want(t, "the feed is given up", f.received[len(f.received)-1].Type, arcp.Unsubscribe)
	})
}
