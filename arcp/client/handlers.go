package client

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Handlers answer the questions of jobs to people (§3.5, §3.6). A question without a handler is an
// ordinary event; RespondInput, RespondChoice, Grant and Deny answer it. With Input or Choice the
// client offers the capability human_input, unless Capabilities sets it. It then receives the questions
// of all jobs of the principal.
//
// A handler runs on its own goroutine and returns the answer. After an error the question stays open
// for other sessions. The context of a handler ends with the client, with the job, and when the question
// is closed by others; the cause is then a *RemoteError. The handler must then return, because Close and
// Abort wait for it. It must not call them. A lost connection does not end the context. A handler is not
// called again for a question that it is handling or has answered.
//
// After an invalid answer the handler is called again with Refused set, at most MaxHandlerCalls
// times. After any other refusal, which is logged, the question is closed.
type Handlers struct {
	Permission func(context.Context, PermissionRequest) (PermissionAnswer, error)
	Input      func(context.Context, InputRequest) (value any, err error) // value is encoded with arcp.Marshal
	Choice     func(context.Context, ChoiceRequest) (id string, err error)

	// By is the member responded_by of answers; default: the kind of the client.
	By string
}

// MaxHandlerCalls bounds the calls of a handler for one question.
const MaxHandlerCalls = 10

// Question has the members common to all kinds of questions.
type Question struct {
	ID      arcp.MessageID // correlation_id of answers
	JobID   arcp.JobID
	TraceID string
	AskedAt time.Time
	Refused *RemoteError // refusal of the previous answer; nil for the first
}

// PermissionRequest is a request for a permission.
type PermissionRequest struct {
	Question
	arcp.PermissionRequestPayload
}

// PermissionAnswer grants a permission, or denies it. The zero value denies.
type PermissionAnswer struct {
	Grant    bool
	Resource string        // narrower than requested; empty: as requested
	For      time.Duration // at least 1 s; 0: as requested, or else 1 h
	Reason   string        // reason of a denial
}

// InputRequest is a request for a value.
type InputRequest struct {
	Question
	arcp.HumanInputRequestPayload
}

// ChoiceRequest is a request to choose an option.
type ChoiceRequest struct {
	Question
	arcp.HumanChoiceRequestPayload
}

func (h *Handlers) any() bool { return h.Permission != nil || h.Input != nil || h.Choice != nil }

// person reports whether a handler answers questions that all sessions receive.
func (h *Handlers) person() bool { return h.Input != nil || h.Choice != nil }

// answerFunc calls a handler and returns its answer as a message.
type answerFunc func(ctx context.Context, refused *RemoteError) (t arcp.Type, payload any, err error)

// answerFunc returns nil for a message that is not a question or has no handler.
func (h *Handlers) answerFunc(env *arcp.Envelope) (answerFunc, error) {
	q := Question{ID: env.ID, JobID: env.JobID, TraceID: env.TraceID, AskedAt: env.Timestamp}
	switch {
	case env.Type == arcp.PermissionRequest && h.Permission != nil:
		p, err := arcp.DecodePayload[arcp.PermissionRequestPayload](env)
		return h.permission(PermissionRequest{q, p}), err
	case env.Type == arcp.HumanInputRequest && h.Input != nil:
		p, err := arcp.DecodePayload[arcp.HumanInputRequestPayload](env)
		return h.input(InputRequest{q, p}), err
	case env.Type == arcp.HumanChoiceRequest && h.Choice != nil:
		p, err := arcp.DecodePayload[arcp.HumanChoiceRequestPayload](env)
		return h.choice(ChoiceRequest{q, p}), err
	}
	return nil, nil
}

func (h *Handlers) permission(q PermissionRequest) answerFunc {
	return func(ctx context.Context, refused *RemoteError) (arcp.Type, any, error) {
		q.Refused = refused
		a, err := h.Permission(ctx, q)
		if !a.Grant {
			return arcp.PermissionDeny, arcp.PermissionDenyPayload{Permission: q.Permission, Reason: cmp.Or(a.Reason, "denied")}, err
		}
		return arcp.PermissionGrant, a.grant(&q.PermissionRequestPayload), err
	}
}

// defaultGrantSeconds is the duration of a granted permission if neither side names one.
const defaultGrantSeconds = 3600

// grant returns the payload that grants the request, or a part of it.
func (a *PermissionAnswer) grant(request *arcp.PermissionRequestPayload) arcp.PermissionGrantPayload {
	g := arcp.PermissionGrantPayload{Permission: request.Permission, Resource: cmp.Or(a.Resource, request.Resource),
		Operation: request.Operation, LeaseSeconds: seconds(a.For)}
	if g.LeaseSeconds == 0 && request.RequestedLeaseSeconds != nil {
		g.LeaseSeconds = *request.RequestedLeaseSeconds
	}
	g.LeaseSeconds = cmp.Or(g.LeaseSeconds, defaultGrantSeconds)
	return g
}

// seconds returns a duration in whole seconds, rounded up.
func seconds(d time.Duration) uint64 { return uint64(math.Ceil(max(d, 0).Seconds())) }

func (h *Handlers) input(q InputRequest) answerFunc {
	return func(ctx context.Context, refused *RemoteError) (arcp.Type, any, error) {
		q.Refused = refused
		value, err := h.Input(ctx, q)
		if err != nil {
			return "", nil, err
		}
		p, err := h.inputResponse(value)
		return arcp.HumanInputResponse, p, err
	}
}

func (h *Handlers) inputResponse(value any) (arcp.HumanInputResponsePayload, error) {
	raw, err := arcp.Marshal(value)
	if err != nil {
		err = fmt.Errorf("encode the answer: %w", err)
	}
	return arcp.HumanInputResponsePayload{Value: raw, RespondedBy: h.By, RespondedAt: time.Now()}, err
}

func (h *Handlers) choice(q ChoiceRequest) answerFunc {
	return func(ctx context.Context, refused *RemoteError) (arcp.Type, any, error) {
		q.Refused = refused
		id, err := h.Choice(ctx, q)
		return arcp.HumanChoiceResponse, h.choiceResponse(id), err
	}
}

func (h *Handlers) choiceResponse(id string) arcp.HumanChoiceResponsePayload {
	return arcp.HumanChoiceResponsePayload{ChoiceID: id, RespondedBy: h.By, RespondedAt: time.Now()}
}
