package question

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// Bounds of the content of a question.
const (
	MaxDepth = arcp.MaxDepth - 2 // of nested JSON

	requestBytes = 1 << 10 // bound of the event of a question without its content
)

// Complete sets the state and the times of a new question. wait is how long it stays open; zero or
// less: approval.DefaultExpiry.
func Complete(row *approval.Row, now time.Time, wait time.Duration) {
	if wait <= 0 {
		wait = approval.DefaultExpiry
	}
	row.Status = approval.Pending
	row.CreatedAt = now.UTC().Truncate(time.Microsecond)
	row.ExpiresAt = row.CreatedAt.Add(min(wait, approval.MaxExpiry))
}

// Digest identifies the content of a question for later attempts. It refuses a question that cannot
// be asked: INVALID_ARGUMENT or RESOURCE_EXHAUSTED. maxEvent bounds the event, in bytes.
func Digest(q *approval.Row, maxEvent int) (string, *arcp.Error) {
	if len(q.Action) > approval.MaxText {
		return "", tooLong("its text may have at most %d bytes", approval.MaxText)
	}
	raw, err := arcp.Marshal(approval.Row{Kind: q.Kind, Action: q.Action, Details: q.Details, Options: q.Options,
		Schema: q.Schema, Default: q.Default, Permission: q.Permission, Quorum: q.Quorum})
	if err == nil {
		raw, err = arcp.Canonical(raw)
	}
	switch {
	case err != nil:
		return "", arcp.Errorf(arcp.CodeInvalidArgument, "the question is not valid JSON")
	case arcp.DeeperThan(raw, MaxDepth+1): // the row is a level, too
		return "", arcp.Errorf(arcp.CodeInvalidArgument, "the question is nested deeper than %d levels", MaxDepth)
	case len(raw) > maxEvent-requestBytes:
		return "", tooLong("the question may have at most %d bytes", maxEvent-requestBytes)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

func tooLong(format string, limit int) *arcp.Error {
	e := arcp.Errorf(arcp.CodeResourceExhausted, format, limit)
	e.Retryable = false // it would be as long again
	return e
}

// Request returns the message that delivers a question.
func Request(q *approval.Row) (arcp.Type, any) {
	switch q.Kind {
	case approval.Permission:
		p := arcp.PermissionRequestPayload{Permission: q.Permission.Permission, Resource: q.Permission.Resource,
			Operation: q.Permission.Operation, Reason: q.Action, ApprovalID: q.ID}
		if q.Permission.Seconds > 0 {
			p.RequestedLeaseSeconds = &q.Permission.Seconds
		}
		return arcp.PermissionRequest, p
	case approval.Input:
		schema := q.Schema
		if len(schema) == 0 {
			schema = arcp.Raw("{}") // any value; published clients insist on the member
		}
		return arcp.HumanInputRequest, arcp.HumanInputRequestPayload{Prompt: q.Action, ResponseSchema: schema,
			Default: q.Default, ExpiresAt: q.ExpiresAt, ApprovalID: q.ID}
	}
	return arcp.HumanChoiceRequest, arcp.HumanChoiceRequestPayload{Prompt: q.Action, Options: q.Options,
		ExpiresAt: q.ExpiresAt, Details: q.Details, ApprovalID: q.ID}
}

// ApprovalRequested returns the event with which the followers of a job see that the job waits for
// an approval. They do not get the question.
func ApprovalRequested(q *approval.Row) arcp.EventEmitPayload {
	data, err := arcp.Marshal(arcp.ApprovalRequested{ApprovalID: q.ID, Action: q.Subject(), ExpiresAt: q.ExpiresAt})
	if err != nil { // two texts and a time
		panic("question: " + err.Error())
	}
	return arcp.EventEmitPayload{Name: arcp.EventApprovalRequested, Data: data}
}

// Notice returns the message for sessions that got a question and have not answered it.
func Notice(q *approval.Row) arcp.HumanInputCancelledPayload {
	switch {
	case q.Status == approval.Expired:
		return arcp.HumanInputCancelledPayload{Code: arcp.CodeDeadlineExceeded, Reason: "expired"}
	case q.Status == approval.Cancelled:
		return arcp.HumanInputCancelledPayload{Code: arcp.CodeCancelled, Reason: q.Reason}
	case q.Resolution == approval.ByDefault:
		return arcp.HumanInputCancelledPayload{Code: arcp.CodeDeadlineExceeded, Reason: "the default was taken"}
	}
	return arcp.HumanInputCancelledPayload{Code: arcp.CodeCancelled, Reason: "answered"}
}

// Refusal returns the error of the tool for a question that was denied, withdrawn or not answered.
func Refusal(q *approval.Row) *arcp.Error {
	switch {
	case q.Status == approval.Expired && (q.Kind == approval.Input || q.Kind == approval.Choice):
		return arcp.Errorf(arcp.CodeDeadlineExceeded, "no answer arrived in time")
	case q.Status == approval.Expired:
		e := arcp.Errorf(arcp.CodePermissionDenied, "no answer arrived in time")
		e.Cause = &arcp.Cause{Code: arcp.CodeDeadlineExceeded, Message: "the question expired"}
		return e
	case q.Status == approval.Cancelled:
		return arcp.Errorf(arcp.CodeCancelled, "the question was withdrawn%s", because(q.Reason))
	}
	return arcp.Errorf(arcp.CodePermissionDenied, "denied%s", because(q.Reason))
}

// LogText returns the message of Refusal without the reason, in which a person may repeat the question.
func LogText(q *approval.Row) string {
	q = new(*q)
	q.Reason = ""
	return Refusal(q).Message
}

// because returns a reason as the end of a message.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// InterruptExpiry is how long an interrupted job waits for guidance (SPEC.md §5.14).
const InterruptExpiry = time.Hour

// The answers to an interrupt.
const (
	continueJob = "continue"
	cancelJob   = "cancel"
)

var interruptSchema = arcp.Raw(`{"type":"object","properties":{"action":{"enum":["` + continueJob + `","` + cancelJob +
	`"]},"guidance":{"type":"string","maxLength":16384}},"required":["action"]}`)

// NewInterrupt returns the question of an interrupt.
func NewInterrupt(prompt string) approval.Row {
	return approval.Row{Kind: approval.Input, Interrupt: true, Action: prompt, Schema: interruptSchema}
}

// Guidance is the answer to an interrupt.
type Guidance struct {
	Action string `json:"action"`
	Text   string `json:"guidance"`
}

// Cancels reports whether the job is to be cancelled.
func (g Guidance) Cancels() bool { return g.Action == cancelJob }

// GuidanceOf decodes the answer to an interrupt. An answer satisfies the schema, so there is no error
// for one.
func GuidanceOf(q *approval.Row) (g Guidance, err error) {
	err = arcp.Unmarshal(q.Value, &g)
	return g, err
}
