package builtin

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

type approvalRequestIn struct {
	Action      string   `json:"action" jsonschema:"description=the action to approve,minLength=1,maxLength=16384"`
	Details     arcp.Raw `json:"details,omitzero" jsonschema:"description=information for the person who decides"`
	Options     []string `json:"options,omitempty" jsonschema:"description=the possible resolutions; default approve and deny"`
	AgentID     string   `json:"agent_id,omitzero" jsonschema:"description=the agent that requests the approval,maxLength=256"`
	System      bool     `json:"system_level,omitzero" jsonschema:"description=true: an actor with the role approver answers; false: the calling session resolves it"`
	ExpiresInMS int64    `json:"expires_in_ms,omitzero" jsonschema:"description=default one day,minimum=1,maximum=2592000000"`
	Quorum      int      `json:"quorum,omitzero" jsonschema:"description=principals that must approve; system_level only,minimum=1,maximum=16"`
	EscalateMS  int64    `json:"escalate_after_ms,omitzero" jsonschema:"description=delay until admins of other principals are asked; system_level only,minimum=1,maximum=2592000000"`
}

type approvalListIn struct {
	Status string `json:"status,omitzero" jsonschema:"description=pending or resolved or expired or cancelled"`
	Limit  int    `json:"limit,omitzero" jsonschema:"description=items of a page,minimum=1,maximum=1000"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the previous page"`
}

type approvalIDIn struct {
	ApprovalID string `json:"approval_id" jsonschema:"description=id of the question"`
}

type approvalResolveIn struct {
	ApprovalID string `json:"approval_id" jsonschema:"description=id of the question"`
	Resolution string `json:"resolution,omitzero" jsonschema:"description=id of an option of the question"`
	Approved   *bool  `json:"approved,omitzero" jsonschema:"description=instead of resolution: true is approve and false is deny"`
	Reason     string `json:"reason,omitzero" jsonschema:"description=reason of a denial,maxLength=16384"`
}

type approvalWaitIn struct {
	ApprovalID string `json:"approval_id" jsonschema:"description=id of the question"`
	TimeoutMS  int64  `json:"timeout_ms,omitzero" jsonschema:"description=default 30 s,minimum=1,maximum=3600000"`
}

type approvalQuestionsIn struct {
	Limit  int    `json:"limit,omitzero" jsonschema:"description=maximum of questions,minimum=1,maximum=1000"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the previous page"`
}

type approvalAnswerIn struct {
	RequestID   string   `json:"request_id" jsonschema:"description=approval_id of the question or id of its message"`
	Value       arcp.Raw `json:"value,omitzero" jsonschema:"description=answer to a question for an input"`
	ChoiceID    string   `json:"choice_id,omitzero" jsonschema:"description=id of the option of a choice or a gate"`
	Grant       bool     `json:"grant,omitzero" jsonschema:"description=true grants a permission"`
	Deny        bool     `json:"deny,omitzero" jsonschema:"description=true denies a permission"`
	Resource    string   `json:"resource,omitzero" jsonschema:"description=a narrower resource than the requested one"`
	Seconds     uint64   `json:"lease_seconds,omitzero" jsonschema:"description=duration of a granted permission; default as requested,minimum=1,maximum=3600"`
	Reason      string   `json:"reason,omitzero" jsonschema:"description=reason of a denial,maxLength=16384"`
	RespondedBy string   `json:"responded_by,omitzero" jsonschema:"description=name of the person who answers,maxLength=256"`
}

// approvalGateIn has the arguments of approval.gate.
type approvalGateIn struct {
	approvalRequestIn
	ApprovalID  string         `json:"approval_id,omitzero" jsonschema:"description=set by the runtime"`
	RequestedBy arcp.SessionID `json:"requested_by,omitzero" jsonschema:"description=set by the runtime"`
}

type approvalTools struct {
	store     store.Store
	engine    *engine.Engine
	sessions  *session.Directory
	questions *questions.Broker
	agents    *agents.Store
	changes   txn.Committer
	cursors   *paging.Cursors
	audit     audit.Log
	logger    zerolog.Logger
	callers   *callers
}

func (t *approvalTools) register(r *registrar) {
	register(r, tool.Capability{Name: "approval.request", SideEffect: tool.SideEffectWrite, Recovery: tool.RecoveryRerun,
		Description: "requests an approval"}, r.callers.find, t.request)
	register(r, readTool("approval.list", "the questions to people that the caller may see, the oldest of each principal first"),
		r.callers.find, t.list)
	register(r, readTool("approval.get", "one question"), r.callers.find, t.get)
	register(r, writeTool("approval.resolve", "resolves an approval"), r.callers.find, t.resolve)
	register(r, writeTool("approval.cancel", "withdraws an approval that the caller has requested"), r.callers.find, t.cancel)
	register(r, waitTool("approval.wait", "waits until a question is not pending any more"), r.callers.find, t.wait)
	register(r, readTool("approval.questions", "the pending questions that the caller may answer"), r.callers.find, t.listPending)
	register(r, writeTool("approval.answer", "answers a question"), r.callers.find, t.answer)
	register(r, waitTool("approval.gate", "asks an actor with the role approver, and waits for the answer"), hostAs[gateJob], t.gate)
}

// gateJob is the host of a job that may ask for an approval and wait.
type gateJob interface {
	tool.Host
	engine.Gates
}

// viewOf returns the view of a question. request is the id of its message; "": it is not pending.
func viewOf(q *approval.Row, request arcp.MessageID) arcp.QuestionView {
	return arcp.QuestionView{
		ApprovalID:  q.ID,
		RequestID:   request,
		Kind:        q.Kind,
		Status:      q.Status,
		Principal:   q.Principal,
		SessionID:   q.Session,
		JobID:       q.Job,
		AgentID:     q.AgentID,
		System:      q.System,
		Action:      q.Action,
		Details:     q.Details,
		Options:     optionIDs(q.Options),
		Schema:      q.Schema,
		Permission:  q.Permission,
		Quorum:      q.Quorum,
		Votes:       q.Votes,
		EscalateAt:  q.EscalateAt,
		CreatedAt:   q.CreatedAt,
		ExpiresAt:   q.ExpiresAt,
		Resolution:  q.Resolution,
		Value:       q.Value,
		Reason:      q.Reason,
		ResolvedBy:  q.ResolvedBy,
		RespondedBy: q.RespondedBy,
		ResolvedAt:  q.ResolvedAt,
	}
}

func optionIDs(options []arcp.Option) (ids []string) {
	for _, o := range options {
		ids = append(ids, o.ID)
	}
	return ids
}

// viewFor is viewOf for an actor. Of another principal it omits the session and the value and, unless
// the actor may answer the question, the details: they can be the arguments of a call.
func viewFor(actor *approval.Actor, q *approval.Row, request arcp.MessageID) arcp.QuestionView {
	v := viewOf(q, request)
	if actor.Principal != q.Principal {
		v.SessionID, v.Value = "", nil
		if q.MayAnswer(actor) != nil {
			v.Details = nil
		}
	}
	return v
}

// previewDetails bounds the details of a question in a list, in bytes.
const previewDetails = 2 << 10

// preview is viewFor for a list: large details are replaced by their size.
func preview(actor *approval.Actor, q *approval.Row, request arcp.MessageID) *arcp.QuestionView {
	v := viewFor(actor, q, request)
	if n := len(v.Details); n > previewDetails {
		v.Details, _ = arcp.Marshal(map[string]int{"truncated_bytes": n}) // a number
	}
	return &v
}

// request handles approval.request. A principal with too many pending questions gets
// RESOURCE_EXHAUSTED. A later attempt of the job returns the approval that an earlier one has
// stored.
func (t *approvalTools) request(ctx context.Context, caller *Caller, in approvalRequestIn) (arcp.QuestionView, error) {
	if err := in.check(); err != nil {
		return arcp.QuestionView{}, err
	}
	if err := t.questions.CheckRoom(caller.Principal); err != nil {
		return arcp.QuestionView{}, err
	}
	if in.System {
		return t.requestSystem(ctx, caller, in)
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	row := approval.Row{
		ID:        approvalID(caller.Job),
		Kind:      approval.Owned,
		Principal: caller.Principal,
		Session:   caller.Session,
		Status:    approval.Pending,
		AgentID:   in.AgentID,
		Action:    in.Action,
		Details:   in.Details,
		Options:   in.options(),
		CreatedAt: now,
		ExpiresAt: now.Add(in.expiry()),
	}
	if row, err := t.questions.Read(ctx, &caller.Actor, row.ID); !notFound(err) { // an earlier attempt has stored it
		return viewOf(&row, t.questions.RequestOf(&row)), err
	}
	if err := t.questions.SessionApprovals().Ask(ctx, row); err != nil {
		return arcp.QuestionView{}, err
	}
	return viewOf(&row, ""), nil
}

// approvalID returns the id of the approval that a job asks for. All attempts of the job ask
// for the same one.
func approvalID(job tool.Job) string {
	return approval.IDPrefix + strings.TrimPrefix(string(job.ID()), arcp.JobPrefix)
}

func (in *approvalRequestIn) check() *arcp.Error {
	switch {
	case len(in.Details) > approval.MaxDetails:
		return arcp.Errorf(arcp.CodeInvalidArgument, "details may have at most %d bytes", approval.MaxDetails)
	case !in.System && (in.Quorum > 0 || in.EscalateMS > 0):
		return arcp.Errorf(arcp.CodeInvalidArgument, "quorum and escalate_after_ms are for system_level approvals")
	case in.System && len(in.Options) > 0:
		return arcp.Errorf(arcp.CodeInvalidArgument, "a system_level approval has the options approve and deny")
	}
	return approval.CheckOptions(in.options())
}

func (in *approvalRequestIn) options() []arcp.Option {
	if len(in.Options) == 0 {
		return approval.ApproveOrDeny
	}
	list := make([]arcp.Option, len(in.Options))
	for i, id := range in.Options {
		list[i] = arcp.Option{ID: id, Label: id}
	}
	return list
}

func (in *approvalRequestIn) expiry() time.Duration {
	if in.ExpiresInMS == 0 {
		return approval.DefaultExpiry
	}
	return time.Duration(in.ExpiresInMS) * time.Millisecond
}

// requestSystem submits a job of the runtime that asks the question and waits. The question thus
// has a log and outlives the calling job.
func (t *approvalTools) requestSystem(ctx context.Context, caller *Caller, in approvalRequestIn) (none arcp.QuestionView, err error) {
	if call := engine.CallOf(ctx); call != nil { // the other job commits the question: after a crash this call runs again
		if err := call.Claim(); err != nil {
			return none, err
		}
	}
	id := approvalID(caller.Job)
	changed, stop := t.questions.Changed(id)
	defer stop()
	if row, err := t.questions.Read(ctx, &caller.Actor, id); !notFound(err) { // an earlier attempt has asked it
		return viewOf(&row, t.questions.RequestOf(&row)), err
	}
	args, err := arcp.Marshal(approvalGateIn{in, id, caller.Session})
	if err != nil {
		return none, err
	}
	failed, existing := make(chan *arcp.Error, 1), make(chan arcp.JobID, 1)
	t.engine.SubmitInternal(caller.Principal, "approval.gate", args, "gate/"+id,
		func(err *arcp.Error) { failed <- err }, func(gate arcp.JobID) { existing <- gate })
	for waits := true; waits; {
		select {
		case <-changed:
			waits = false
		case gate := <-existing: // submitted by an earlier attempt, and perhaps ended without asking
			row, err := t.store.Job(ctx, gate)
			if err != nil {
				return none, txn.Refusal(t.logger, err, "read approval")
			}
			waits = !row.State.Terminal()
		case err := <-failed:
			return none, err
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	row, err := t.questions.Read(ctx, &caller.Actor, id) // pending, or answered already
	if notFound(err) {
		err = arcp.Errorf(arcp.CodeAborted, "the approval was not asked for: its job ended before")
	}
	return viewOf(&row, t.questions.RequestOf(&row)), err
}

func notFound(err error) bool {
	e, ok := errors.AsType[*arcp.Error](err)
	return ok && e.Code == arcp.CodeNotFound
}

// gate asks for an approval and waits. The requesting session cannot approve.
func (t *approvalTools) gate(ctx context.Context, job gateJob, in approvalGateIn) (out arcp.OutcomeView, err error) {
	if job.Session() == "" {
		defer t.questions.Wake(in.ApprovalID) // requestSystem waits, also for a question that is not asked
	}
	in.System = true
	if err := in.check(); err != nil {
		return out, err
	}
	if job.Attempt() == 1 { // the question of a later attempt may be pending already
		if err := t.questions.CheckRoom(job.Principal()); err != nil {
			return out, err
		}
	}
	row := approval.Row{System: true, AgentID: in.AgentID, Action: in.Action, Details: in.Details, Quorum: in.Quorum}
	if caller := job.Session(); caller == "" {
		row.ID, row.Barred = in.ApprovalID, []arcp.SessionID{in.RequestedBy}
	} else if in.ApprovalID != "" || in.RequestedBy != "" {
		return out, arcp.Errorf(arcp.CodeInvalidArgument, "approval_id and requested_by are set by the runtime")
	}
	row.Barred = append(row.Barred, t.sessionsOfAgent(job.Principal(), in.AgentID)...)
	if in.EscalateMS > 0 {
		row.EscalateAt = time.Now().Add(time.Duration(in.EscalateMS) * time.Millisecond).UTC()
	}
	if row, err = job.Gate(ctx, row, in.expiry()); err != nil {
		return out, err
	}
	return arcp.OutcomeView{Outcome: outcomeOf(&row), Approval: viewOf(&row, "")}, nil
}

// sessionsOfAgent returns the sessions of a registered agent. They cannot approve a request of the
// agent.
func (t *approvalTools) sessionsOfAgent(principal, id string) (ids []arcp.SessionID) {
	for _, a := range t.agents.Agents(principal) {
		if id != "" && a.ID == id {
			ids = append(ids, a.Session)
		}
	}
	return ids
}

// outcomeOf returns the outcome of a question. OutcomeApproved requires the approving answer of an
// actor. Another option is a denial, and a default value is a timeout.
func outcomeOf(q *approval.Row) arcp.Outcome {
	switch {
	case q.Status == approval.Cancelled:
		return arcp.OutcomeCancelled
	case q.Status != approval.Resolved || q.Resolution == approval.ByDefault && q.Kind == approval.Input:
		return arcp.OutcomeTimedOut
	}
	approved := approval.Approve
	switch q.Kind {
	case approval.Permission:
		approved = approval.Granted
	case approval.Input:
		approved = approval.Answered
	}
	if q.Resolution != approved {
		return arcp.OutcomeDenied
	}
	return arcp.OutcomeApproved
}

// list handles approval.list. A caller that is neither an admin nor observes other principals
// reads only the questions of its own principal.
func (t *approvalTools) list(ctx context.Context, caller *Caller, in approvalListIn) (page arcp.Page[arcp.QuestionView], err error) {
	if err := paging.OneOf("status", in.Status, arcp.QuestionStatuses); err != nil {
		return page, err
	}
	principal := caller.Principal
	if caller.Admin || caller.Sees != nil {
		principal = ""
	}
	now := time.Now().UTC()
	request := paging.Request{
		Scope:  "approvals\x00" + caller.Principal + "\x00" + principal + "\x00" + in.Status,
		Cursor: in.Cursor,
		Limit:  in.Limit,
	}
	page, err = paging.Page(t.cursors, request, func(after string, add paging.Add[arcp.QuestionView]) error {
		return t.questions.List(ctx, principal, after, func(key string, size int, row *approval.Row) bool {
			row.Advance(now)
			if !row.Visible(&caller.Actor) || in.Status != "" && string(row.Status) != in.Status {
				return add(key, size, nil)
			}
			return add(key, size, preview(&caller.Actor, row, t.questions.RequestOf(row)))
		})
	})
	if err != nil {
		return page, txn.Refusal(t.logger, err, "list approvals")
	}
	return page, nil
}

func (t *approvalTools) get(ctx context.Context, caller *Caller, in approvalIDIn) (arcp.QuestionView, error) {
	row, err := t.questions.Read(ctx, &caller.Actor, in.ApprovalID)
	return viewFor(&caller.Actor, &row, t.questions.RequestOf(&row)), err
}

// resolve handles approval.resolve. If another session owns the approval, that session is asked
// to resolve it. An input needs a value and is refused with INVALID_ARGUMENT.
func (t *approvalTools) resolve(ctx context.Context, caller *Caller, in approvalResolveIn) (none arcp.QuestionView, err error) {
	if (in.Approved == nil) == (in.Resolution == "") {
		return none, arcp.Errorf(arcp.CodeInvalidArgument, "give either a resolution or approved")
	}
	if in.Approved != nil {
		if in.Resolution = approval.Deny; *in.Approved {
			in.Resolution = approval.Approve
		}
	}
	row, err := t.questions.Read(ctx, &caller.Actor, in.ApprovalID)
	if err != nil {
		return none, err
	}
	a := approval.Answer{Resolution: in.Resolution, Reason: in.Reason}
	switch {
	case row.Kind == approval.Input:
		return none, arcp.Errorf(arcp.CodeInvalidArgument, "the question wants a value: use approval.answer")
	case row.Kind == approval.Permission && in.Resolution == approval.Approve:
		a = approval.Answer{Grant: granted(row.Permission, "", 0)}
	case row.Kind == approval.Owned && row.Status == approval.Pending && caller.Session != row.Session:
		return t.askOwner(ctx, &caller.Actor, &row, in.Resolution)
	}
	return t.sendAnswer(ctx, &caller.Actor, &row, &a)
}

// granted returns the requested permission, with another resource and duration unless they are
// zero.
func granted(requested *arcp.PermissionTerm, resource string, seconds uint64) *arcp.PermissionTerm {
	const hour = 3600
	g := *requested
	g.Resource = cmp.Or(resource, g.Resource)
	g.Seconds = cmp.Or(seconds, g.Seconds, hour)
	return &g
}

// askOwner sends the session that owns an approval the resolution that another session requests.
func (t *approvalTools) askOwner(ctx context.Context, actor *approval.Actor, row *approval.Row,
	resolution string) (arcp.QuestionView, error) {
	if err := row.CheckOption(resolution); err != nil {
		return arcp.QuestionView{}, err
	}
	if t.sessions.ConnOf(row.Session) == nil {
		return arcp.QuestionView{}, arcp.Errorf(arcp.CodeFailedPrecondition,
			"only session %s, which owns it, resolves this; it is not connected", row.Session)
	}
	t.audit.Event("resolve_requested", actor.Principal, actor.Session).Str("target", row.ID).
		Str("owner_session", string(row.Session)).Str("decision", "pending").Msg("audit")
	err := t.changes.Commit(ctx, nil, func(err error) {
		if err == nil {
			t.sendResolveRequested(actor, row, resolution)
		}
	})
	if err == nil {
		t.questions.EmitResolveRequested(ctx, actor, row, resolution)
	}
	return viewFor(actor, row, ""), err
}

func (t *approvalTools) sendResolveRequested(actor *approval.Actor, row *approval.Row, resolution string) {
	data, err := arcp.Marshal(struct {
		ApprovalID   string         `json:"approval_id"`
		Resolution   string         `json:"resolution"`
		SessionID    arcp.SessionID `json:"session_id,omitzero"` // of the requester
		Principal    string         `json:"principal"`
		OwnerSession arcp.SessionID `json:"owner_session_id"`
	}{row.ID, resolution, questions.SessionOf(actor, row), actor.Principal, row.Session})
	if err != nil { // texts
		panic("builtin: approval.resolve_requested: " + err.Error())
	}
	send(t.sessions, row.Session, "", arcp.EventEmit, arcp.EventEmitPayload{Name: "approval.resolve_requested", Data: data})
}

// sendAnswer passes an answer to the job that asks, or changes the row of an approval without a job.
func (t *approvalTools) sendAnswer(ctx context.Context, actor *approval.Actor, row *approval.Row,
	a *approval.Answer) (none arcp.QuestionView, err error) {
	if row.Job == "" || row.Status != approval.Pending {
		return t.answerSessionApproval(ctx, actor, row.ID, a)
	}
	call, err := callToJoin(ctx)
	if err != nil {
		return none, err
	}
	r := newReply(actor)
	t.engine.Questions().Respond(engine.Response{
		Job:    row.Job,
		ID:     row.ID,
		Actor:  *actor,
		Answer: *a,
		Call:   call,
		Value:  r.value,
		Done:   r.done,
	})
	v, refused := r.wait()
	t.questions.AuditAnswer(actor, row, a, refused)
	if refused != nil {
		return none, audited{refused}
	}
	return v, nil
}

// reply receives the answer of a job's supervisor to a request about its question. The supervisor
// also answers when the job or the runtime ends.
type reply struct {
	actor   *approval.Actor
	results chan result
}

type result struct {
	row approval.Row
	err *arcp.Error
}

func newReply(actor *approval.Actor) *reply { return &reply{actor, make(chan result, 1)} }

func (r *reply) done(row approval.Row, err *arcp.Error) { r.results <- result{row, err} }

func (r *reply) wait() (arcp.QuestionView, *arcp.Error) {
	got := <-r.results
	return viewFor(r.actor, &got.row, ""), got.err
}

// value returns the result of the tool call.
func (r *reply) value(row approval.Row) arcp.Raw {
	raw, err := arcp.Marshal(viewFor(r.actor, &row, ""))
	if err != nil { // the row was decoded, or encoded for the store
		panic("builtin: view of a question: " + err.Error())
	}
	return raw
}

// callToJoin returns the call of ctx, prepared to end in the write of another job; nil: ctx has no
// call.
func callToJoin(ctx context.Context) (*engine.Call, error) {
	call := engine.CallOf(ctx)
	if call == nil {
		return nil, nil
	}
	return call, call.Join()
}

// answerSessionApproval answers an approval without a job. Of two concurrent answers the first one counts,
// because it changes the record that the second one has read.
func (t *approvalTools) answerSessionApproval(ctx context.Context, actor *approval.Actor, id string,
	a *approval.Answer) (arcp.QuestionView, error) {
	row, err := t.questions.SessionApprovals().Change(ctx, actor, id,
		func(row *approval.Row) *arcp.Error { return row.Answer(time.Now().UTC(), actor, a) })
	refused, _ := errors.AsType[*arcp.Error](err)
	t.questions.AuditAnswer(actor, &row, a, refused)
	if refused != nil {
		err = audited{refused}
	}
	return viewFor(actor, &row, ""), err
}

// cancel handles approval.cancel. The session that asked withdraws its approval; an admin
// withdraws any approval that is system-level or belongs to a session. A question of a job ends
// with the job instead: FAILED_PRECONDITION.
func (t *approvalTools) cancel(ctx context.Context, caller *Caller, in approvalIDIn) (none arcp.QuestionView, err error) {
	row, err := t.questions.Read(ctx, &caller.Actor, in.ApprovalID)
	if err != nil {
		return none, err
	}
	requester := row.Session == caller.Session || row.System && len(row.Barred) > 0 && row.Barred[0] == caller.Session
	switch {
	case !requester && !(caller.Admin && (row.System || row.Kind == approval.Owned)):
		return none, arcp.Errorf(arcp.CodePermissionDenied, "only who has asked withdraws an approval")
	case row.Status != approval.Pending:
		return none, arcp.Errorf(arcp.CodeFailedPrecondition, "the approval is %s", row.Status)
	case row.Job != "" && !row.System:
		return none, arcp.Errorf(arcp.CodeFailedPrecondition, "job %s asks this: cancel the job", row.Job)
	}
	if !requester {
		t.audit.Decision("withdraw", caller.Principal, caller.Session, row.ID, nil)
	}
	if row.Job == "" {
		row, err = t.questions.SessionApprovals().Change(ctx, &caller.Actor, row.ID, func(row *approval.Row) *arcp.Error {
			if !row.Cancel(time.Now().UTC(), "withdrawn") {
				return arcp.Errorf(arcp.CodeFailedPrecondition, "the approval is %s", row.Status)
			}
			return nil
		})
		return viewFor(&caller.Actor, &row, ""), err
	}
	call, err := callToJoin(ctx)
	if err != nil {
		return none, err
	}
	r := newReply(&caller.Actor)
	t.engine.Questions().Withdraw(engine.Withdraw{Job: row.Job, ID: row.ID, Call: call, Value: r.value, Done: r.done})
	v, refused := r.wait()
	if refused != nil {
		return none, refused
	}
	return v, nil
}

// wait handles approval.wait. It returns the outcome of the question: OutcomeTimedOut if the
// question is still pending after timeout_ms. The caller must be permitted to see the question each
// time that it is read.
func (t *approvalTools) wait(ctx context.Context, caller *Caller, in approvalWaitIn) (arcp.OutcomeView, error) {
	timeout := waitTimer(in.TimeoutMS)
	defer timeout.Stop()
	for timedOut := false; ; {
		changed, stop := t.questions.Changed(in.ApprovalID)
		row, err := t.questions.Read(ctx, &caller.Actor, in.ApprovalID)
		if err != nil || timedOut || row.Status != approval.Pending {
			stop()
			return arcp.OutcomeView{Outcome: outcomeOf(&row), Approval: viewFor(&caller.Actor, &row, t.questions.RequestOf(&row))}, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			timedOut = true
		case <-ctx.Done():
			stop()
			return arcp.OutcomeView{}, context.Cause(ctx)
		}
		stop()
		if caller, err = t.callers.find(caller.Job); err != nil {
			return arcp.OutcomeView{}, err
		}
	}
}

// listPending handles approval.questions. A page has only questions that the caller may answer.
func (t *approvalTools) listPending(_ context.Context, caller *Caller, in approvalQuestionsIn) (arcp.Page[arcp.QuestionView], error) {
	request := paging.Request{Scope: "questions\x00" + caller.Principal, Cursor: in.Cursor, Limit: in.Limit}
	return paging.Page(t.cursors, request, func(after string, add paging.Add[arcp.QuestionView]) error {
		for q := range t.questions.Visible(&caller.Actor, after) {
			size, item := 0, (*arcp.QuestionView)(nil)
			if q.Row.MayAnswer(&caller.Actor) == nil {
				size, item = len(q.Row.Action)+len(q.Row.Schema), preview(&caller.Actor, &q.Row, q.Request)
				for _, o := range q.Row.Options {
					size += len(o.ID) + len(o.Label)
				}
			}
			if !add(q.Row.ID, size, item) {
				break
			}
		}
		return nil
	})
}

func (t *approvalTools) answer(ctx context.Context, caller *Caller, in approvalAnswerIn) (none arcp.QuestionView, err error) {
	id := in.RequestID
	if q, ok := t.questions.Find(id); ok {
		id = q.Row.ID
	}
	row, err := t.questions.Read(ctx, &caller.Actor, id)
	if err != nil {
		return none, err
	}
	a, err := in.answer(&row)
	if err != nil {
		return none, err
	}
	return t.sendAnswer(ctx, &caller.Actor, &row, a)
}

// answer returns the answer to a question. It returns INVALID_ARGUMENT if the member that the
// kind of the question needs is missing.
func (in *approvalAnswerIn) answer(q *approval.Row) (*approval.Answer, error) {
	a := &approval.Answer{Reason: in.Reason, RespondedBy: in.RespondedBy}
	switch q.Kind {
	case approval.Input:
		if len(in.Value) == 0 {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "the question wants a value")
		}
		a.Value = in.Value
	case approval.Permission:
		if in.Grant == in.Deny {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "the question wants either grant or deny")
		}
		if a.Resolution = approval.Deny; in.Grant {
			a.Resolution, a.Grant = "", granted(q.Permission, in.Resource, in.Seconds)
		}
	default:
		if in.ChoiceID == "" {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "the question wants a choice_id")
		}
		a.Resolution = in.ChoiceID
	}
	return a, nil
}
