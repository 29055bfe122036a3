package builtin

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of approvals (SPEC.md §7.4).
const (
	maxApprovalWait     = time.Hour        // of approval.wait
	defaultApprovalWait = 30 * time.Second //
	previewDetails      = 2 << 10          // of the details in a list
)

func view(q *approval.Row, request arcp.MessageID) arcp.QuestionView {
	return arcp.QuestionView{ApprovalID: q.ID, RequestID: request, Kind: q.Kind, Status: q.Status, Principal: q.Principal, SessionID: q.Session,
		JobID: q.Job, AgentID: q.AgentID, System: q.System, Action: q.Action, Details: q.Details, Options: resolutions(q.Options), Schema: q.Schema,
		Permission: q.Permission, Quorum: q.Quorum, Votes: q.Votes, EscalateAt: q.EscalateAt, CreatedAt: q.CreatedAt, ExpiresAt: q.ExpiresAt,
		Resolution: q.Resolution, Value: q.Value, Reason: q.Reason, ResolvedBy: q.ResolvedBy, RespondedBy: q.RespondedBy, ResolvedAt: q.ResolvedAt}
}

// resolutions are the ids of options, as a resolution names one.
func resolutions(options []arcp.Option) (ids []string) {
	for _, o := range options {
		ids = append(ids, o.ID)
	}
	return ids
}

// viewFor is a question as somebody may see it: what is another principal's
// session stays that principal's.
func viewFor(w *approval.Actor, q *approval.Row, request arcp.MessageID) arcp.QuestionView {
	v := view(q, request)
	if w.Principal != q.Principal {
		v.SessionID = ""
	}
	return v
}

// preview is a row of a list: what it is about is cut.
func preview(w *approval.Actor, q *approval.Row, request arcp.MessageID) arcp.QuestionView {
	v := viewFor(w, q, request)
	if n := len(v.Details); n > previewDetails {
		v.Details, _ = arcp.Marshal(map[string]int{"truncated_bytes": n}) // a number
	}
	return v
}

type approvalRequestIn struct {
	Action      string   `json:"action" jsonschema:"description=what is to be approved,minLength=1,maxLength=16384"`
	Details     arcp.Raw `json:"details,omitzero" jsonschema:"description=what a person should know to decide"`
	Options     []string `json:"options,omitempty" jsonschema:"description=the possible resolutions; default approve and deny"`
	AgentID     string   `json:"agent_id,omitzero" jsonschema:"description=the agent that asks,maxLength=256"`
	System      bool     `json:"system_level,omitzero" jsonschema:"description=for somebody with the role approver; else the own session resolves it"`
	ExpiresInMS int64    `json:"expires_in_ms,omitzero" jsonschema:"description=default a day,minimum=1,maximum=2592000000"`
	Quorum      int      `json:"quorum,omitzero" jsonschema:"description=principals that must approve; system_level only,minimum=1,maximum=16"`
	EscalateMS  int64    `json:"escalate_after_ms,omitzero" jsonschema:"description=until then admins of other principals are not asked; system_level only,minimum=1,maximum=2592000000"`
}

type approvalListIn struct {
	Status string `json:"status,omitzero" jsonschema:"description=pending or resolved or expired or cancelled"`
	Limit  int    `json:"limit,omitzero" jsonschema:"description=rows a page,minimum=1,maximum=1000"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the page before"`
}

type approvalIDIn struct {
	ApprovalID string `json:"approval_id" jsonschema:"description=of the question"`
}

type approvalResolveIn struct {
	ApprovalID string `json:"approval_id" jsonschema:"description=of the question"`
	Resolution string `json:"resolution,omitzero" jsonschema:"description=one of its options"`
	Approved   *bool  `json:"approved,omitzero" jsonschema:"description=instead of a resolution: approve or deny"`
	Reason     string `json:"reason,omitzero" jsonschema:"description=of a denial,maxLength=16384"`
}

type approvalWaitIn struct {
	ApprovalID string `json:"approval_id" jsonschema:"description=of the question"`
	TimeoutMS  int64  `json:"timeout_ms,omitzero" jsonschema:"description=default 30 s,minimum=1,maximum=3600000"`
}

type approvalQuestionsIn struct {
	Limit  int    `json:"limit,omitzero" jsonschema:"description=questions at most,minimum=1,maximum=1000"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the page before"`
}

type approvalAnswerIn struct {
	RequestID   string   `json:"request_id" jsonschema:"description=of the question: its approval_id or the id of its message"`
	Value       arcp.Raw `json:"value,omitzero" jsonschema:"description=of an input"`
	ChoiceID    string   `json:"choice_id,omitzero" jsonschema:"description=of a choice or a gate"`
	Grant       bool     `json:"grant,omitzero" jsonschema:"description=a permission is granted"`
	Deny        bool     `json:"deny,omitzero" jsonschema:"description=a permission is denied"`
	Resource    string   `json:"resource,omitzero" jsonschema:"description=narrower than the one that was asked for"`
	Seconds     uint64   `json:"lease_seconds,omitzero" jsonschema:"description=of a permission; default what was asked for,minimum=1,maximum=3600"`
	Reason      string   `json:"reason,omitzero" jsonschema:"description=of a denial,maxLength=16384"`
	RespondedBy string   `json:"responded_by,omitzero" jsonschema:"description=who answers,maxLength=256"`
}

// approvalGateIn are the arguments of approval.gate.
type approvalGateIn struct {
	approvalRequestIn
	ApprovalID  string         `json:"approval_id,omitzero" jsonschema:"description=set by the runtime"`
	RequestedBy arcp.SessionID `json:"requested_by,omitzero" jsonschema:"description=set by the runtime"`
}

func (b *Tools) registerApprovals() error {
	return errors.Join(
		builtinLike(b, tool.Capability{Name: "approval.request", SideEffect: tool.SideEffectWrite, Recovery: tool.RecoveryRerun,
			Description: "asks for an approval"}, b.approvalRequest),
		builtin(b, "approval.list", tool.SideEffectRead, "questions to people that the caller may know of, the oldest of each principal first", b.approvalList),
		builtin(b, "approval.get", tool.SideEffectRead, "one question", b.approvalGet),
		builtin(b, "approval.resolve", tool.SideEffectWrite, "resolves an approval", b.approvalResolve),
		builtin(b, "approval.cancel", tool.SideEffectWrite, "withdraws an approval that the caller has asked for", b.approvalCancel),
		builtinFor(b, "approval.wait", "waits until a question is settled", b.approvalWait),
		builtin(b, "approval.questions", tool.SideEffectRead, "the pending questions that the caller may answer", b.approvalQuestions),
		builtin(b, "approval.answer", tool.SideEffectWrite, "answers a question", b.approvalAnswer),
		builtinFor(b, "approval.elevate", "holds a session's elevation; only the runtime calls it", b.elevateJob),
		builtinFor(b, "approval.gate", "asks somebody with the role approver, and waits", b.approvalGate),
	)
}

// caller returns the actor of the session that calls a built-in tool. If the session has had
// no connection since the start of the runtime, its stored credentials are judged again.
func (b *Tools) caller(job tool.Job) (approval.Actor, error) {
	c, ok := job.Host().(engine.Caller)
	if !ok {
		return approval.Actor{}, errNoCaller
	}
	s := b.Sessions.Find(c.Session())
	if s != nil {
		if who, ok := s.Actor(); ok {
			return who, nil
		}
	}
	if s != nil {
		who, err := actor.Stored(context.Background(), b.Store, b.Auth, c.Session())
		if err != nil {
			b.Logger.Error().Err(err).Str("session_id", string(c.Session())).Msg("identity of a session")
			return approval.Actor{}, arcp.Errorf(arcp.CodeUnauthenticated, "the credentials of the session are not good any more")
		}
		return who, nil
	}
	return approval.Actor{Principal: c.Principal(), Session: c.Session()}, nil
}

func (b *Tools) approvalRequest(ctx context.Context, job tool.Job, in approvalRequestIn) (arcp.QuestionView, error) {
	who, err := b.caller(job)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	if err := in.check(); err != nil {
		return arcp.QuestionView{}, err
	}
	if err := b.Questions.Room(who.Principal); err != nil {
		return arcp.QuestionView{}, err
	}
	if in.System {
		return b.systemApproval(ctx, job, &who, in)
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	row := approval.Row{ID: approvalOf(job), Kind: approval.Owned, Principal: who.Principal, Session: who.Session, Status: approval.Pending,
		AgentID: in.AgentID, Action: in.Action, Details: in.Details, Options: in.options(), CreatedAt: now, ExpiresAt: now.Add(in.expiry())}
	if row, _, err := b.Questions.Read(ctx, &who, row.ID); !notFound(err) { // an earlier attempt has made it
		return view(&row, b.Questions.RequestOf(&row)), err
	}
	if err := b.Questions.Ask(ctx, row); err != nil {
		return arcp.QuestionView{}, err
	}
	return view(&row, ""), nil
}

// approvalOf is the id of the approval that a job asks for: another attempt asks
// for the same one.
func approvalOf(job tool.Job) string {
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

// systemApproval submits a job of the runtime that asks and waits: the question has a log, and
// outlives the job that asked for it.
func (b *Tools) systemApproval(ctx context.Context, job tool.Job, who *approval.Actor, in approvalRequestIn) (arcp.QuestionView, error) {
	if call := engine.CallOf(ctx); call != nil { // the gate's job commits the question: after a crash this call goes on
		if err := call.Claim(); err != nil {
			return arcp.QuestionView{}, err
		}
	}
	id := approvalOf(job)
	changed, stop := b.Questions.Changed(id)
	defer stop()
	if row, _, err := b.Questions.Read(ctx, who, id); !notFound(err) { // an earlier attempt has asked it
		return view(&row, b.Questions.RequestOf(&row)), err
	}
	args, err := arcp.Marshal(approvalGateIn{in, id, who.Session})
	if err != nil {
		return arcp.QuestionView{}, err
	}
	failed, existing := make(chan *arcp.Error, 1), make(chan arcp.JobID, 1)
	b.Engine.SubmitOwn(who.Principal, "approval.gate", args, "gate/"+id, func(err *arcp.Error) { failed <- err }, func(gate arcp.JobID) { existing <- gate })
	for waits := true; waits; {
		select {
		case <-changed:
			waits = false
		case gate := <-existing: // of an earlier attempt; it may have ended without a word
			row, err := b.Store.Job(ctx, gate)
			if err != nil {
				return arcp.QuestionView{}, txn.Refusal(b.Logger, err, "read approval")
			}
			waits = !row.State.Terminal()
		case err := <-failed:
			return arcp.QuestionView{}, err
		case <-ctx.Done():
			return arcp.QuestionView{}, context.Cause(ctx)
		}
	}
	row, _, err := b.Questions.Read(ctx, who, id) // pending, or settled before anybody was told
	if notFound(err) {
		err = arcp.Errorf(arcp.CodeAborted, "the approval was not asked for: its job ended before")
	}
	return view(&row, b.Questions.RequestOf(&row)), err
}

func notFound(err error) bool {
	e, ok := errors.AsType[*arcp.Error](err)
	return ok && e.Code == arcp.CodeNotFound
}

// approvalGate asks and waits. Who asks for it never gives it.
func (b *Tools) approvalGate(ctx context.Context, job tool.Job, in approvalGateIn) (arcp.OutcomeView, error) {
	gates, ok := job.Host().(engine.Gates)
	if !ok {
		return arcp.OutcomeView{}, errNoCaller
	}
	if gates.Session() == "" {
		defer b.Questions.Wake(in.ApprovalID) // who has asked for it would wait in vain if it is not asked, or settled before it is
	}
	in.System = true
	if err := in.check(); err != nil {
		return arcp.OutcomeView{}, err
	}
	if job.Attempt() == 1 { // another one's question may be among those that are pending
		if err := b.Questions.Room(gates.Principal()); err != nil {
			return arcp.OutcomeView{}, err
		}
	}
	row := approval.Row{System: true, AgentID: in.AgentID, Action: in.Action, Details: in.Details, Quorum: in.Quorum}
	if caller := gates.Session(); caller == "" {
		row.ID, row.Barred = in.ApprovalID, []arcp.SessionID{in.RequestedBy}
	} else if in.ApprovalID != "" || in.RequestedBy != "" {
		return arcp.OutcomeView{}, arcp.Errorf(arcp.CodeInvalidArgument, "approval_id and requested_by are set by the runtime")
	}
	row.Barred = append(row.Barred, b.sessionsOfAgent(gates.Principal(), in.AgentID)...)
	if in.EscalateMS > 0 {
		row.EscalateAt = time.Now().Add(time.Duration(in.EscalateMS) * time.Millisecond).UTC()
	}
	row, err := gates.Gate(ctx, row, in.expiry())
	if err != nil {
		return arcp.OutcomeView{}, err
	}
	return arcp.OutcomeView{Outcome: outcomeOf(&row), Approval: view(&row, "")}, nil
}

// sessionsOfAgent returns the sessions of a registered agent. They may not approve what is
// asked in the name of the agent.
func (b *Tools) sessionsOfAgent(principal, id string) (ids []arcp.SessionID) {
	for _, a := range b.Agents.Host.Agents(principal) {
		if id != "" && a.ID == id {
			ids = append(ids, a.Session)
		}
	}
	return ids
}

// outcomeOf returns the outcome of a question. It is OutcomeApproved only if an actor chose the
// approving answer: another option is a denial, and a default is a timeout.
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

func (b *Tools) approvalList(ctx context.Context, job tool.Job, in approvalListIn) (page arcp.Page[arcp.QuestionView], err error) {
	who, err := b.caller(job)
	if err != nil {
		return page, err
	}
	if err := paging.OneOf("status", in.Status, arcp.QuestionStatuses); err != nil {
		return page, err
	}
	prefix := approval.RecordPrefix(who.Principal)
	if who.Admin || who.Sees != nil {
		prefix = approval.RecordPrefix("")
	}
	bound := []byte("approvals\x00" + string(who.Session) + "\x00" + prefix + "\x00" + in.Status)
	after, err := b.Cursors.OpenKey(in.Cursor, bound)
	if err != nil {
		return page, err
	}
	page.Items = []arcp.QuestionView{}
	now, scanned, size, last, more := time.Now().UTC(), 0, 0, "", false
	var bad error
	err = b.Store.Records(ctx, prefix, after, func(rec store.Record) bool {
		if len(page.Items) == cmp.Or(in.Limit, paging.DefaultLen) || scanned == paging.MaxScan || size >= paging.MaxBytes {
			more = true
			return false
		}
		scanned++
		size += len(rec.Value)
		last = rec.Key
		var row approval.Row
		if bad = arcp.Unmarshal(rec.Value, &row); bad != nil {
			return false
		}
		row.Advance(now)
		if row.Visible(&who) && (in.Status == "" || string(row.Status) == in.Status) {
			page.Items = append(page.Items, preview(&who, &row, b.Questions.RequestOf(&row)))
		}
		return true
	})
	if err = errors.Join(err, bad); err != nil {
		return page, txn.Refusal(b.Logger, err, "list approvals")
	}
	if more {
		page.NextCursor = b.Cursors.SealKey(last, bound)
	}
	return page, nil
}

func (b *Tools) approvalGet(ctx context.Context, job tool.Job, in approvalIDIn) (arcp.QuestionView, error) {
	who, err := b.caller(job)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	row, _, err := b.Questions.Read(ctx, &who, in.ApprovalID)
	return viewFor(&who, &row, b.Questions.RequestOf(&row)), err
}

func (b *Tools) approvalResolve(ctx context.Context, job tool.Job, in approvalResolveIn) (arcp.QuestionView, error) {
	if (in.Approved == nil) == (in.Resolution == "") {
		return arcp.QuestionView{}, arcp.Errorf(arcp.CodeInvalidArgument, "give either a resolution or approved")
	}
	if in.Approved != nil {
		if in.Resolution = approval.Deny; *in.Approved {
			in.Resolution = approval.Approve
		}
	}
	who, err := b.caller(job)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	row, _, err := b.Questions.Read(ctx, &who, in.ApprovalID)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	a := approval.Answer{Resolution: in.Resolution, Reason: in.Reason}
	switch {
	case row.Kind == approval.Input:
		return arcp.QuestionView{}, arcp.Errorf(arcp.CodeInvalidArgument, "the question wants a value: use approval.answer")
	case row.Kind == approval.Permission && in.Resolution == approval.Approve:
		a = approval.Answer{Grant: granted(row.Permission, "", 0)}
	case row.Kind == approval.Owned && row.Status == approval.Pending && who.Session != row.Session:
		return b.resolveRequested(ctx, &who, &row, in.Resolution)
	}
	return b.settle(ctx, &who, &row, &a)
}

// granted is a permission as it was asked for, or narrower.
func granted(asked *arcp.PermissionTerm, resource string, seconds uint64) *arcp.PermissionTerm {
	const hour = 3600
	g := *asked
	g.Resource = cmp.Or(resource, g.Resource)
	g.Seconds = cmp.Or(seconds, g.Seconds, hour)
	return &g
}

// resolveRequested asks the owner of an approval to resolve it as another session wants.
func (b *Tools) resolveRequested(ctx context.Context, who *approval.Actor, row *approval.Row, resolution string) (arcp.QuestionView, error) {
	if err := row.CheckOption(resolution); err != nil {
		return arcp.QuestionView{}, err
	}
	if b.Sessions.ConnOf(row.Session) == nil {
		return arcp.QuestionView{}, arcp.Errorf(arcp.CodeFailedPrecondition, "only session %s, which owns it, resolves this; it is not connected", row.Session)
	}
	b.Audit.Event("resolve_requested", who.Principal, who.Session).Str("target", row.ID).
		Str("owner_session", string(row.Session)).Str("decision", "pending").Msg("audit")
	err := b.Changes.Commit(ctx, nil, func(err error) {
		if err == nil {
			b.askOwner(who, row, resolution)
		}
	})
	if err == nil {
		b.Questions.ShowResolveRequested(ctx, who, row, resolution)
	}
	return viewFor(who, row, ""), err
}

// askOwner tells the session that owns an approval that another one wants it
// resolved.
func (b *Tools) askOwner(who *approval.Actor, row *approval.Row, resolution string) {
	data, err := arcp.Marshal(struct {
		ApprovalID   string         `json:"approval_id"`
		Resolution   string         `json:"resolution"`
		SessionID    arcp.SessionID `json:"session_id,omitzero"` // that wants it
		Principal    string         `json:"principal"`
		OwnerSession arcp.SessionID `json:"owner_session_id"`
	}{row.ID, resolution, questions.SessionOf(who, row), who.Principal, row.Session})
	if err != nil { // texts
		panic("runtime: approval.resolve_requested: " + err.Error())
	}
	b.tell(row.Session, "", arcp.EventEmit, arcp.EventEmitPayload{Name: "approval.resolve_requested", Data: data})
}

// settle gives an answer to a job that asks, or to the row of an approval that
// no job waits for.
func (b *Tools) settle(ctx context.Context, who *approval.Actor, row *approval.Row, a *approval.Answer) (arcp.QuestionView, error) {
	if row.Job == "" || row.Status != approval.Pending {
		return b.settleOwned(ctx, who, row.ID, a)
	}
	call, err := joining(ctx)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	done := make(chan questionOutcome, 1)
	b.Engine.Respond(engine.Respond{Job: row.Job, ID: row.ID, Who: *who, Answer: *a, Call: call, Value: valueFor(who),
		Done: func(row approval.Row, err *arcp.Error) { done <- questionOutcome{row, err} }})
	got := <-done // the job's supervisor answers, also when the job or the runtime ends
	b.Questions.AuditAnswer(who, row, a, got.err)
	return got.view(who)
}

// questionOutcome is the row of a question after an answer, or why the answer was refused.
type questionOutcome struct {
	row approval.Row
	err *arcp.Error
}

func (s *questionOutcome) view(who *approval.Actor) (arcp.QuestionView, error) {
	if s.err != nil {
		return arcp.QuestionView{}, s.err
	}
	return viewFor(who, &s.row, ""), nil
}

// joining returns the call that ctx belongs to, ready to end in another job's write;
// nil: there is none.
func joining(ctx context.Context) (*engine.Call, error) {
	call := engine.CallOf(ctx)
	if call == nil {
		return nil, nil
	}
	return call, call.Join()
}

// valueFor returns what a call that settles a question returns to its caller.
func valueFor(who *approval.Actor) func(approval.Row) arcp.Raw {
	return func(row approval.Row) arcp.Raw {
		raw, err := arcp.Marshal(viewFor(who, &row, ""))
		if err != nil { // the row was decoded, or encoded for the store
			panic("runtime: view of a question: " + err.Error())
		}
		return raw
	}
}

// settleOwned answers an approval that no job waits for. Of two answers one
// counts: the record has changed for the other.
func (b *Tools) settleOwned(ctx context.Context, who *approval.Actor, id string, a *approval.Answer) (arcp.QuestionView, error) {
	row, err := b.Questions.ChangeOwned(ctx, who, id, func(row *approval.Row) *arcp.Error { return row.Answer(time.Now().UTC(), who, a) })
	refused, _ := errors.AsType[*arcp.Error](err)
	b.Questions.AuditAnswer(who, &row, a, refused)
	return viewFor(who, &row, ""), err
}

func (b *Tools) approvalCancel(ctx context.Context, job tool.Job, in approvalIDIn) (arcp.QuestionView, error) {
	who, err := b.caller(job)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	row, _, err := b.Questions.Read(ctx, &who, in.ApprovalID)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	mine := row.Session == who.Session || row.System && len(row.Barred) > 0 && row.Barred[0] == who.Session
	switch {
	case !mine && !(who.Admin && (row.System || row.Kind == approval.Owned)):
		return arcp.QuestionView{}, arcp.Errorf(arcp.CodePermissionDenied, "only who has asked withdraws an approval")
	case row.Status != approval.Pending:
		return arcp.QuestionView{}, arcp.Errorf(arcp.CodeFailedPrecondition, "the approval is %s", row.Status)
	case row.Job != "" && !row.System:
		return arcp.QuestionView{}, arcp.Errorf(arcp.CodeFailedPrecondition, "job %s asks this: cancel the job", row.Job)
	}
	if !mine {
		b.Audit.Decision("withdraw", who.Principal, who.Session, row.ID, nil)
	}
	if row.Job == "" {
		row, err = b.Questions.ChangeOwned(ctx, &who, row.ID, func(row *approval.Row) *arcp.Error {
			if !row.Cancel(time.Now().UTC(), "withdrawn") {
				return arcp.Errorf(arcp.CodeFailedPrecondition, "the approval is %s", row.Status)
			}
			return nil
		})
		return viewFor(&who, &row, ""), err
	}
	return b.withdraw(ctx, &who, &row)
}

// withdraw ends the job that asks, which withdraws the question: its tool only
// asks. It may be settled before.
func (b *Tools) withdraw(ctx context.Context, who *approval.Actor, row *approval.Row) (arcp.QuestionView, error) {
	call, err := joining(ctx)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	done := make(chan questionOutcome, 1)
	b.Engine.Withdraw(engine.Withdraw{Job: row.Job, ID: row.ID, Call: call, Value: valueFor(who),
		Done: func(row approval.Row, err *arcp.Error) { done <- questionOutcome{row, err} }})
	got := <-done
	return got.view(who)
}

func (b *Tools) approvalWait(ctx context.Context, job tool.Job, in approvalWaitIn) (arcp.OutcomeView, error) {
	who, err := b.caller(job)
	if err != nil {
		return arcp.OutcomeView{}, err
	}
	timeout := defaultApprovalWait
	if in.TimeoutMS > 0 {
		timeout = min(time.Duration(in.TimeoutMS)*time.Millisecond, maxApprovalWait)
	}
	end := time.NewTimer(timeout)
	defer end.Stop()
	for {
		changed, stop := b.Questions.Changed(in.ApprovalID)
		row, _, err := b.Questions.Read(ctx, &who, in.ApprovalID)
		if err != nil || row.Status != approval.Pending {
			stop()
			return arcp.OutcomeView{Outcome: outcomeOf(&row), Approval: viewFor(&who, &row, "")}, err
		}
		select {
		case <-changed:
		case <-end.C:
			stop()
			return arcp.OutcomeView{Outcome: arcp.OutcomeTimedOut, Approval: viewFor(&who, &row, b.Questions.RequestOf(&row))}, nil
		case <-ctx.Done():
			stop()
			return arcp.OutcomeView{}, context.Cause(ctx)
		}
		stop()
	}
}

func (b *Tools) approvalQuestions(_ context.Context, job tool.Job, in approvalQuestionsIn) (page arcp.Page[arcp.QuestionView], err error) {
	who, err := b.caller(job)
	if err != nil {
		return page, err
	}
	bound := []byte("questions\x00" + string(who.Session))
	after, err := b.Cursors.OpenKey(in.Cursor, bound)
	if err != nil {
		return page, err
	}
	page.Items = []arcp.QuestionView{}
	size, last := 0, ""
	for _, a := range b.Questions.Visible(&who) { // by id
		if a.Row.ID <= after {
			continue
		}
		if len(page.Items) == cmp.Or(in.Limit, paging.DefaultLen) || size >= paging.MaxBytes {
			page.NextCursor = b.Cursors.SealKey(last, bound)
			break
		}
		last = a.Row.ID
		if a.Row.MayAnswer(&who) == nil {
			page.Items = append(page.Items, preview(&who, &a.Row, a.Request))
			size += len(a.Row.Action) + len(a.Row.Schema)
			for _, o := range a.Row.Options {
				size += len(o.ID) + len(o.Label)
			}
		}
	}
	return page, nil
}

func (b *Tools) approvalAnswer(ctx context.Context, job tool.Job, in approvalAnswerIn) (arcp.QuestionView, error) {
	who, err := b.caller(job)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	id := in.RequestID
	if a, ok := b.Questions.Find(id); ok {
		id = a.Row.ID
	}
	row, _, err := b.Questions.Read(ctx, &who, id)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	a, err := in.answer(&row)
	if err != nil {
		return arcp.QuestionView{}, err
	}
	return b.settle(ctx, &who, &row, a)
}

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
