package client

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Handlers answer the questions of jobs to people (§3.5, §3.6). Without a handler for
// its kind a question is an event like any other, to be answered with RespondInput,
// RespondChoice, Grant or Deny. With Input or Choice the client offers the capability
// human_input, unless Capabilities set it, and receives the questions of all jobs of
// the principal.
//
// A handler runs on a goroutine of its own and returns the answer. After an error the
// question stays open for others. Its context ends with the client, with the job, and
// when the question is closed otherwise; the cause is then a *RemoteError. The handler
// must return then: Close and Abort wait for it. It must not call them. A lost
// connection does not end it. It is not called again for a question that it handles or
// has answered.
//
// The handler is called again after an invalid answer, with Refused set, at most
// MaxTries times. Any other refusal is logged: the question is closed.
type Handlers struct {
	Permission func(context.Context, PermissionRequest) (PermissionAnswer, error)
	Input      func(context.Context, InputRequest) (value any, err error) // the value is encoded with arcp.Marshal
	Choice     func(context.Context, ChoiceRequest) (id string, err error)

	// By is the responded_by of answers; default the kind of the client.
	By string
}

// MaxTries bounds the calls of a handler for one question.
const MaxTries = 10

// Question holds the common members of all kinds of questions.
type Question struct {
	ID      arcp.MessageID // correlation_id of answers
	JobID   arcp.JobID
	TraceID string
	AskedAt time.Time
	Refused *RemoteError // why the previous answer was refused; nil at first
}

// PermissionRequest is a question for a permission.
type PermissionRequest struct {
	Question
	arcp.PermissionRequestPayload
}

// PermissionAnswer grants a permission, or denies it. The zero value denies.
type PermissionAnswer struct {
	Grant    bool
	Resource string        // narrower than the requested one; empty: the requested one
	For      time.Duration // at least a second; 0: the requested duration, else an hour
	Reason   string        // of a denial
}

// InputRequest is a question for a value.
type InputRequest struct {
	Question
	arcp.HumanInputRequestPayload
}

// ChoiceRequest is a question for one of its options.
type ChoiceRequest struct {
	Question
	arcp.HumanChoiceRequestPayload
}

func (h *Handlers) any() bool { return h.Permission != nil || h.Input != nil || h.Choice != nil }

// person reports whether a handler answers the questions that all sessions receive.
func (h *Handlers) person() bool { return h.Input != nil || h.Choice != nil }

// asker calls a handler and returns its answer as a message.
type asker func(ctx context.Context, refused *RemoteError) (t arcp.Type, payload any, err error)

// asker returns nil for a message that is no question, or has no handler.
func (h *Handlers) asker(env *arcp.Envelope) (asker, error) {
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

func (h *Handlers) permission(q PermissionRequest) asker {
	return func(ctx context.Context, refused *RemoteError) (arcp.Type, any, error) {
		q.Refused = refused
		a, err := h.Permission(ctx, q)
		if !a.Grant {
			return arcp.PermissionDeny, arcp.PermissionDenyPayload{Permission: q.Permission, Reason: cmp.Or(a.Reason, "denied")}, err
		}
		return arcp.PermissionGrant, a.grant(&q.PermissionRequestPayload), err
	}
}

// grant returns the grant of a request, or of less.
func (a *PermissionAnswer) grant(asked *arcp.PermissionRequestPayload) arcp.PermissionGrantPayload {
	const hour = 3600
	g := arcp.PermissionGrantPayload{Permission: asked.Permission, Resource: cmp.Or(a.Resource, asked.Resource),
		Operation: asked.Operation, LeaseSeconds: seconds(a.For)}
	if g.LeaseSeconds == 0 && asked.RequestedLeaseSeconds != nil {
		g.LeaseSeconds = *asked.RequestedLeaseSeconds
	}
	g.LeaseSeconds = cmp.Or(g.LeaseSeconds, hour)
	return g
}

// seconds returns a duration in whole seconds, rounded up.
func seconds(d time.Duration) uint64 { return uint64(math.Ceil(max(d, 0).Seconds())) }

func (h *Handlers) input(q InputRequest) asker {
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

func (h *Handlers) choice(q ChoiceRequest) asker {
	return func(ctx context.Context, refused *RemoteError) (arcp.Type, any, error) {
		q.Refused = refused
		id, err := h.Choice(ctx, q)
		return arcp.HumanChoiceResponse, h.choiceResponse(id), err
	}
}

func (h *Handlers) choiceResponse(id string) arcp.HumanChoiceResponsePayload {
	return arcp.HumanChoiceResponsePayload{ChoiceID: id, RespondedBy: h.By, RespondedAt: time.Now()}
}
