package client

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Handlers answer the questions that jobs put to people (§3.5, §3.6). Without a
// handler for its kind a question is an event like any other, to be answered with
// RespondInput, RespondChoice, Grant or Deny. With Input or Choice the client
// offers the capability human_input, unless Capabilities say something else about
// it: it is then asked what any job of the principal asks.
//
// A handler has a goroutine of its own and returns the answer. An error is none:
// the question stays open for others. Its context ends when the question is
// settled otherwise, which its cause says as a *RemoteError, when the job ends,
// and with the client; the handler must then return, because Close and Abort wait
// for it. It must not call them. A connection that is lost and made again does not
// end it, and it is not called again for a question it has not finished with or
// has answered.
//
// An answer that the runtime finds invalid is told to the handler by calling it
// again, with Refused set, MaxTries times at most. Any other refusal means that
// the question is settled; it is only logged.
type Handlers struct {
	Permission func(context.Context, PermissionRequest) (PermissionAnswer, error)
	Input      func(context.Context, InputRequest) (value any, err error) // the value is encoded with arcp.Marshal
	Choice     func(context.Context, ChoiceRequest) (id string, err error)

	// By is who answers, as the job is told; default the kind of the client.
	By string
}

// MaxTries bounds the calls of a handler for one question.
const MaxTries = 10

// Question is what questions of all kinds have in common.
type Question struct {
	ID      arcp.MessageID // what answers are correlated to
	JobID   arcp.JobID
	TraceID string
	AskedAt time.Time
	Refused *RemoteError // why the answer before was not taken; nil at first
}

// PermissionRequest asks for a permission.
type PermissionRequest struct {
	Question
	arcp.PermissionRequestPayload
}

// PermissionAnswer grants a permission, or denies it. The zero value denies.
type PermissionAnswer struct {
	Grant    bool
	Resource string        // narrower than what was asked for; empty: all of that
	For      time.Duration // at least a second; 0: as long as was asked for, else an hour
	Reason   string        // of a denial
}

// InputRequest asks for a value.
type InputRequest struct {
	Question
	arcp.HumanInputRequestPayload
}

// ChoiceRequest asks to choose one of the options.
type ChoiceRequest struct {
	Question
	arcp.HumanChoiceRequestPayload
}

func (h *Handlers) any() bool { return h.Permission != nil || h.Input != nil || h.Choice != nil }

// person reports whether somebody answers what is asked of all sessions.
func (h *Handlers) person() bool { return h.Input != nil || h.Choice != nil }

// asker gets an answer from a handler, as the message to send.
type asker func(ctx context.Context, refused *RemoteError) (t arcp.Type, payload any, err error)

// asker is nil for what is no question, or one without a handler.
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

// grant is what was asked for, or less.
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

// seconds is a duration in whole seconds: a part of one counts.
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
