package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// people implements handlers that answer questions and record them.
type people struct {
	mu    sync.Mutex
	asked []string
	ended []string // and withdrawn before the answer
}

func (p *people) note(list *[]string, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*list = append(*list, fmt.Sprintf(format, args...))
}

func (p *people) heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// slow answers only after its context has ended.
func (p *people) slow(ctx context.Context, q client.InputRequest) (any, error) {
	p.note(&p.asked, "%s", q.ID)
	<-ctx.Done()
	p.note(&p.ended, "%s: %v", q.ID, context.Cause(ctx))
	return "too late", nil
}

func handling(h client.Handlers) client.Options {
	opts := bearer
	opts.Handlers = h
	return opts
}

const inputQuestion = `S: human.input.request id=msg_q job=job_1 seq=1 {"prompt":"Branch?","expires_at":"2030-01-01T00:00:00Z"}
`

func TestHumanInputIsOffered(t *testing.T) {
	input := func(context.Context, client.InputRequest) (any, error) { return nil, nil }
	choice := func(context.Context, client.ChoiceRequest) (string, error) { return "", nil }
	permission := func(context.Context, client.PermissionRequest) (client.PermissionAnswer, error) {
		return client.PermissionAnswer{}, nil
	}
	off := handling(client.Handlers{Input: input})
	off.Capabilities.Flags = map[arcp.Feature]bool{arcp.FeatureHumanInput: false}
	for _, c := range []struct {
		why     string
		opts    client.Options
		payload string
	}{
		{"there is no handler", bearer, `{"capabilities":{"human_input":null}}`},
		{"values are given", handling(client.Handlers{Input: input}), `{"capabilities":{"human_input":true,"refresh":true}}`},
		{"choices are made", handling(client.Handlers{Choice: choice}), `{"capabilities":{"human_input":true}}`},
		{"permissions are asked of the submitter in any case", handling(client.Handlers{Permission: permission}), `{"capabilities":{"human_input":null}}`},
		{"the caller knows better", off, `{"capabilities":{"human_input":false}}`},
	} {
		t.Run(c.why, func(t *testing.T) {
			open(t, c.opts, "C open: session.open "+c.payload+"\nS: session.accepted corr=open "+accepted, func(t *testing.T, _ *client.Client, err error) {
				want(t, c.why, err, nil)
			})
		})
	}
}

func TestHandlersAnswerQuestions(t *testing.T) {
	h := client.Handlers{
		By: "ann",
		Input: func(_ context.Context, q client.InputRequest) (any, error) {
			return map[string]string{"said": q.Prompt, "job": string(q.JobID)}, nil
		},
		Choice: func(_ context.Context, q client.ChoiceRequest) (string, error) { return q.Options[1].ID, nil },
		Permission: func(_ context.Context, q client.PermissionRequest) (client.PermissionAnswer, error) {
			return client.PermissionAnswer{Grant: q.Permission == "p", Resource: "r/1", For: 1500 * time.Millisecond}, nil
		},
	}
	scripted(t, handling(h), inputQuestion+`
		C input: human.input.response {"value":{"said":"Branch?","job":"job_1"},"responded_by":"ann"}
		S: ack corr=input
		S: human.choice.request id=msg_c job=job_1 seq=2 {"prompt":"Well?","options":[{"id":"a","label":"A"},{"id":"b","label":"B"}],"expires_at":"2030-01-01T00:00:00Z"}
		C choice: human.choice.response {"choice_id":"b","responded_by":"ann"}
		S: ack corr=choice
		S: permission.request id=msg_p job=job_1 seq=3 {"permission":"p","resource":"r/*","operation":"o"}
		C grant: permission.grant {"permission":"p","resource":"r/1","operation":"o","lease_seconds":2}
		S: lease.granted corr=grant job=job_1 seq=4 {"lease_id":"lease_1","permission":"p","resource":"r/1","operation":"o","expires_at":"2030-01-01T00:00:00Z"}
		S: permission.request id=msg_d job=job_1 seq=5 {"permission":"x","resource":"r","operation":"o"}
		C deny: permission.deny {"permission":"x","reason":"denied"}
		S: ack corr=deny
	`, func(t *testing.T, _ *client.Client, f *fake) {
		synctest.Wait()
		var correlated []arcp.MessageID
		for _, env := range f.received[1:] {
			correlated = append(correlated, env.CorrelationID)
		}
		want(t, "answers name their questions", correlated, []arcp.MessageID{"msg_q", "msg_c", "msg_p", "msg_d"})
	})
}

// The duration of a grant is the requested duration, or an hour.
func TestGrantLastsAsRequestedOrAnHour(t *testing.T) {
	yes := func(context.Context, client.PermissionRequest) (client.PermissionAnswer, error) {
		return client.PermissionAnswer{Grant: true}, nil
	}
	for seconds, granted := range map[string]string{`,"requested_lease_seconds":60`: "60", "": "3600"} {
		scripted(t, handling(client.Handlers{Permission: yes}), `
			S: permission.request id=msg_p job=job_1 seq=1 {"permission":"p","resource":"r","operation":"o"`+seconds+`}
			C grant: permission.grant {"resource":"r","lease_seconds":`+granted+`}
		`, func(t *testing.T, _ *client.Client, _ *fake) { synctest.Wait() })
	}
}

// A question that a handler answers is also an event of its job.
func TestQuestionsAreEventsToo(t *testing.T) {
	h := client.Handlers{Input: func(context.Context, client.InputRequest) (any, error) { return 1, nil }}
	scripted(t, handling(h), `
		C invoke: tool.invoke
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
		S: human.input.request id=msg_q corr=invoke job=job_1 seq=2 {"prompt":"Branch?","expires_at":"2030-01-01T00:00:00Z"}
		C input: human.input.response {"value":1}
		S: ack corr=input
		S: human.input.request id=msg_else job=job_2 seq=3 {"prompt":"Branch?","expires_at":"2030-01-01T00:00:00Z"}
		C other: human.input.response {"value":1}
		S: nack corr=other {"code":"FAILED_PRECONDITION","message":"already resolved"}
		S: job.completed corr=invoke job=job_1 seq=4 {"value":7}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		j, err := c.Invoke(t.Context(), echo)
		want(t, "invoke", err, nil)
		types, err := collect(t, j)
		want(t, "events end", err, nil)
		want(t, "events", types, []arcp.Type{arcp.JobAccepted, arcp.HumanInputRequest, arcp.JobCompleted})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for env, err := range c.Unsolicited(ctx) {
			wantIs(t, "that of another job is not unsolicited: "+string(env.Type), err, context.DeadlineExceeded)
		}
	})
}

// After an invalid answer the handler is called again with the reason.
func TestInvalidAnswerCallsTheHandlerAgain(t *testing.T) {
	answers := []any{"", 7, "main"}
	var refusals []string
	h := client.Handlers{Input: func(_ context.Context, q client.InputRequest) (any, error) {
		if q.Refused != nil {
			refusals = append(refusals, q.Refused.Message)
		}
		next := answers[0]
		answers = answers[1:]
		return next, nil
	}}
	scripted(t, handling(h), inputQuestion+`
		C a: human.input.response {"value":""}
		S: nack corr=a {"code":"INVALID_ARGUMENT","message":"too short"}
		C b: human.input.response {"value":7}
		S: nack corr=b {"code":"INVALID_ARGUMENT","message":"not a text"}
		C c: human.input.response {"value":"main"}
		S: ack corr=c
	`, func(t *testing.T, _ *client.Client, _ *fake) {
		synctest.Wait()
		want(t, "refusals", refusals, []string{"too short", "not a text"})
	})
}

func TestInvalidAnswersAreLimited(t *testing.T) {
	p := new(people)
	wrong := client.Handlers{Input: func(_ context.Context, q client.InputRequest) (any, error) {
		p.note(&p.asked, "%s", q.ID)
		return 0, nil
	}}
	var script strings.Builder
	script.WriteString(inputQuestion)
	for i := range client.MaxHandlerCalls {
		fmt.Fprintf(&script, "C a%d: human.input.response\nS: nack corr=a%d {\"code\":\"INVALID_ARGUMENT\",\"message\":\"no\"}\n", i, i)
	}
	scripted(t, handling(wrong), script.String(), func(t *testing.T, _ *client.Client, f *fake) {
		synctest.Wait()
		want(t, "the handler is not called for ever", len(p.heard()), client.MaxHandlerCalls)
		want(t, "nor is the runtime asked", len(f.types()), 1+client.MaxHandlerCalls)
	})
}

func TestFailedHandlerSendsNoAnswer(t *testing.T) {
	var logged []any
	h := client.Handlers{Input: func(context.Context, client.InputRequest) (any, error) { return nil, errors.New("nobody is here") }}
	opts := handling(h)
	opts.Log = func(_ string, args ...any) { logged = append(logged, args...) }
	scripted(t, opts, inputQuestion, func(t *testing.T, _ *client.Client, f *fake) {
		synctest.Wait()
		want(t, "nothing is sent", f.types(), []arcp.Type{arcp.SessionOpen})
		want(t, "it is logged", fmt.Sprint(logged[len(logged)-1]), "no answer: nobody is here")
	})
}

// A question that is resolved elsewhere cancels the context of its handler, whose answer is
// then dropped.
func TestQuestionIsWithdrawn(t *testing.T) {
	for _, c := range []struct{ why, event, cause string }{
		{"somebody else has answered", `S: human.input.cancelled corr=msg_q job=job_1 seq=2 {"code":"CANCELLED","reason":"answered"}`,
			"human.input.cancelled: CANCELLED: answered"},
		{"the job has ended", `S: job.failed job=job_1 seq=2 {"code":"ABORTED","message":"gone"}`, "the job has ended"},
		{"the connection is lost", "abort", "context canceled"},
	} {
		t.Run(c.why, func(t *testing.T) {
			p := new(people)
			scripted(t, handling(client.Handlers{Input: p.slow}), inputQuestion+"wait 1s\n"+c.event, func(t *testing.T, _ *client.Client, f *fake) {
				time.Sleep(2 * time.Second)
				want(t, "asked", p.heard(), []string{"msg_q"})
				want(t, "ended", p.ended, []string{"msg_q: " + c.cause})
				want(t, "sent", f.types(), []arcp.Type{arcp.SessionOpen})
			})
		})
	}
}

func TestCloseEndsHandlers(t *testing.T) {
	p := new(people)
	scripted(t, handling(client.Handlers{Input: p.slow}), inputQuestion, func(t *testing.T, c *client.Client, _ *fake) {
		synctest.Wait()
		want(t, "close", c.Close(t.Context(), ""), nil)
		want(t, "the handler has returned", len(p.ended), 1)
	})
}

// At most Limits.Handlers handlers run at the same time; other questions wait. A question that is
// resolved while it waits is not asked.
func TestQuestionsWaitForAHandler(t *testing.T) {
	p := new(people)
	opts := handling(client.Handlers{Input: p.slow})
	opts.Limits.Handlers = 2
	var script strings.Builder
	for i := range 4 {
		fmt.Fprintf(&script, "S: human.input.request id=msg_%c job=job_1 seq=%d {\"prompt\":\"Well?\",\"expires_at\":\"2030-01-01T00:00:00Z\"}\n", 'a'+i, i+1)
	}
	scripted(t, opts, script.String()+`
		wait 1s
		S: human.input.cancelled corr=msg_c job=job_1 seq=5 {"code":"CANCELLED","reason":"answered"}
		S: human.input.cancelled corr=msg_a job=job_1 seq=6 {"code":"CANCELLED","reason":"answered"}
	`, func(t *testing.T, _ *client.Client, _ *fake) {
		synctest.Wait()
		want(t, "two at a time", len(p.heard()), 2)
		time.Sleep(2 * time.Second)
		want(t, "then the one that was not withdrawn", p.heard()[2:], []string{"msg_d"})
	})
}

// A repeated question is not asked again while its handler runs or after it was answered. A question
// without an answer is asked again.
func TestRepeatedQuestionIsAskedOnce(t *testing.T) {
	again := func(seq int, id string) string {
		return fmt.Sprintf("S: human.input.request id=%s job=job_1 seq=%d {\"prompt\":\"Well?\",\"expires_at\":\"2030-01-01T00:00:00Z\"}\n", id, seq)
	}
	for _, c := range []struct {
		why   string
		fails bool
		want  []string
	}{
		{"answered", false, []string{"msg_q"}},
		{"not answered", true, []string{"msg_q", "msg_q"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			p := new(people)
			h := client.Handlers{Input: func(_ context.Context, q client.InputRequest) (any, error) {
				p.note(&p.asked, "%s", q.ID)
				time.Sleep(time.Second)
				if c.fails {
					return nil, errors.New("no idea")
				}
				return 1, nil
			}}
			answer := "C a: human.input.response\nS: ack corr=a\n"
			if c.fails {
				answer = ""
			}
			scripted(t, handling(h), again(1, "msg_q")+again(2, "msg_q")+"wait 100ms\n"+answer+"wait 5s\n"+again(3, "msg_q"), func(t *testing.T, _ *client.Client, _ *fake) {
				time.Sleep(10 * time.Second)
				want(t, c.why, p.heard(), c.want)
			})
		})
	}
}

// A question is not asked again after a reconnect: its answer is sent over the next
// connection, and repeated until it is acknowledged.
func TestAnswerAfterAReconnect(t *testing.T) {
	p := new(people)
	h := client.Handlers{Input: func(ctx context.Context, q client.InputRequest) (any, error) {
		p.note(&p.asked, "%s", q.ID)
		select {
		case <-time.After(10 * time.Second):
			return "main", nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}
	connected(t, handling(h), []string{
		resumable + inputQuestion + "wait 1s\nabort",
		resumed("rt_1", 1, "rt_2") + "C answer: human.input.response {\"value\":\"main\"}\nabort",
		resumed("rt_2", 1, "rt_3") + "C answer: human.input.response {\"value\":\"main\"}\nS: ack corr=answer\n",
	}, func(t *testing.T, _ *client.Client, d *dialer, _ *changes) {
		time.Sleep(time.Minute)
		want(t, "asked", p.heard(), []string{"msg_q"})
		want(t, "connections", len(d.times()), 3)
	})
}

func TestRespondReturnsTheRefusal(t *testing.T) {
	scripted(t, bearer, `
		C a: human.input.response {"value":{"x":1},"responded_by":"arcp-go-client"}
		S: nack corr=a {"code":"INVALID_ARGUMENT","message":"no"}
		C b: human.choice.response {"choice_id":"yes"}
		S: ack corr=b
		C c: permission.deny {"permission":"p","reason":"because"}
		S: ack corr=c
		C d: permission.grant {"permission":"p","resource":"r","operation":"o","lease_seconds":5}
		S: lease.granted corr=d job=job_1 seq=1 {"lease_id":"lease_1","permission":"p","resource":"r","operation":"o","expires_at":"2030-01-01T00:00:00Z"}
		C e: lease.refresh {"lease_id":"lease_1","additional_seconds":90}
		S: lease.extended corr=e job=job_1 seq=2 {"lease_id":"lease_1","expires_at":"2030-01-01T00:01:30Z"}
		C f: lease.revoked {"lease_id":"lease_1","reason":"enough"}
		S: lease.revoked corr=f job=job_1 seq=3 {"lease_id":"lease_1","reason":"enough"}
		C g: interrupt {"target":"job","target_id":"job_1","prompt":"Go on?"}
		S: ack corr=g
		C h: interrupt
		S: nack corr=h {"code":"FAILED_PRECONDITION","message":"demo.echo cannot be interrupted"}
	`, func(t *testing.T, c *client.Client, f *fake) {
		ctx := t.Context()
		invalid := wantAs[*client.RemoteError](t, "a refusal", c.RespondInput(ctx, "msg_i", map[string]int{"x": 1}))
		want(t, "its code", invalid.Code, arcp.CodeInvalidArgument)
		want(t, "choice", c.RespondChoice(ctx, "msg_c", "yes"), nil)
		want(t, "deny", c.Deny(ctx, "msg_p", client.DenyParams{Permission: "p", Reason: "because"}), nil)
		lease, err := c.Grant(ctx, "msg_p", client.GrantParams{Permission: "p", Resource: "r", Operation: "o", For: 5 * time.Second})
		want(t, "grant", err, nil)
		want(t, "lease", lease.LeaseID, "lease_1")
		ends, err := c.ExtendLease(ctx, lease.LeaseID, 90*time.Second)
		want(t, "extend", err, nil)
		want(t, "it ends later", ends.Sub(lease.ExpiresAt), 90*time.Second)
		want(t, "revoke", c.RevokeLease(ctx, lease.LeaseID, "enough"), nil)
		want(t, "interrupt", c.Interrupt(ctx, "job_1", "Go on?"), nil)
		refused := wantAs[*client.RemoteError](t, "no interrupt", c.Interrupt(ctx, "job_1", "Go on?"))
		want(t, "why", refused.Code, arcp.CodeFailedPrecondition)
		want(t, "answers name their questions", f.received[4].CorrelationID, "msg_p")
	})
}

// A message that answers a call and names a job is also delivered to the job's handle.
func TestAnswersAreEventsToo(t *testing.T) {
	scripted(t, bearer, `
		C invoke: tool.invoke
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
		C grant: permission.grant
		S: lease.granted corr=grant job=job_1 seq=2 {"lease_id":"lease_1","permission":"p","resource":"r","operation":"o","expires_at":"2030-01-01T00:00:00Z"}
		S: job.completed corr=invoke job=job_1 seq=3 {"value":7}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		j, err := c.Invoke(t.Context(), echo)
		want(t, "invoke", err, nil)
		_, err = c.Grant(t.Context(), "msg_p", client.GrantParams{Permission: "p", Resource: "r", Operation: "o", For: time.Second})
		want(t, "grant", err, nil)
		types, err := collect(t, j)
		want(t, "events end", err, nil)
		want(t, "events", types, []arcp.Type{arcp.JobAccepted, arcp.LeaseGranted, arcp.JobCompleted})
	})
}

func TestElevateReturnsTheDecision(t *testing.T) {
	ask := `C elevate: permission.request {"permission":"trust.elevate.privileged","resource":"session","operation":"elevate","reason":"deploy","requested_lease_seconds":60}
		wait 3h
	`
	for _, c := range []struct{ why, answer, err string }{
		{"granted", `S: lease.granted corr=elevate seq=1 {"lease_id":"lease_1","permission":"trust.elevate.privileged","resource":"session","operation":"elevate","expires_at":"2030-01-01T00:00:00Z"}`, "<nil>"},
		{"denied", `S: permission.deny corr=elevate {"permission":"trust.elevate.privileged","reason":"not today"}`, "elevate: permission.deny: PERMISSION_DENIED: not today"},
		{"refused", `S: nack corr=elevate {"code":"FAILED_PRECONDITION","message":"trusted already"}`, "permission.request: nack: FAILED_PRECONDITION: trusted already"},
	} {
		t.Run(c.why, func(t *testing.T) {
			scripted(t, bearer, ask+c.answer, func(t *testing.T, cl *client.Client, _ *fake) {
				lease, err := cl.Elevate(t.Context(), client.ElevateParams{Level: "privileged", Reason: "deploy", For: time.Minute})
				want(t, c.why, fmt.Sprint(err), c.err)
				want(t, "lease", lease.LeaseID != "", err == nil)
			})
		})
	}
}

// After a reconnect the client repeats the request under the same id, and the runtime does not
// ask the approver twice.
func TestElevateOverAReconnect(t *testing.T) {
	connected(t, bearer, []string{
		resumable + "C elevate: permission.request\nabort",
		resumed("rt_1", 0, "rt_2") + `
		C elevate: permission.request
		wait 1h
		S: lease.granted corr=elevate seq=1 {"lease_id":"lease_1","permission":"trust.elevate.trusted","resource":"session","operation":"elevate","expires_at":"2030-01-01T00:00:00Z"}`,
	}, func(t *testing.T, c *client.Client, d *dialer, _ *changes) {
		lease, err := c.Elevate(t.Context(), client.ElevateParams{Level: "trusted"})
		want(t, "elevate", err, nil)
		want(t, "lease", lease.LeaseID, "lease_1")
		want(t, "it is asked again", d.fakes[1].types(), []arcp.Type{arcp.SessionResume, arcp.PermissionRequest})
		want(t, "under the same id", d.fakes[1].received[1].ID, d.fakes[0].received[len(d.fakes[0].received)-1].ID)
	})
}
