// Package approval decides about questions to people: which sessions receive a question, which
// actors may answer it, and which answer counts. The package is pure: the time is an argument, and
// the caller stores and sends the new state of a question.
//
// The first valid answer counts. A question without an answer is never approved: it is denied,
// cancelled or expired.
package approval

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// Kind is the kind of a question: permission, input, choice, gate or owned approval.
type Kind = arcp.QuestionKind

// The kinds.
const (
	Permission = arcp.QuestionPermission
	Input      = arcp.QuestionInput
	Choice     = arcp.QuestionChoice
	Gate       = arcp.QuestionGate
	Owned      = arcp.QuestionOwned
)

// Status is the state of a question.
type Status = arcp.QuestionStatus

// The statuses.
const (
	Pending   = arcp.QuestionPending
	Resolved  = arcp.QuestionResolved
	Expired   = arcp.QuestionExpired
	Cancelled = arcp.QuestionCancelled
)

// Resolutions of gates, permissions and inputs.
const (
	Approve   = "approve"
	Deny      = "deny"
	Granted   = "granted"
	Answered  = "answered"
	ByDefault = "default" // the default value of an input; ResolvedBy and RespondedBy have it, too
)

// ApproveOrDeny has the options of a gate, and of an owned approval without other options.
var ApproveOrDeny = []arcp.Option{{ID: Approve, Label: "Approve"}, {ID: Deny, Label: "Deny"}}

// Bounds of a question.
const (
	DefaultExpiry = 24 * time.Hour
	MaxExpiry     = 30 * 24 * time.Hour
	MaxOptions    = 64
	MaxText       = 16 << 10  // bytes of the action, and of the reason of an answer
	MaxDetails    = 64 << 10  // bytes
	MaxValue      = 512 << 10 // bytes of an answer
	MaxQuorum     = 16        // principals
	MaxSent       = 1024      // latest sessions that received a question and are notified of its end
)

// Row is the stored form of a question.
type Row struct {
	ID        string         `json:"approval_id"`
	Kind      Kind           `json:"kind"`
	Principal string         `json:"principal"`
	Session   arcp.SessionID `json:"session_id,omitzero"` // session that asks, or that submitted the job that asks
	Job       arcp.JobID     `json:"job_id,omitzero"`
	AgentID   string         `json:"agent_id,omitzero"`
	System    bool           `json:"system_level,omitzero"`
	Interrupt bool           `json:"interrupt,omitzero"` // asked by an interrupt of a client, not by the tool

	// Ordinal is the number of the question in its attempt. Ordinal and Digest identify the
	// question when another attempt repeats it.
	Ordinal int    `json:"ordinal,omitzero"`
	Digest  string `json:"digest,omitzero"`
	JSeq    uint64 `json:"jseq,omitzero"` // number of its event in the job's log

	Action     string               `json:"action"` // the action to approve
	Details    arcp.Raw             `json:"details,omitzero"`
	Options    []arcp.Option        `json:"options,omitempty"`
	Schema     arcp.Raw             `json:"response_schema,omitzero"`
	Default    arcp.Raw             `json:"default,omitzero"`
	Permission *arcp.PermissionTerm `json:"permission,omitzero"`
	Quorum     int                  `json:"quorum,omitzero"` // principals that must approve; 0 counts as 1
	EscalateAt time.Time            `json:"escalate_at,omitzero"`

	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`

	Barred []arcp.SessionID `json:"barred,omitempty"` // sessions that must not answer a gate
	Sent   []arcp.SessionID `json:"sent,omitempty"`   // sessions that received the question
	Votes  []arcp.Vote      `json:"votes,omitempty"`

	Status      Status               `json:"status"`
	Resolution  string               `json:"resolution,omitzero"`
	Value       arcp.Raw             `json:"value,omitzero"`
	Grant       *arcp.PermissionTerm `json:"grant,omitzero"`
	Lease       arcp.LeaseID         `json:"lease_id,omitzero"` // lease of the grant
	Reason      string               `json:"reason,omitzero"`
	ResolvedBy  string               `json:"resolved_by,omitzero"`  // authenticated principal
	RespondedBy string               `json:"responded_by,omitzero"` // responder as named in the answer
	ResolvedIn  arcp.SessionID       `json:"resolved_in,omitzero"`
	ResolvedAt  time.Time            `json:"resolved_at,omitzero"`
}

// Subject describes what is asked: the action, or of a permission its term and the reason.
func (r *Row) Subject() string {
	switch {
	case r.Permission == nil:
		return r.Action
	case r.Action == "":
		return r.Permission.String()
	}
	return r.Permission.String() + ": " + r.Action
}

// Actor is a session that may receive, see and answer questions.
type Actor struct {
	Principal  string
	Session    arcp.SessionID
	HumanInput bool // the session has a human user
	Observer   bool // may only observe, and answer gates if it is an Approver
	Approver   bool // may answer gates
	Worker     bool // may execute jobs
	Admin      bool
	Sees       func(principal string) bool // principals that it may observe; nil: only its own
	Serves     func(principal string) bool // principals whose jobs it may execute; nil: only its own
	Executes   func(tool string) bool      // tools that it may execute; nil: all
	Lease      arcp.Raw                    // configured lease of the principal, for lease.Decode; empty: none
}

// Observes reports whether the actor may see jobs, events and questions of a principal.
func (a *Actor) Observes(principal string) bool {
	return a.Principal == principal || a.Admin || a.Sees != nil && a.Sees(principal)
}

// Visible reports whether the actor may see the question.
func (r *Row) Visible(actor *Actor) bool { return actor.Observes(r.Principal) }

// Answer is an answer to a question. The runtime adds the time.
type Answer struct {
	Resolution  string               // id of an option; Deny for a permission
	Value       arcp.Raw             // value of an input, valid against its schema
	Grant       *arcp.PermissionTerm // grant of a permission, no wider than requested
	Reason      string
	RespondedBy string
}

// IsFor reports whether a session is to receive the question now.
func (r *Row) IsFor(actor *Actor, now time.Time) bool {
	return !slices.Contains(r.Sent, actor.Session) && r.suits(actor, now)
}

// Recipients returns IsFor at a time, for many sessions: a call does not search the whole of Sent.
func (r *Row) Recipients(now time.Time) func(*Actor) bool {
	sent := make(map[arcp.SessionID]struct{}, len(r.Sent))
	for _, id := range r.Sent {
		sent[id] = struct{}{}
	}
	return func(actor *Actor) bool {
		_, has := sent[actor.Session]
		return !has && r.suits(actor, now)
	}
}

// suits is IsFor for a session that has not received the question.
func (r *Row) suits(actor *Actor, now time.Time) bool {
	if r.Status != Pending || !now.Before(r.ExpiresAt) {
		return false
	}
	own := actor.Principal == r.Principal
	switch r.Kind {
	case Permission:
		return own && !actor.Observer && (actor.HumanInput || actor.Session == r.Session)
	case Input, Choice:
		return own && !actor.Observer && actor.HumanInput
	case Gate:
		waits := actor.Admin && !own && !r.EscalateAt.IsZero() && now.Before(r.EscalateAt)
		return actor.HumanInput && !waits && r.MayAnswer(actor) == nil
	}
	return false
}

// MayAnswer refuses an actor that must not answer: NOT_FOUND for a question that it may not
// see, FAILED_PRECONDITION for an owned approval of another session, else PERMISSION_DENIED.
func (r *Row) MayAnswer(actor *Actor) *arcp.Error {
	if !actor.Observes(r.Principal) {
		return notFound(r.ID)
	}
	switch r.Kind {
	case Permission, Input, Choice:
		switch {
		case actor.Observer:
			return denied("an observer answers nothing")
		case actor.Principal != r.Principal && !actor.Admin:
			return denied("only %s may answer this", r.Principal)
		}
	case Gate:
		switch {
		case slices.Contains(r.Barred, actor.Session):
			return denied("who asks for an approval cannot give it")
		case !actor.Approver && !actor.Admin:
			return denied("this needs the role approver")
		}
	case Owned:
		if actor.Session != r.Session || actor.Observer {
			return arcp.Errorf(arcp.CodeFailedPrecondition, "only session %s, which owns it, resolves this", r.Session)
		}
	default: // another version's
		return denied("nobody may answer this")
	}
	return nil
}

func denied(format string, args ...any) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, format, args...)
}

func notFound(id string) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such question: %s", id)
}

// checkPending refuses an answer to a question that is not pending.
func (r *Row) checkPending(now time.Time) *arcp.Error {
	switch {
	case r.Status == Resolved:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "already resolved: %s", r.Resolution)
	case r.Status == Cancelled:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the question is cancelled (%s): it needs no answer", r.Reason)
	case r.Status == Expired, !now.Before(r.ExpiresAt):
		return arcp.Errorf(arcp.CodeFailedPrecondition, "expired at %s", r.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return nil
}

// Answer applies an answer. The first valid answer resolves the question. A gate with a quorum
// stays pending until enough principals have approved it, or one has denied it. A principal has one
// vote.
func (r *Row) Answer(now time.Time, actor *Actor, a *Answer) *arcp.Error {
	if err := r.MayAnswer(actor); err != nil {
		return err
	}
	if err := r.checkPending(now); err != nil {
		return err
	}
	if err := r.checkAnswer(a); err != nil {
		return err
	}
	if r.Kind == Gate && a.Resolution == Approve && r.Quorum > 1 {
		if slices.ContainsFunc(r.Votes, func(v arcp.Vote) bool { return v.Principal == actor.Principal }) {
			return arcp.Errorf(arcp.CodeFailedPrecondition, "%s has approved already; %d others are needed", actor.Principal, r.Quorum-len(r.Votes))
		}
		r.Votes = append(slices.Clip(r.Votes), arcp.Vote{Principal: actor.Principal, Resolution: a.Resolution, At: now})
		if len(r.Votes) < r.Quorum {
			return nil
		}
	}
	r.Status, r.ResolvedAt = Resolved, now
	r.Resolution, r.Value, r.Grant, r.Reason = a.resolution(r.Kind), a.Value, a.Grant, a.Reason
	r.ResolvedBy, r.RespondedBy, r.ResolvedIn = actor.Principal, a.RespondedBy, actor.Session
	return nil
}

// resolution returns the resolution of a question of kind k with this answer.
func (a *Answer) resolution(k Kind) string {
	switch {
	case k == Permission && a.Grant != nil:
		return Granted
	case k == Input:
		return Answered
	}
	return a.Resolution
}

// checkAnswer refuses an answer that does not match the question, or is too large.
func (r *Row) checkAnswer(a *Answer) *arcp.Error {
	switch {
	case len(a.Reason) > MaxText || len(a.RespondedBy) > MaxText:
		return arcp.Errorf(arcp.CodeInvalidArgument, "an answer's texts may have at most %d bytes", MaxText)
	case !utf8.ValidString(a.Reason) || !utf8.ValidString(a.RespondedBy):
		return arcp.Errorf(arcp.CodeInvalidArgument, "an answer's texts must be UTF-8")
	case len(a.Value) > MaxValue:
		return arcp.Errorf(arcp.CodeInvalidArgument, "an answer's value may have at most %d bytes", MaxValue)
	case len(a.Value) > 0 && !a.Value.IsValid():
		return arcp.Errorf(arcp.CodeInvalidArgument, "the answer's value must be JSON")
	case r.Kind == Permission && (a.Grant == nil) != (a.Resolution == Deny):
		return arcp.Errorf(arcp.CodeInvalidArgument, "a permission is granted or denied")
	case r.Kind == Permission && a.Grant != nil &&
		(a.Grant.Permission != r.Permission.Permission || a.Grant.Operation != r.Permission.Operation):
		return arcp.Errorf(arcp.CodeInvalidArgument, "what was asked is %s to %s, not %s to %s",
			r.Permission.Permission, r.Permission.Operation, a.Grant.Permission, a.Grant.Operation)
	case r.Kind == Input && len(a.Value) == 0:
		return arcp.Errorf(arcp.CodeInvalidArgument, "the answer needs a value")
	case r.Kind == Permission, r.Kind == Input:
		return nil
	}
	return r.CheckOption(a.Resolution)
}

// CheckOption returns INVALID_ARGUMENT if no option has the id.
func (r *Row) CheckOption(id string) *arcp.Error {
	if slices.ContainsFunc(r.Options, func(o arcp.Option) bool { return o.ID == id }) {
		return nil
	}
	return arcp.Errorf(arcp.CodeInvalidArgument, "%q is none of the options", id)
}

// Deadline returns when Advance or Escalate must be called; zero: never.
func (r *Row) Deadline() time.Time {
	switch {
	case r.Status != Pending:
		return time.Time{}
	case !r.EscalateAt.IsZero() && r.EscalateAt.Before(r.ExpiresAt):
		return r.EscalateAt
	}
	return r.ExpiresAt
}

// Advance resolves an expired question: an input with its default value, others as Expired. It
// reports whether the question has changed.
func (r *Row) Advance(now time.Time) bool {
	if r.Status != Pending || now.Before(r.ExpiresAt) {
		return false
	}
	r.ResolvedAt = now
	if r.Kind == Input && len(r.Default) > 0 {
		r.Status, r.Resolution, r.Value = Resolved, ByDefault, r.Default
		r.ResolvedBy, r.RespondedBy = ByDefault, ByDefault
		return true
	}
	r.Status = Expired
	return true
}

// Escalate clears EscalateAt when that time has come, and reports whether it did. The admins of
// other principals then receive the question.
func (r *Row) Escalate(now time.Time) bool {
	if r.Status != Pending || r.EscalateAt.IsZero() || now.Before(r.EscalateAt) {
		return false
	}
	r.EscalateAt = time.Time{}
	return true
}

// Cancel cancels a pending question, and reports whether it was pending.
func (r *Row) Cancel(now time.Time, reason string) bool {
	if r.Status != Pending {
		return false
	}
	r.Status, r.Reason, r.ResolvedAt = Cancelled, reason, now
	return true
}

// Approved reports whether the question is a gate and was approved.
func (r *Row) Approved() bool {
	return r.Kind == Gate && r.Status == Resolved && r.Resolution == Approve
}

// OtherSessions returns the sessions that received the question, without the one that answered it.
func (r *Row) OtherSessions() []arcp.SessionID {
	return slices.DeleteFunc(slices.Clone(r.Sent), func(id arcp.SessionID) bool { return id == r.ResolvedIn })
}

// CheckOptions returns INVALID_ARGUMENT for no options, more than MaxOptions, or equal ids.
func CheckOptions(options []arcp.Option) *arcp.Error {
	if len(options) == 0 || len(options) > MaxOptions {
		return arcp.Errorf(arcp.CodeInvalidArgument, "there must be 1 to %d options", MaxOptions)
	}
	for i, o := range options {
		switch {
		case o.ID == "" || len(o.ID) > arcp.MaxIDLen:
			return arcp.Errorf(arcp.CodeInvalidArgument, "option %d: the id must have 1 to %d bytes", i, arcp.MaxIDLen)
		case len(o.Label) > MaxText:
			return arcp.Errorf(arcp.CodeInvalidArgument, "option %q: the label may have at most %d bytes", o.ID, MaxText)
		case slices.ContainsFunc(options[:i], func(p arcp.Option) bool { return p.ID == o.ID }):
			return arcp.Errorf(arcp.CodeInvalidArgument, "option %q is there twice", o.ID)
		}
	}
	return nil
}
