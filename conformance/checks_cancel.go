package conformance

import (
	"context"
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

func cancelRunning(_ context.Context, t *T) {
	c := t.Open()
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := c.AwaitStarted(submit)
	id := c.Cancel(job, 5000)
	accepted := c.Expect("a cancel is answered before its effect", arcp.CancelAccepted, id)
	want(t, "the answer names its target", payload[arcp.CancelAcceptedPayload](t, accepted).TargetID, string(job))
	end := c.Expect("the job ends", arcp.JobCancelled, submit)
	want(t, "the end is the job's", end.JobID, job)
	if code := payload[arcp.JobCancelledPayload](t, end).Code; code != "" {
		want(t, "a job that stops when asked is not aborted", code, arcp.CodeCancelled)
	}
	c.ExpectNothing("a job ends once")
}

func cancelAtOnce(_ context.Context, t *T) {
	c := t.Open()
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	id := c.Cancel(c.AwaitAccepted(submit), 5000)
	c.Await("a cancel is answered before its effect", arcp.CancelAccepted, id)
	end := c.Follow(submit).End()
	t.Want("the job ends", end.Type == arcp.JobCancelled, "got %s", end)
}

func cancelReason(_ context.Context, t *T) {
	c := t.Open()
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	c.Cancel(c.AwaitStarted(submit), 5000)
	end := c.Follow(submit).End()
	t.Want("the job is cancelled", end.Type == arcp.JobCancelled, "got %s", end)
	want(t, "who follows the job learns why", payload[arcp.JobCancelledPayload](t, end).Reason, "conformance")
}

func cancelDefaults(_ context.Context, t *T) {
	c := t.Open()
	for _, extra := range []string{``, `,"reason":null,"deadline_ms":null`, `,"deadline_ms":0`, `,"deadline_ms":9999999999`} {
		submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
		job := c.AwaitStarted(submit)
		id := c.Send(arcp.Cancel, arcp.Raw(fmt.Sprintf(`{"target":"job","target_id":%q%s}`, job, extra)))
		c.Await("a cancel needs only its target"+extra, arcp.CancelAccepted, id)
		end := c.Follow(submit).End()
		t.Want("the job ends", end.Type == arcp.JobCancelled, "got %s", end)
	}
}

// ExpectCancelRefused wants a cancel to be refused for the reason, which may be
// explained after it.
func (c *Conn) ExpectCancelRefused(why string, id arcp.MessageID, target, reason string) {
	f := c.Expect(why, arcp.CancelRefused, id)
	p := payload[arcp.CancelRefusedPayload](c.t, f)
	want(c.t, "the refusal names its target", p.TargetID, target)
	c.t.Want(why, strings.HasPrefix(p.Reason, reason), "got reason %q, want %q", p.Reason, reason)
}

func cancelFinished(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.echo", map[string]any{})
	for range 2 {
		id := c.Cancel(job.ID, 5000)
		c.ExpectCancelRefused("what has ended cannot be cancelled", id, string(job.ID), "already_terminal")
	}
	c.ExpectNothing("the end is not told again")
}

func cancelUnknown(_ context.Context, t *T) {
	c := t.Open()
	const nobody = "job_00000000000000000000000000"
	c.ExpectCancelRefused("what is not there cannot be cancelled", c.Cancel(nobody, 5000), nobody, "not_found")
}

func cancelMalformed(_ context.Context, t *T) {
	c := t.Open()
	for _, p := range []string{`{"target":"job","target_id":"nope"}`, `{"target":"job","target_id":""}`,
		`{"target":"job"}`, `{"target":"planet","target_id":"job_1"}`, `{"target_id":"job_1"}`, `{}`} {
		id := c.Send(arcp.Cancel, arcp.Raw(p))
		f := c.event("a cancel of nothing is refused: " + p)
		if f.Type != arcp.CancelRefused {
			c.match("a cancel of nothing is refused: "+p, f, arcp.Nack, id)
			t.wantCode("the cancel is at fault", f, arcp.CodeInvalidArgument, arcp.CodeInvalidRequest)
		}
		want(t, "the refusal is correlated", f.CorrelationID, id)
	}
}

func cancelAgain(_ context.Context, t *T) {
	c := t.Open()
	submit := c.Submit("demo.stubborn", map[string]any{"ms": 60_000})
	job := c.AwaitStarted(submit)
	for _, deadline := range []uint64{60_000, 60_000, 50} {
		id := c.Cancel(job, deadline)
		c.Expect("a cancel on top of a cancel is accepted", arcp.CancelAccepted, id)
	}
	end := c.Expect("the nearest deadline counts", arcp.JobCancelled, submit)
	want(t, "the job was stopped by force", payload[arcp.JobCancelledPayload](t, end).Code, arcp.CodeAborted)
	c.ExpectNothing("a job ends once")
}

func cancelDeadline(_ context.Context, t *T) {
	c := t.Open()
	submit := c.Submit("demo.stubborn", map[string]any{"ms": 60_000})
	id := c.Cancel(c.AwaitStarted(submit), 100)
	c.Expect("a cancel is answered before its effect", arcp.CancelAccepted, id)
	end := c.Expect("the deadline is kept whatever the tool does", arcp.JobCancelled, submit)
	want(t, "the job was stopped by force", payload[arcp.JobCancelledPayload](t, end).Code, arcp.CodeAborted)
}

// cancelLateOutput stops a job before it returns. How long that has to take depends
// on how slow the server is.
func cancelLateOutput(_ context.Context, t *T) {
	c := t.Open()
	for ms := 300; ; ms *= 5 {
		submit := c.Submit("demo.stubborn", map[string]any{"ms": ms})
		c.Cancel(c.AwaitStarted(submit), 50)
		end := c.Follow(submit).End()
		if end.Type == arcp.JobCompleted && ms < 30_000 {
			continue // it had returned before
		}
		t.Want("the deadline is kept", end.Type == arcp.JobCancelled, "got %s", end)
		// A clock on the same session: it ends after demo.stubborn has returned, and
		// the validator wants nothing of the stopped job in between.
		c.passes(ms + 200)
		if entry := c.entry(end.JobID, c.Session); entry != nil {
			want(t, "the outcome stays", entry.Status, string(arcp.StateCancelled))
		}
		return
	}
}

func cancelOtherSession(_ context.Context, t *T) {
	owner, other := t.Open(), t.Open()
	submit := owner.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := owner.AwaitStarted(submit)
	id := other.Cancel(job, 5000)
	other.Expect("a principal may cancel its jobs from anywhere", arcp.CancelAccepted, id)
	owner.Expect("the submitter learns of it", arcp.JobCancelled, submit)
	other.ExpectNothing("who cancels does not follow the job")
}

func cancelOtherPrincipal(_ context.Context, t *T) {
	owner, stranger := t.Open(), t.Open(as(t.target.OtherToken))
	submit := owner.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := owner.AwaitStarted(submit)
	stranger.ExpectCancelRefused("what one may not see is not there", stranger.Cancel(job, 5000), string(job), "not_found")
	owner.ExpectNothing("the job is not touched")
	owner.Cancel(job, 5000)
	owner.Follow(submit)
}

func cancelRace(_ context.Context, t *T) {
	c := t.Open()
	for range 50 {
		submit := c.Submit("demo.echo", map[string]any{})
		id := c.Cancel(c.AwaitAccepted(submit), 5000)
		var receipt, end *Frame
		for receipt == nil || end == nil {
			f := c.event("a cancel is answered and a job ends")
			switch {
			case f.CorrelationID == id:
				receipt = f
			case f.CorrelationID == submit && f.Type.Terminal():
				end = f
			}
		}
		cancelled := end.Type == arcp.JobCancelled
		t.Want("the receipt tells who won", cancelled == (receipt.Type == arcp.CancelAccepted), "got %s and %s", receipt, end)
	}
}
