package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// approval is what the tools say of one.
type approval struct {
	ID         string         `json:"approval_id"`
	RequestID  arcp.MessageID `json:"request_id"`
	Kind       string         `json:"kind"`
	Status     string         `json:"status"`
	Principal  string         `json:"principal"`
	SessionID  arcp.SessionID `json:"session_id"`
	JobID      arcp.JobID     `json:"job_id"`
	AgentID    string         `json:"agent_id"`
	Action     string         `json:"action"`
	Details    arcp.Raw       `json:"details"`
	Options    []string       `json:"options"`
	Resolution string         `json:"resolution"`
	ResolvedBy string         `json:"resolved_by"`
	CreatedAt  time.Time      `json:"created_at"`
	ExpiresAt  time.Time      `json:"expires_at"`
	ResolvedAt time.Time      `json:"resolved_at"`
}

// requested asks for an approval.
func (c *Conn) requested(with ...func(map[string]any)) (a approval) {
	args := map[string]any{"action": "deploy", "expires_in_ms": askMS}
	for _, change := range with {
		change(args)
	}
	c.call(&a, "approval.request", args)
	c.t.Want("an approval has an id", a.ID != "", "approval_id is empty")
	return a
}

var systemLevel = argument("system_level", true)

// approval calls a tool of approvals that returns one.
func (c *Conn) approval(tool, id string, more ...func(map[string]any)) (a approval) {
	c.call(&a, "approval."+tool, approvalArgs(id, more...))
	want(c.t, "the approval is the one asked for", a.ID, id)
	return a
}

func approvalArgs(id string, more ...func(map[string]any)) map[string]any {
	args := map[string]any{"approval_id": id}
	for _, change := range more {
		change(args)
	}
	return args
}

// refusesCall wants a tool of approvals to fail with a code.
func (c *Conn) refusesCall(why, tool string, args map[string]any, code arcp.Code) {
	f := c.Invoke("approval."+tool, args).End()
	want(c.t, why, f.Type, arcp.JobFailed)
	c.t.wantCode(why, f, code)
}

// outcome is what approval.wait says.
func (c *Conn) outcome(id string, more ...func(map[string]any)) string {
	var result struct {
		Outcome string `json:"outcome"`
	}
	c.call(&result, "approval.wait", approvalArgs(id, more...))
	return result.Outcome
}

// gate reads until a session is asked for an approval, if it was not before.
func (c *Conn) gate(a approval) *Frame {
	f := c.rec.byID(a.RequestID)
	for ; f == nil; f = c.rec.byID(a.RequestID) {
		c.next("others are asked")
	}
	want(c.t, "the question is one of two", f.Type, arcp.HumanChoiceRequest)
	p := payload[arcp.HumanChoiceRequestPayload](c.t, f)
	want(c.t, "the question names the approval", p.ApprovalID, a.ID)
	want(c.t, "its job is the one the tools name", f.JobID, a.JobID)
	return f
}

func approvalRequest(_ context.Context, t *T) {
	c := t.Open()
	a := c.requested(argument("details", arcp.Raw(`{"to":"prod","n":1.50}`)), argument("options", []string{"now", "later"}), argument("agent_id", "planner"))
	for _, got := range []approval{a, c.approval("get", a.ID)} {
		want(t, "it is the session's", got.SessionID, c.Session)
		want(t, "it is pending", got.Status, "pending")
		want(t, "it is resolved by who owns it", got.Kind, "owned")
		want(t, "it says what is asked", got.Action, "deploy")
		want(t, "with the details", string(got.Details), `{"to":"prod","n":1.50}`)
		want(t, "and the options", fmt.Sprint(got.Options), "[now later]")
		want(t, "and for whom", got.AgentID, "planner")
		t.Want("it expires when it should", got.ExpiresAt.Sub(got.CreatedAt) == askMS*time.Millisecond, "made at %v, it expires at %v", got.CreatedAt, got.ExpiresAt)
		if t.target.Principal != "" {
			want(t, "it is the principal's", got.Principal, t.target.Principal)
		}
	}
}

func approvalResolve(_ context.Context, t *T) {
	c := t.Open()
	a := c.requested(argument("options", []string{"now", "later"}))
	for _, bad := range []string{"never", "approve", "Now", " now"} {
		c.refusesCall("a resolution is one of the options", "resolve", approvalArgs(a.ID, argument("resolution", bad)), arcp.CodeInvalidArgument)
	}
	c.refusesCall("approved is for those without options", "resolve", approvalArgs(a.ID, argument("approved", true)), arcp.CodeInvalidArgument)
	c.refusesCall("a resolution is needed", "resolve", approvalArgs(a.ID), arcp.CodeInvalidArgument)
	c.refusesCall("one is enough", "resolve", approvalArgs(a.ID, argument("approved", true), argument("resolution", "now")), arcp.CodeInvalidArgument)
	for _, got := range []approval{c.approval("resolve", a.ID, argument("resolution", "later")), c.approval("get", a.ID)} {
		want(t, "it is resolved", got.Status, "resolved")
		want(t, "with the option", got.Resolution, "later")
		t.Want("it says when", !got.ResolvedAt.Before(got.CreatedAt), "made at %v, resolved at %v", got.CreatedAt, got.ResolvedAt)
		if t.target.Principal != "" {
			want(t, "and by whom", got.ResolvedBy, t.target.Principal)
		}
	}
}

func approvalResolveDefault(_ context.Context, t *T) {
	c := t.Open()
	for approved, outcome := range map[bool]string{true: "Approved", false: "Denied"} {
		a := c.requested()
		want(t, "the options are these", fmt.Sprint(a.Options), "[approve deny]")
		c.approval("resolve", a.ID, argument("approved", approved))
		want(t, "the outcome is told", c.outcome(a.ID), outcome)
	}
}

func approvalResolveTwice(_ context.Context, t *T) {
	c := t.Open()
	a := c.requested()
	c.approval("resolve", a.ID, argument("approved", false))
	for _, again := range []bool{true, false} {
		c.refusesCall("the first resolution stands", "resolve", approvalArgs(a.ID, argument("approved", again)), arcp.CodeFailedPrecondition)
	}
	want(t, "the first resolution stands", c.approval("get", a.ID).Resolution, "deny")
}

func approvalResolveOther(_ context.Context, t *T) {
	owner, other := t.Open(), t.Open()
	a := owner.requested()
	want(t, "only who owns it resolves it", other.approval("resolve", a.ID, argument("approved", true)).Status, "pending")
	want(t, "it stays", owner.approval("get", a.ID).Status, "pending")
	want(t, "who owns it resolves it", owner.approval("resolve", a.ID, argument("approved", false)).Resolution, "deny")
}

func approvalOwnerGone(_ context.Context, t *T) {
	owner, other := t.Open(), t.Open()
	a := owner.requested()
	owner.close()
	for late := t.late(); other.sessions(1000)[owner.Session].State == "connected" && time.Now().Before(late); { // ask again
	}
	other.refusesCall("there is nobody to decide", "resolve", approvalArgs(a.ID, argument("approved", true)), arcp.CodeFailedPrecondition)
	owner = owner.Resume(owner.rec.last())
	want(t, "it is still who owns it that does", owner.approval("resolve", a.ID, argument("approved", true)).Resolution, "approve")
}

func approvalNotAsked(_ context.Context, t *T) {
	owner, other := t.Human(), t.Human()
	a := owner.requested(argument("action", "only mine "+string(owner.Session)))
	for _, c := range []*Conn{owner, other} {
		id, _ := c.Ping()
		for f := c.next("a ping is answered"); f.CorrelationID != id; f = c.next("a ping is answered") {
			t.Want("nobody is asked", !strings.Contains(string(f.Payload), a.ID), "got %s", f)
		}
	}
}

func approvalWrong(_ context.Context, t *T) {
	c := t.Open()
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for why, change := range map[string]func(map[string]any){
		"an approval says what is asked":           argument("action", ""),
		"options are told apart":                   argument("options", []string{"a", "a"}),
		"an option has a name":                     argument("options", []string{""}),
		"65 options are too many":                  argument("options", many),
		"a quorum is the system's":                 argument("quorum", 2),
		"an escalation is the system's":            argument("escalate_after_ms", 1000),
		"a month is long enough":                   argument("expires_in_ms", 2_592_000_001),
		"the details are bounded":                  argument("details", strings.Repeat("x", 65<<10)),
		"nobody asks in another's name":            argument("requested_by", "sess_1"),
		"the system's have no options":             func(args map[string]any) { systemLevel(args); args["options"] = []string{"a"} },
		"17 are more than anybody has to convince": func(args map[string]any) { systemLevel(args); args["quorum"] = 17 },
	} {
		args := map[string]any{"action": "deploy"}
		change(args)
		c.refusesCall(why, "request", args, arcp.CodeInvalidArgument)
	}
}

func approvalForeign(_ context.Context, t *T) {
	owner, stranger := t.Open(), t.Human(as(t.target.OtherToken))
	for _, a := range []approval{owner.requested(), owner.requested(systemLevel)} {
		for tool, args := range map[string]map[string]any{"get": {}, "resolve": {"approved": true}, "cancel": {}, "wait": {"timeout_ms": 10}} {
			args["approval_id"] = a.ID
			stranger.refusesCall("what one may not see is not there: approval."+tool, tool, args, arcp.CodeNotFound)
		}
		t.Want("it is not listed", !stranger.approvals("", 1000)[a.ID], "%s is", a.ID)
		var page struct {
			Items []approval `json:"items"`
		}
		stranger.call(&page, "approval.questions", map[string]any{"limit": 1000})
		for _, q := range page.Items {
			t.Want("it is not asked", q.ID != a.ID, "%s is", a.ID)
		}
		want(t, "it is not touched", owner.approval("get", a.ID).Status, "pending")
		owner.approval("cancel", a.ID)
	}
}

func approvalUnknown(_ context.Context, t *T) {
	c := t.Open()
	const nobodys = "approval-00000000000000000000000000"
	for tool, args := range map[string]map[string]any{"get": {}, "resolve": {"approved": true}, "cancel": {}, "wait": {"timeout_ms": 10}} {
		args["approval_id"] = nobodys
		c.refusesCall("it is not there", tool, args, arcp.CodeNotFound)
	}
	for _, id := range []string{nobodys, "msg_00000000000000000000000000", "../../x"} {
		c.refusesCall("it is not there", "answer", map[string]any{"request_id": id, "choice_id": "approve"}, arcp.CodeNotFound)
	}
}

func approvalSystem(_ context.Context, t *T) {
	owner, approver, plain := t.Human(), t.Human(), t.Open()
	a := owner.requested(systemLevel, argument("details", arcp.Raw(`{"to":"prod"}`)))
	want(t, "it is pending", a.Status, "pending")
	want(t, "it needs somebody else", a.Kind, "gate")
	f := approver.gate(a)
	p := payload[arcp.HumanChoiceRequestPayload](t, f)
	want(t, "the question says what is asked", p.Prompt, "deploy")
	want(t, "with the details", string(p.Details), `{"to":"prod"}`)
	want(t, "the options are these", fmt.Sprint(p.Options), "[{approve Approve} {deny Deny}]")
	want(t, "what is asked of people is critical", f.Priority, arcp.PriorityCritical)
	owner.nothingAbout("who asks is not asked", a.JobID)
	plain.nothingAbout("nor is who has no person", a.JobID)
	late := t.Human()
	late.gate(a)
	approver.taken(approver.choose(f, "approve"))
	late.withdrawn("the others are told", f, arcp.CodeCancelled)
	approver.nothingAbout("who has answered is not", a.JobID)
	want(t, "it is approved", owner.outcome(a.ID), "Approved")
	want(t, "by the option", owner.approval("get", a.ID).Resolution, "approve")
}

func approvalSystemSelf(_ context.Context, t *T) {
	owner, approver := t.Human(), t.Human()
	a := owner.requested(systemLevel)
	f := approver.gate(a)
	owner.refuses("who asks never approves", owner.choose(f, "approve"), arcp.CodePermissionDenied)
	owner.refuses("nor denies", owner.choose(f, "deny"), arcp.CodePermissionDenied)
	owner.refusesCall("who asks never approves", "resolve", approvalArgs(a.ID, argument("approved", true)), arcp.CodePermissionDenied)
	owner.refusesCall("who asks never approves", "answer", map[string]any{"request_id": f.ID, "choice_id": "approve"}, arcp.CodePermissionDenied)
	want(t, "it is still pending", owner.approval("get", a.ID).Status, "pending")
	want(t, "somebody else does", approver.approval("resolve", a.ID, argument("approved", true)).Status, "resolved")
	want(t, "it is approved", owner.outcome(a.ID), "Approved")
}

func approvalSystemDenied(_ context.Context, t *T) {
	owner, approver := t.Open(), t.Human()
	a := owner.requested(systemLevel)
	f := approver.gate(a)
	approver.refuses("a resolution is one of the options", approver.choose(f, "maybe"), arcp.CodeInvalidArgument)
	approver.taken(approver.choose(f, "deny"))
	want(t, "it is denied", owner.outcome(a.ID), "Denied")
	approver.refuses("the first resolution stands", approver.choose(f, "approve"), arcp.CodeFailedPrecondition, arcp.CodeNotFound)
	want(t, "it is denied", owner.approval("get", a.ID).Resolution, "deny")
}

func approvalSystemForeign(_ context.Context, t *T) {
	owner, stranger := t.Open(), t.Human(as(t.target.OtherToken))
	a := owner.requested(systemLevel)
	stranger.nothingAbout("another principal is not asked", a.JobID)
	f := &Frame{Envelope: arcp.Envelope{ID: a.RequestID}}
	stranger.refuses("what one may not see is not there", stranger.choose(f, "approve"), arcp.CodeNotFound)
	owner.approval("cancel", a.ID)
}

func approvalSystemExpires(_ context.Context, t *T) {
	owner, approver := t.Open(), t.Human()
	a := owner.requested(systemLevel, argument("expires_in_ms", 500))
	approver.withdrawn("who was asked is told that it is over", approver.gate(a), arcp.CodeDeadlineExceeded)
	want(t, "nothing is approved by itself", owner.outcome(a.ID), "TimedOut")
	want(t, "it has expired", owner.approval("get", a.ID).Status, "expired")
	approver.refusesCall("it is too late then", "resolve", approvalArgs(a.ID, argument("approved", true)), arcp.CodeFailedPrecondition)
}

func approvalCancel(_ context.Context, t *T) {
	owner, other := t.Open(), t.Human()
	for _, a := range []approval{owner.requested(), owner.requested(systemLevel)} {
		var f *Frame
		if a.JobID != "" {
			f = other.gate(a)
		}
		other.refusesCall("only who has asked withdraws it", "cancel", approvalArgs(a.ID), arcp.CodePermissionDenied)
		want(t, "it is withdrawn", owner.approval("cancel", a.ID).Status, "cancelled")
		if f != nil {
			other.withdrawn("who was asked is told", f, arcp.CodeCancelled)
		}
		want(t, "the outcome is told", owner.outcome(a.ID), "Cancelled")
		owner.refusesCall("it is not withdrawn twice", "cancel", approvalArgs(a.ID), arcp.CodeFailedPrecondition)
		owner.refusesCall("it is not resolved any more", "resolve", approvalArgs(a.ID, argument("approved", true)),
			map[bool]arcp.Code{true: arcp.CodePermissionDenied, false: arcp.CodeFailedPrecondition}[a.JobID != ""])
	}
}

func approvalWait(_ context.Context, t *T) {
	owner, waiter := t.Open(), t.Open()
	a := owner.requested()
	want(t, "the time is over", waiter.outcome(a.ID, argument("timeout_ms", 10)), "TimedOut")
	want(t, "and the approval is pending", owner.approval("get", a.ID).Status, "pending")
	waiting := waiter.Submit("approval.wait", approvalArgs(a.ID, argument("timeout_ms", askMS)))
	owner.approval("resolve", a.ID, argument("approved", true))
	var result struct {
		Outcome string `json:"outcome"`
	}
	waiter.result(&result, waiter.Follow(waiting))
	want(t, "who waits is told", result.Outcome, "Approved")
	want(t, "what is settled is not waited for", waiter.outcome(a.ID), "Approved")
}

func approvalQuorum(_ context.Context, t *T) {
	owner, a, b := t.Open(), t.Human(), t.Human()
	q := owner.requested(systemLevel, argument("quorum", 2))
	f := a.gate(q)
	a.taken(a.choose(f, "approve"))
	b.refuses("the second vote is somebody else's", b.choose(b.gate(q), "approve"), arcp.CodeFailedPrecondition)
	a.refusesCall("the second vote is somebody else's", "resolve", approvalArgs(q.ID, argument("approved", true)), arcp.CodeFailedPrecondition)
	want(t, "one vote of two is not enough", owner.approval("get", q.ID).Status, "pending")
	owner.approval("cancel", q.ID)
}

func approvalQuorumDenied(_ context.Context, t *T) {
	owner, approver := t.Open(), t.Human()
	q := owner.requested(systemLevel, argument("quorum", 3))
	approver.taken(approver.choose(approver.gate(q), "deny"))
	want(t, "one denial is enough", owner.outcome(q.ID), "Denied")
}

func approvalGate(_ context.Context, t *T) {
	owner, approver := t.Human(), t.Human()
	for option, outcome := range map[string]string{"approve": "Approved", "deny": "Denied"} {
		submit := owner.Submit("approval.gate", map[string]any{"action": "wipe", "expires_in_ms": askMS})
		job := owner.AwaitAccepted(submit)
		told := payload[arcp.EventEmitPayload](t, owner.about("who asks is told", arcp.EventEmit, job))
		want(t, "which approval it waits for", told.Name, "approval.requested")
		f := approver.about("somebody else is asked", arcp.HumanChoiceRequest, job)
		jobs := owner.listAll(arcp.JobFilter{SessionID: owner.Session, Agent: "approval.gate", Status: []string{string(arcp.StateBlocked)}}, 10)
		want(t, "a job that asks is blocked", len(jobs), 1)
		owner.nothingAbout("who asks is not asked", job)
		owner.refuses("who asks never approves", owner.choose(f, "approve"), arcp.CodePermissionDenied)
		approver.taken(approver.choose(f, option))
		var result struct {
			Outcome string `json:"outcome"`
		}
		owner.result(&result, owner.outcomeOf(submit))
		want(t, "the outcome is told", result.Outcome, outcome)
	}
	for _, name := range []string{"approval_id", "requested_by"} {
		owner.refusesCall(name+" is not the caller's to say", "gate", map[string]any{"action": "wipe", name: "sess_1"}, arcp.CodeInvalidArgument)
	}
}

// approvals lists what the caller may know of, page by page.
func (c *Conn) approvals(status string, limit int) map[string]bool {
	all, args := map[string]bool{}, map[string]any{"limit": limit}
	if status != "" {
		args["status"] = status
	}
	for {
		var page struct {
			Items      []approval `json:"items"`
			NextCursor string     `json:"next_cursor"`
		}
		c.call(&page, "approval.list", args)
		c.t.Want("a page holds no more than was asked for", len(page.Items) <= limit, "it holds %d", len(page.Items))
		for _, a := range page.Items {
			c.t.Want("an approval is listed once", !all[a.ID], "%s is listed twice", a.ID)
			c.t.Want("the status is what was asked for", status == "" || a.Status == status, "%s is %s", a.ID, a.Status)
			all[a.ID] = true
		}
		if page.NextCursor == "" {
			return all
		}
		args["cursor"] = page.NextCursor
	}
}

func approvalList(_ context.Context, t *T) {
	c := t.Open()
	mine := []approval{c.requested(), c.requested(systemLevel), c.requested()}
	for _, limit := range []int{1000, 7} {
		all := c.approvals("", limit)
		for _, a := range mine {
			t.Want("every approval is listed", all[a.ID], "%s is not", a.ID)
		}
	}
	c.approval("cancel", mine[1].ID)
}

func approvalListStatus(_ context.Context, t *T) {
	c := t.Open()
	pending, resolved, cancelled := c.requested(), c.requested(), c.requested()
	c.approval("resolve", resolved.ID, argument("approved", true))
	c.approval("cancel", cancelled.ID)
	for _, a := range []struct{ id, status string }{{pending.ID, "pending"}, {resolved.ID, "resolved"}, {cancelled.ID, "cancelled"}} {
		for _, status := range []string{"pending", "resolved", "cancelled", "expired"} {
			want(t, "an approval is listed under its status "+a.status+", not "+status, c.approvals(status, 1000)[a.id], status == a.status)
		}
	}
}

func approvalListWrong(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	c.requested()
	c.requested()
	c.refusesCall("there is no such status", "list", map[string]any{"status": "lost"}, arcp.CodeInvalidArgument)
	c.refusesCall("a cursor comes from a list", "list", map[string]any{"cursor": "AAAA"}, arcp.CodeInvalidArgument)
	c.refusesCall("a page has something", "list", map[string]any{"limit": -1}, arcp.CodeInvalidArgument)
	var page struct {
		NextCursor string `json:"next_cursor"`
	}
	c.call(&page, "approval.list", map[string]any{"limit": 1})
	t.Want("there is more", page.NextCursor != "", "next_cursor is empty")
	other.refusesCall("a cursor is good for its own list", "list", map[string]any{"limit": 1, "status": "pending", "cursor": page.NextCursor}, arcp.CodeInvalidArgument)
}

func approvalListDetails(_ context.Context, t *T) {
	c := t.Open()
	details := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 10_000))
	a := c.requested(argument("details", arcp.Raw(details)))
	want(t, "approval.get has the details", string(c.approval("get", a.ID).Details), details)
	args := map[string]any{"limit": 1000, "status": "pending"}
	for {
		var page struct {
			Items      []approval `json:"items"`
			NextCursor string     `json:"next_cursor"`
		}
		c.call(&page, "approval.list", args)
		for _, item := range page.Items {
			t.Want("no item of a list is long", len(item.Details) < 5000, "%s has details of %d bytes", item.ID, len(item.Details))
		}
		if page.NextCursor == "" {
			return
		}
		args["cursor"] = page.NextCursor
	}
}

// questioned finds the question of a job among those that the caller may answer.
func (c *Conn) questioned(job arcp.JobID) (found approval) {
	var page struct {
		Items []approval `json:"items"`
	}
	c.call(&page, "approval.questions", map[string]any{"limit": 1000})
	for _, q := range page.Items {
		if q.JobID == job {
			found = q
		}
	}
	c.t.Want("the question of a job is listed", found.ID != "", "that of %s is not", job)
	return found
}

func approvalAnswer(_ context.Context, t *T) {
	owner, other := t.Human(), t.Open()
	submit, question := owner.asked(argument("response_schema", arcp.Raw(`{"type":"string"}`)))
	q := other.questioned(question.JobID)
	want(t, "it is listed with its message", q.RequestID, question.ID)
	want(t, "it is listed with its kind", q.Kind, "input")
	other.answers(q.ID, "value", "blue")
	owner.withdrawn("who was asked is told", question, arcp.CodeCancelled)
	owner.answered(submit, `"blue"`)

	submit, question = owner.chosen()
	want(t, "it is listed with its kind", other.questioned(question.JobID).Kind, "choice")
	other.answers(string(question.ID), "choice_id", "b")
	wantText(t, "the choice is made", string(owner.Completed("the job ends well", owner.outcomeOf(submit))), `"choice_id":"b"`)

	submit, question = owner.permit()
	want(t, "it is listed with its kind", other.questioned(question.JobID).Kind, "permission")
	other.answers(string(question.ID), "grant", true)
	want(t, "the permission is granted as it was asked for", owner.permitted(submit).Resource, refund.Resource)

	submit, question = owner.permit()
	other.answers(string(question.ID), "deny", true)
	owner.endsWith("the permission is denied", submit, arcp.CodePermissionDenied)
}

// answers answers a question with a tool.
func (c *Conn) answers(question, member string, value any) {
	var a approval
	c.call(&a, "approval.answer", map[string]any{"request_id": question, member: value})
	want(c.t, "an answer settles the question", a.Status, "resolved")
}

func approvalAnswerWrong(_ context.Context, t *T) {
	owner, other := t.Human(), t.Open()
	submit, question := owner.asked(argument("response_schema", arcp.Raw(`{"type":"string"}`)))
	for _, bad := range []map[string]any{{}, {"value": 1}, {"choice_id": "a"}, {"grant": true}} {
		bad["request_id"] = question.ID
		other.refusesCall("the answer has to fit", "answer", bad, arcp.CodeInvalidArgument)
	}
	want(t, "the question stays", owner.stateOf(question.JobID), string(arcp.StateBlocked))
	other.answers(string(question.ID), "value", "x")
	owner.answered(submit, `"x"`)
	other.refusesCall("a question is answered once", "answer", map[string]any{"request_id": payload[arcp.HumanInputRequestPayload](t, question).ApprovalID, "value": "y"}, arcp.CodeFailedPrecondition)
	submit, question = owner.permit()
	for _, bad := range []map[string]any{{}, {"grant": true, "deny": true}, {"value": true}, {"grant": true, "resource": "order:**"}} {
		bad["request_id"] = question.ID
		other.refusesCall("the answer has to fit", "answer", bad, arcp.CodeInvalidArgument)
	}
	owner.granted(question, refund)
	owner.permitted(submit)
}

func approvalElevate(_ context.Context, t *T) {
	c := t.Open()
	c.refusesCall("only the server calls it", "elevate", map[string]any{"session_id": c.Session, "request_id": "msg_1", "level": "privileged"}, arcp.CodePermissionDenied)
}

func approvalRestart(ctx context.Context, t *T) {
	owner := t.Open()
	own, system := owner.requested(), owner.requested(systemLevel)
	t.Restart(ctx)
	owner, approver := owner.Cut(), t.Human()
	f := approver.gate(system)
	owner.refuses("who asks never approves", owner.choose(f, "approve"), arcp.CodePermissionDenied)
	approver.taken(approver.choose(f, "approve"))
	want(t, "it is approved", owner.outcome(system.ID), "Approved")
	want(t, "an approval of its own is its own", owner.approval("resolve", own.ID, argument("approved", true)).Resolution, "approve")
}
