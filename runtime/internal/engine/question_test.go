package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

func leaseFrom(t *testing.T, raw string) *lease.Lease {
	t.Helper()
	l, err := lease.Decode(arcp.Raw(raw))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fakeQuestions sends questions to a fixed list of actors.
type fakeQuestions struct {
	mu      sync.Mutex
	people  []approval.Actor
	pending map[string]approval.Row
	ids     map[string]arcp.MessageID
	closed  map[string]int
}

func newQuestions(people ...approval.Actor) *fakeQuestions {
	return &fakeQuestions{people: people, pending: map[string]approval.Row{}, ids: map[string]arcp.MessageID{}, closed: map[string]int{}}
}

func person(session string) approval.Actor {
	return approval.Actor{Principal: "alice", Session: arcp.SessionID(session), HumanInput: true, Approver: true}
}

func (fq *fakeQuestions) Audience(q *approval.Row, now time.Time) (ids []arcp.SessionID) {
	for i := range fq.people {
		if q.IsFor(&fq.people[i], now) {
			ids = append(ids, fq.people[i].Session)
		}
	}
	return ids
}

func (fq *fakeQuestions) Asked(q approval.Row, request arcp.MessageID) {
	fq.mu.Lock()
	defer fq.mu.Unlock()
	fq.pending[q.ID], fq.ids[q.ID] = q, request
}

func (fq *fakeQuestions) Closed(q approval.Row) {
	fq.mu.Lock()
	defer fq.mu.Unlock()
	delete(fq.pending, q.ID)
	fq.closed[q.ID]++
}

// only returns the pending question. It fails the test unless there is exactly one.
func (fq *fakeQuestions) only(t *testing.T) approval.Row {
	t.Helper()
	synctest.Wait()
	fq.mu.Lock()
	defer fq.mu.Unlock()
	if len(fq.pending) != 1 {
		t.Fatalf("%d questions are pending, want 1", len(fq.pending))
	}
	for _, q := range fq.pending {
		return q
	}
	panic("unreachable")
}

// withQuestions runs a test with a broker that knows the sessions sess_1 and sess_2.
func withQuestions(t *testing.T, test func(f *fixture, fq *fakeQuestions)) {
	t.Helper()
	fq := newQuestions(person("sess_1"), person("sess_2"))
	runEngine(t, func(c *Config) { c.Questions = fq }, func(f *fixture) {
		f.session("sess_2")
		test(f, fq)
	})
}

// respond answers a question and returns the outcome.
func (f *fixture) respond(q approval.Row, actor approval.Actor, a approval.Answer) (row approval.Row, err *arcp.Error) {
	done := make(chan struct{})
	f.n++
	f.e.Questions().Respond(Response{Job: q.Job, ID: q.ID, Request: arcp.MessageID(fmt.Sprintf("msg_%d", f.n)), Actor: actor, Answer: a,
		Done: func(got approval.Row, e *arcp.Error) { row, err = got, e; close(done) }})
	<-done
	return row, err
}

func asker(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
	a, err := j.Ask(ctx, tool.InputRequest{Prompt: "which?", Schema: arcp.Raw(`{"type":"integer"}`), Expires: time.Hour})
	if err != nil {
		return nil, err
	}
	return arcp.Raw(fmt.Sprintf(`{"value":%s,"by":%q}`, a.Value, a.ResolvedBy)), nil
}

func rerun(c *tool.Capability) { c.Recovery = tool.RecoveryRerun }

func TestQuestionIsAnsweredOnce(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("ask", func(c *tool.Capability) { c.Limits.Timeout = time.Minute }, asker)
		id := f.submit("ask", "{}")
		frames := f.want("asked", "job.accepted "+string(id), "job.started", "human.input.request")
		job := jobOf(frames, id)
		q := fq.only(t)
		if row := f.row(job); row.State != arcp.StateBlocked {
			t.Errorf("the job is %s", row.State)
		}
		time.Sleep(30 * time.Minute) // longer than the tool may run
		if _, err := f.respond(q, person("sess_1"), approval.Answer{Value: arcp.Raw(`"x"`)}); err == nil || err.Code != arcp.CodeInvalidArgument {
			t.Errorf("an answer of another type: %v", err)
		}
		_, err := f.respond(q, approval.Actor{Principal: "bob", Session: "sess_9"}, approval.Answer{Value: arcp.Raw("7")})
		if err == nil || err.Code != arcp.CodeNotFound {
			t.Errorf("an answer of another principal: %v", err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		won, lost := 0, 0
		for i := range 8 {
			wg.Go(func() {
				done := make(chan *arcp.Error, 1)
				f.e.Questions().Respond(Response{Job: q.Job, ID: q.ID, Request: "msg_x", Actor: person([]string{"sess_1", "sess_2"}[i%2]),
					Answer: approval.Answer{Value: arcp.Raw("7")}, Done: func(_ approval.Row, e *arcp.Error) { done <- e }})
				err := <-done
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case err.Code == arcp.CodeFailedPrecondition:
					lost++
				}
			})
		}
		wg.Wait()
		if won != 1 || lost != 7 {
			t.Errorf("%d answers count and %d come too late, want 1 and 7", won, lost)
		}
		ends := slices.Concat(lines(f.frames("sess_1")), lines(f.frames("sess_2")))
		if want := "job.completed " + string(id); !slices.Contains(ends, want) {
			t.Errorf("%q: no %s", ends, want)
		}
		cancelled := 0
		for _, l := range ends {
			if l == "human.input.cancelled "+string(fq.ids[q.ID])+" CANCELLED" {
				cancelled++
			}
		}
		if cancelled != 1 || fq.closed[q.ID] != 1 {
			t.Errorf("%q: %d told that another session answered first; closed %d times", ends, cancelled, fq.closed[q.ID])
		}
		f.expectNoState("answered")
	})
}

// A question survives a restart, and an answer after the restart reaches the next attempt.
func TestQuestionSurvivesRestart(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("ask", rerun, asker)
		id := f.submit("ask", "{}")
		f.want("asked", "job.accepted", "job.started", "human.input.request")
		q, request := fq.only(t), fq.ids[fq.only(t).ID]
		clear(fq.pending)
		clear(fq.ids)
		f.restart(1)
		f.want("goes on", "job.started")
		if again := fq.only(t); again.ID != q.ID || fq.ids[q.ID] != request {
			t.Fatalf("after a restart %s is pending as %s, want %s as %s", again.ID, fq.ids[again.ID], q.ID, request)
		}
		if _, err := f.respond(q, person("sess_2"), approval.Answer{Value: arcp.Raw("5")}); err != nil {
			t.Fatal(err)
		}
		frames := f.want("answered", "human.input.cancelled "+string(request), "job.completed "+string(id))
		if got := string(frames[1].Payload); got != `{"value":{"value":5,"by":"alice"}}` {
			t.Errorf("the job ends with %s", got)
		}
		f.expectNoState("answered")
	})
}

func TestQuestionExpires(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("ask", nil, asker)
		f.tool("default", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			a, err := j.Ask(ctx, tool.InputRequest{Prompt: "which?", Default: arcp.Raw(`"blue"`), Expires: time.Hour})
			return a.Value, err
		})
		f.submit("ask", "{}")
		f.want("asked", "job.accepted", "job.started", "human.input.request")
		time.Sleep(time.Hour + time.Second)
		f.want("expired", "human.input.cancelled", "job.failed msg_1 DEADLINE_EXCEEDED")
		f.submit("default", "{}")
		f.want("asked", "job.accepted", "job.started", "human.input.request")
		time.Sleep(time.Hour + time.Second)
		frames := f.want("expired", "human.input.cancelled", "job.completed")
		if string(frames[1].Payload) != `{"value":"blue"}` {
			t.Errorf("the default is %s", frames[1].Payload)
		}
		if _, err := f.respond(approval.Row{Job: "job_none", ID: "approval-x"}, person("sess_1"), approval.Answer{}); err == nil {
			t.Error("answer to an unknown question = nil, want an error")
		}
		f.expectNoState("expired")
	})
}

func TestQuestionEndsWithItsJob(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("ask", nil, asker)
		id := f.submit("ask", "{}")
		job := jobOf(f.want("asked", "job.accepted", "job.started", "human.input.request"), id)
		q := fq.only(t)
		f.cancel(job, 0)
		f.want("cancelled", "cancel.accepted", "human.input.cancelled", "job.cancelled")
		if _, err := f.respond(q, person("sess_1"), approval.Answer{Value: arcp.Raw("5")}); err == nil ||
			err.Code != arcp.CodeFailedPrecondition {
			t.Errorf("an answer after the end: %v", err)
		}
		if n := len(fq.pending); n != 0 {
			t.Errorf("%d questions are pending after the end of the job, want none", n)
		}

		f.submit("ask", "{}")
		f.want("asked", "job.accepted", "job.started", "human.input.request")
		f.restart(1) // of a job whose recovery is to fail
		f.want("failed", "human.input.cancelled", "job.failed")
		f.expectNoState("ended")
	})
}

// Questions support the largest quorum and escalation delay of a tool's policy.
func TestPoliciesFitQuestions(t *testing.T) {
	if tool.MaxQuorum != approval.MaxQuorum || tool.MaxEscalation != approval.DefaultExpiry {
		t.Errorf("a policy has up to %d and %v, a question %d and %v", tool.MaxQuorum, tool.MaxEscalation,
			approval.MaxQuorum, approval.DefaultExpiry)
	}
}

// The end of a permission lease is noticed when it comes, also by a job that does
// not use it any more.
func TestPermitEndsUnused(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("permit", rerun, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for _, p := range []string{"short", "long"} {
				_, err := j.Permissions().Request(ctx, tool.PermissionRequest{Permission: p, Resource: "r", Operation: "o"})
				if err != nil && code(err) != "LEASE_EXPIRED" { // as it is after the restart
					return nil, err
				}
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		id := f.submit("permit", "{}")
		job := jobOf(f.want("asked", "job.accepted", "job.started", "permission.request"), id)
		grant := func(permission string, seconds uint64) arcp.LeaseID {
			t.Helper()
			row, err := f.respond(fq.only(t), person("sess_1"),
				approval.Answer{Grant: &arcp.PermissionTerm{Permission: permission, Resource: "r", Operation: "o", Seconds: seconds}})
			if err != nil {
				t.Fatal(err)
			}
			return row.Lease
		}
		inForce := func(why string, leases, expired float64) {
			t.Helper()
			synctest.Wait()
			if n, m := f.gauge("arcp_leases"), f.gauge("arcp_lease_expirations_total"); n != leases || m != expired {
				t.Errorf("%s: %v leases are in force, %v have expired, want %v and %v", why, n, m, leases, expired)
			}
		}
		grant("short", 60)
		f.want("granted", "lease.granted", "permission.request")
		long := grant("long", 90)
		inForce("granted", 2, 0)
		time.Sleep(61 * time.Second)
		inForce("the short one has ended", 1, 1)
		done := make(chan *arcp.Error, 1)
		f.e.PermissionLeases().Extend(requesterOf("", person("sess_1")),
			&arcp.LeaseRefreshPayload{LeaseID: long, AdditionalSeconds: 60}, func(e *arcp.Error) { done <- e })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Second)
		inForce("the long one was extended", 1, 1)
		time.Sleep(31 * time.Second)
		inForce("it has ended", 0, 2)
		f.frames("sess_1")
		f.restart(1)
		f.want("goes on", "job.started")
		inForce("after a restart", 0, 0)
		f.cancel(job, 0)
		f.want("cancelled", "cancel.accepted", "job.cancelled")
		inForce("after its end", 0, 0)
		f.expectNoState("cancelled")
	})
}

func TestPermit(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("permit", rerun, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			before := j.Permissions().Check("order.refund", "order:7", "refund")
			l, err := j.Permissions().Request(ctx, tool.PermissionRequest{Permission: "order.refund", Resource: "order:*",
				Operation: "refund", Reason: "asked for", For: time.Hour})
			if err != nil {
				return nil, err
			}
			now := j.Permissions().Check("order.refund", "order:7", "refund")
			other := j.Permissions().Check("order.refund", "order:8", "refund")
			select {
			case <-time.After(time.Until(l.ExpiresAt) + 2*time.Minute):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			last := code(j.Permissions().Check("order.refund", "order:7", "refund"))
			_ = j.Permissions().Check("order.refund", "order:7", "refund")
			if n := f.gauge("arcp_leases"); n != 0 {
				t.Errorf("%v leases are in force when the one has expired", n)
			}
			return arcp.Marshal([]string{code(before), code(now), code(other), last})
		})
		id := f.submit("permit", "{}")
		job := jobOf(f.want("asked", "job.accepted", "job.started", "permission.request"), id)
		q := fq.only(t)
		term := func(resource string, seconds uint64) *arcp.PermissionTerm {
			return &arcp.PermissionTerm{Permission: "order.refund", Resource: resource, Operation: "refund", Seconds: seconds}
		}
		for _, wrong := range []*arcp.PermissionTerm{term("invoice:1", 60), term("**", 60), term("order:7", 0),
			{Permission: "order.delete", Resource: "order:7", Operation: "refund", Seconds: 5}} {
			if _, err := f.respond(q, person("sess_1"), approval.Answer{Grant: wrong}); err == nil || err.Code != arcp.CodeInvalidArgument {
				t.Errorf("grant of %+v: %v", wrong, err)
			}
		}
		row, err := f.respond(q, person("sess_1"), approval.Answer{Grant: term("order:7", 60)})
		if err != nil {
			t.Fatal(err)
		}
		granted := f.want("granted", "lease.granted msg_"+fmt.Sprint(f.n))
		g, _ := arcp.DecodePayload[arcp.LeaseGrantedPayload](&granted[0].Envelope)
		if g.LeaseID != row.Lease || g.Resource != "order:7" || time.Until(g.ExpiresAt) > time.Minute {
			t.Errorf("lease.granted = %+v, want %s on order:7 for at most a minute", g, row.Lease)
		}
		f.frames("sess_2")
		f.restart(1) // the grant outlives it, and the attempt finds it
		f.want("goes on", "job.started")
		extend := func(more time.Duration, actor approval.Actor) *arcp.Error {
			done := make(chan *arcp.Error, 1)
			f.e.PermissionLeases().Extend(requesterOf("msg_extend", actor),
				&arcp.LeaseRefreshPayload{LeaseID: g.LeaseID, AdditionalSeconds: uint64(more / time.Second)}, func(e *arcp.Error) { done <- e })
			return <-done
		}
		if err := extend(time.Minute, person("sess_2")); err == nil || err.Code != arcp.CodePermissionDenied {
			t.Errorf("extended by another session: %v", err)
		}
		if err := extend(time.Minute, person("sess_1")); err != nil {
			t.Errorf("extended: %v", err)
		}
		f.want("extended", "lease.extended msg_extend")
		time.Sleep(4 * time.Minute)
		if row := f.row(job); row.State != arcp.StateCompleted {
			t.Errorf("the job is %s", row.State)
		}
		frames := f.want("done", "job.completed")
		if got := string(frames[0].Payload); got != `{"value":["","","PERMISSION_DENIED","LEASE_EXPIRED"]}` {
			t.Errorf("the tool was told %s, want the grant to count from the start of the second attempt on, for what it is for", got)
		}
		if n := f.gauge("arcp_lease_expirations_total"); n != 1 {
			t.Errorf("%v expirations are counted", n)
		}
		f.expectNoState("done")
	})
}

func code(err error) string {
	if err == nil {
		return ""
	}
	var e *arcp.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	return string(e.Code)
}

func TestRevoke(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("permit", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if _, err := j.Permissions().Request(ctx, tool.PermissionRequest{Permission: "p", Resource: "r", Operation: "o"}); err != nil {
				return nil, err
			}
			for j.Permissions().Check("p", "r", "o") == nil {
				time.Sleep(time.Second)
			}
			return nil, j.Permissions().Check("p", "r", "o")
		})
		f.submit("permit", "{}")
		f.want("asked", "job.accepted", "job.started", "permission.request")
		row, err := f.respond(fq.only(t), person("sess_2"),
			approval.Answer{Grant: &arcp.PermissionTerm{Permission: "p", Resource: "r", Operation: "o", Seconds: 600}})
		if err != nil {
			t.Fatal(err)
		}
		f.want("granted", "lease.granted", "human.input.cancelled")
		f.frames("sess_2")
		revoke := func(actor approval.Actor) *arcp.Error {
			done := make(chan *arcp.Error, 1)
			f.e.PermissionLeases().Revoke(requesterOf("msg_revoke", actor),
				&arcp.LeaseRevokedPayload{LeaseID: row.Lease, Reason: "no more"}, func(e *arcp.Error) { done <- e })
			return <-done
		}
		if err := revoke(approval.Actor{Principal: "bob", Session: "sess_9"}); err == nil || err.Code != arcp.CodeNotFound {
			t.Errorf("revoked by a stranger: %v", err)
		}
		if n := f.gauge("arcp_leases"); n != 1 {
			t.Errorf("%v leases are in force", n)
		}
		if err := revoke(person("sess_2")); err != nil {
			t.Errorf("revoke by sess_2: %v", err)
		}
		if n := f.gauge("arcp_leases"); n != 0 {
			t.Errorf("%v leases are in force after it was revoked", n)
		}
		if frames := f.frames("sess_2"); len(frames) != 1 || frames[0].Type != arcp.LeaseRevoked || frames[0].CorrelationID != "msg_revoke" {
			t.Errorf("who revokes is told %v", lines(frames))
		}
		time.Sleep(2 * time.Second)
		f.want("revoked", "lease.revoked", "job.failed msg_1 LEASE_REVOKED")
		f.expectNoState("revoked")
	})
}

func TestGate(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		ran := 0
		f.tool("danger", func(c *tool.Capability) { c.Approval = tool.ApprovalManual },
			func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
				ran++
				return args, nil
			})
		f.submit("danger", `{"x":1}`)
		f.want("the requester is told that another session is asked", "job.accepted", "job.started", "event.emit")
		q := fq.only(t)
		if got := lines(f.frames("sess_2")); !slices.Equal(got, []string{"human.choice.request"}) {
			t.Errorf("the approver is sent %q", got)
		}
		if _, err := f.respond(q, person("sess_1"), approval.Answer{Resolution: approval.Approve}); err == nil ||
			err.Code != arcp.CodePermissionDenied {
			t.Errorf("who asks approves: %v", err)
		}
		actor := person("sess_2")
		actor.Approver = false
		if _, err := f.respond(q, actor, approval.Answer{Resolution: approval.Approve}); err == nil || err.Code != arcp.CodePermissionDenied {
			t.Errorf("approved without the role: %v", err)
		}
		if _, err := f.respond(q, person("sess_2"), approval.Answer{Resolution: "yes"}); err == nil || err.Code != arcp.CodeInvalidArgument {
			t.Errorf("neither: %v", err)
		}
		if ran != 0 {
			t.Fatalf("the tool ran %d times without an approval", ran)
		}
		if _, err := f.respond(q, person("sess_2"), approval.Answer{Resolution: approval.Approve}); err != nil {
			t.Fatal(err)
		}
		f.want("approved", "job.completed")
		f.submit("danger", "{}")
		f.frames("sess_1")
		if _, err := f.respond(fq.only(t), person("sess_2"), approval.Answer{Resolution: approval.Deny, Reason: "no"}); err != nil {
			t.Fatal(err)
		}
		f.want("denied", "job.failed msg_6 PERMISSION_DENIED")
		f.submit("danger", "{}")
		f.frames("sess_1")
		time.Sleep(25 * time.Hour)
		f.want("expired", "job.failed msg_8 PERMISSION_DENIED")
		if ran != 1 {
			t.Errorf("the tool ran %d times", ran)
		}
		f.expectNoState("gates")
	})
}

// An approved call is refused if its principal may not submit jobs any more. The calls that needed no approval are
// not affected.
func TestApprovalForARemovedPrincipal(t *testing.T) {
	fq, now := newQuestions(person("sess_1"), person("sess_2")), &fakeRights{}
	runEngine(t, func(c *Config) { c.Questions, c.Rights = fq, now.get }, func(f *fixture) {
		f.session("sess_2")
		calls := 0
		call := func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
			calls++
			return args, nil
		}
		f.tool("danger", func(c *tool.Capability) { c.Approval = tool.ApprovalManual }, call)
		f.tool("safe", nil, call)
		submit := func(name string) {
			q := f.request("sess_1", name, "{}")
			q.Identity = arcp.Raw(`"alice"`)
			f.send(q)
		}
		decide := func() {
			if _, err := f.respond(fq.only(t), person("sess_2"), approval.Answer{Resolution: approval.Approve}); err != nil {
				t.Fatal(err)
			}
		}
		submit("danger")
		decide()
		f.want("the principal is known", "job.accepted", "job.started", "event.emit", "job.completed")
		now.set(Rights{}, arcp.Errorf(arcp.CodePermissionDenied, "who?"))
		submit("danger")
		decide()
		f.want("the principal was removed", "job.accepted", "job.started", "event.emit", "job.failed msg_3 PERMISSION_DENIED")
		submit("safe")
		f.want("it has not waited", "job.accepted", "job.started", "job.completed")
		if want := []string{`"alice"`, `"alice"`}; calls != 2 || !slices.Equal(now.asked, want) {
			t.Errorf("%d calls after the rights of %q were asked for, want 2 and %q", calls, now.asked, want)
		}
	})
}

// The details of a gate identify arguments that are too large to be shown.
func TestPreview(t *testing.T) {
	large := func(c string) arcp.Raw { return arcp.Raw(`"` + strings.Repeat(c, approval.MaxDetails) + `"`) }
	a, b := string(preview(large("a"))), string(preview(large("b")))
	if want := fmt.Sprintf(`{"arguments_bytes":%d,"arguments_sha256":"%x"}`, approval.MaxDetails+2, sha256.Sum256(large("a"))); a != want {
		t.Errorf("large arguments are shown as %s, want %s", a, want)
	}
	if a == b {
		t.Errorf("other arguments of the same length are shown as %s, too", a)
	}
	deep := arcp.Raw(strings.Repeat("[", tool.MaxDepth) + strings.Repeat("]", tool.MaxDepth))
	if got := preview(deep); !strings.Contains(string(got), fmt.Sprintf("%x", sha256.Sum256(deep))) {
		t.Errorf("nested arguments are shown as %s, want their SHA-256", got)
	}
	if got := preview(arcp.Raw(`{"x":1}`)); string(got) != `{"arguments":{"x":1}}` {
		t.Errorf("small arguments are shown as %s", got)
	}
}

// An approval of large arguments counts for no other arguments of the same length.
func TestApprovalOfLargeArguments(t *testing.T) {
	large := func(c string) arcp.Raw { return arcp.Raw(`"` + strings.Repeat(c, approval.MaxDetails) + `"`) }
	arguments := []arcp.Raw{large("a"), large("b")} // by attempt
	swap := tool.Hook{Name: "swap", Before: func(_ context.Context, c *tool.HookCall) (tool.HookDecision, error) {
		return tool.HookDecision{Arguments: arguments[c.Attempt-1]}, nil
	}}
	fq := newQuestions(person("sess_1"), person("sess_2"))
	runEngine(t, func(c *Config) { withHooks(swap)(c); c.Questions = fq }, func(f *fixture) {
		f.session("sess_2")
		calls := 0
		f.tool("danger", func(c *tool.Capability) { retryable(c); c.Approval = tool.ApprovalManual },
			func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
				if calls++; calls == 1 {
					return nil, arcp.Errorf(arcp.CodeUnavailable, "not now")
				}
				return arcp.Raw("{}"), nil
			})
		f.submit("danger", "{}")
		for range arguments {
			if _, err := f.respond(fq.only(t), person("sess_2"), approval.Answer{Resolution: approval.Approve}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		if calls != 2 {
			t.Errorf("%d calls, want one for each approval", calls)
		}
	})
}

// A principal grants its own jobs nothing beyond its configured lease.
func TestGrantBeyondThePrincipal(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("permit", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			_, err := j.Permissions().Request(ctx, tool.PermissionRequest{Permission: "fs.read", Resource: "/b", Operation: "read", For: time.Minute})
			return nil, err
		})
		f.submit("permit", "{}")
		f.frames("sess_1")
		q := fq.only(t)
		own, admin := person("sess_1"), person("sess_2")
		own.Lease = arcp.Raw(`{"fs.read":["/a/**"]}`)
		admin.Principal, admin.Admin, admin.Lease = "root", true, own.Lease
		grant := approval.Answer{Grant: q.Permission}
		if _, err := f.respond(q, own, grant); err == nil || err.Code != arcp.CodePermissionDenied {
			t.Errorf("granted by the principal itself: %v, want PERMISSION_DENIED", err)
		}
		if _, err := f.respond(q, admin, grant); err != nil {
			t.Errorf("granted by an admin of another principal: %v", err)
		}
		f.want("granted", "lease.granted", "human.input.cancelled", "job.completed")
	})
}

// A later session is sent the pending question, once.
func TestOfferToALaterSession(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("ask", nil, asker)
		id := f.submit("ask", "{}")
		job := jobOf(f.want("asked", "job.accepted", "job.started", "human.input.request"), id)
		q := fq.only(t)
		f.session("sess_3")
		for range 3 {
			f.e.Questions().Offer(job, q.ID, person("sess_3"))
			f.e.Questions().Offer(job, q.ID, person("sess_2"))
			f.e.Questions().Offer(job, q.ID, approval.Actor{Principal: "bob", Session: "sess_3", HumanInput: true})
		}
		if got := lines(f.frames("sess_3")); !slices.Equal(got, []string{"human.input.request"}) {
			t.Errorf("a later session is sent %q", got)
		}
		if _, err := f.respond(q, person("sess_3"), approval.Answer{Value: arcp.Raw("1")}); err != nil {
			t.Fatal(err)
		}
		if got := lines(f.frames("sess_3")); len(got) != 0 {
			t.Errorf("who has answered is sent %q", got)
		}
		if got := lines(f.frames("sess_2")); len(got) != 2 {
			t.Errorf("who was asked is sent %q", got)
		}
		f.frames("sess_1")
	})
}

// When a question was sent to the maximum number of sessions, a later session replaces the
// first of them.
func TestOfferReplacesTheFirst(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("ask", nil, asker)
		id := f.submit("ask", "{}")
		job := jobOf(f.want("asked", "job.accepted", "job.started", "human.input.request"), id)
		q := fq.only(t)
		for n := range approval.MaxSent {
			f.e.Questions().Offer(job, q.ID, person(fmt.Sprintf("sess_gone%d", n)))
		}
		f.session("sess_3")
		f.e.Questions().Offer(job, q.ID, person("sess_3"))
		if got := lines(f.frames("sess_3")); !slices.Equal(got, []string{"human.input.request"}) {
			t.Errorf("a later session is sent %q", got)
		}
		if n := len(fq.only(t).Sent); n != approval.MaxSent {
			t.Errorf("it was given to %d, want %d remembered", n, approval.MaxSent)
		}
		if _, err := f.respond(q, person("sess_2"), approval.Answer{Value: arcp.Raw("1")}); err != nil {
			t.Fatal(err)
		}
		if got := lines(f.frames("sess_3")); len(got) != 1 {
			t.Errorf("the last is sent %q", got)
		}
		f.frames("sess_1")
		f.frames("sess_2")
	})
}

func TestInterrupt(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		var guided []string
		f.tool("count", func(c *tool.Capability) { c.Interruptible = true }, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for range 10 {
				time.Sleep(time.Second)
				g, err := j.Yield(ctx)
				if err != nil {
					return nil, err
				}
				if g != "" {
					guided = append(guided, g)
				}
			}
			return arcp.Raw("10"), nil
		})
		f.tool("deaf", nil, wait)
		interrupt := func(job arcp.JobID) {
			f.e.Interrupt(Requester{Request: "msg_i", Principal: "alice", Session: "sess_1", Answers: f.session("sess_1")},
				&arcp.InterruptPayload{TargetID: string(job), Prompt: "stop"})
		}
		deaf := f.submit("deaf", "{}")
		job := jobOf(f.want("runs", "job.accepted", "job.started"), deaf)
		interrupt(job)
		f.want("not interruptible", "nack msg_i FAILED_PRECONDITION")
		f.cancel(job, 0)
		f.frames("sess_1")

		id := f.submit("count", "{}")
		job = jobOf(f.want("runs", "job.accepted", "job.started"), id)
		interrupt(job)
		f.want("interrupted", "ack msg_i", "human.input.request")
		interrupt(job)
		f.want("twice", "nack msg_i FAILED_PRECONDITION")
		time.Sleep(time.Minute)
		if state := f.row(job).State; state != arcp.StateBlocked {
			t.Errorf("the job is %s", state)
		}
		_, err := f.respond(fq.only(t), person("sess_1"), approval.Answer{Value: arcp.Raw(`{"action":"continue","guidance":"faster"}`)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		f.want("goes on", "job.completed")
		if !slices.Equal(guided, []string{"faster"}) {
			t.Errorf("guided by %q", guided)
		}

		for _, c := range []struct{ answer, want string }{{`{"action":"cancel"}`, "job.cancelled"}, {"", "job.failed"}} {
			id = f.submit("count", "{}")
			job = jobOf(f.want("runs", "job.accepted", "job.started"), id)
			interrupt(job)
			f.frames("sess_1")
			if c.answer == "" {
				time.Sleep(2 * time.Hour)
			} else if _, err := f.respond(fq.only(t), person("sess_1"), approval.Answer{Value: arcp.Raw(c.answer)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if frames := f.frames("sess_1"); len(frames) == 0 || string(frames[len(frames)-1].Type) != c.want {
				t.Errorf("%q: %v, want %s", c.answer, lines(frames), c.want)
			}
		}
		f.expectNoState("interrupts")
	})
}

// The maximum runtime stands still while a job waits for a person, also across a restart.
func TestWaitingCostsNoRuntime(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("ask", rerun, asker)
		q := f.request("sess_1", "ask", "{}")
		limit := arcp.Number("10")
		q.payload.MaxRuntimeSec = &limit
		f.send(q)
		f.want("asked", "job.accepted", "job.started", "human.input.request")
		time.Sleep(20 * time.Minute)
		f.restart(1)
		f.want("goes on", "job.started")
		time.Sleep(20 * time.Minute)
		if _, err := f.respond(fq.only(t), person("sess_1"), approval.Answer{Value: arcp.Raw("5")}); err != nil {
			t.Fatal(err)
		}
		f.want("answered", "job.completed")
	})
}

func TestRecordsOfQuestions(t *testing.T) {
	withQuestions(t, func(f *fixture, fq *fakeQuestions) {
		f.tool("ask", nil, asker)
		f.submit("ask", "{}")
		f.frames("sess_1")
		q := fq.only(t)
		if _, err := f.respond(q, person("sess_1"), approval.Answer{Value: arcp.Raw("5"), RespondedBy: "the phone"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n := 0
		err := f.st.Records(context.Background(), approval.RecordPrefix("alice"), "", func(rec store.Record) bool {
			n++
			var row approval.Row
			if err := arcp.Unmarshal(rec.Value, &row); err != nil || row.Status != approval.Resolved || row.ResolvedBy != "alice" ||
				row.RespondedBy != "the phone" || row.ResolvedIn != "sess_1" || string(row.Value) != "5" {
				t.Errorf("the stored question is %s, %v; want the answer 5 of alice in sess_1 by the phone", rec.Value, err)
			}
			return true
		})
		if n != 1 || err != nil {
			t.Errorf("%d rows, %v", n, err)
		}
		f.frames("sess_1")
	})
}
