package client

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// RespondInput answers a human.input.request. question is the id of its message, and value is encoded
// with arcp.Marshal. A refusal is a *RemoteError. With INVALID_ARGUMENT the value violates the schema
// and the question stays open. With FAILED_PRECONDITION or NOT_FOUND the question is closed. After a
// lost connection NOT_FOUND may also mean that this answer was accepted.
func (c *Client) RespondInput(ctx context.Context, question arcp.MessageID, value any) error {
	p, err := c.opts.Handlers.inputResponse(value)
	if err != nil {
		return err
	}
	return c.respond(ctx, question, arcp.HumanInputResponse, p)
}

// RespondChoice answers a human.choice.request with the id of an option. It has the errors of
// RespondInput.
func (c *Client) RespondChoice(ctx context.Context, question arcp.MessageID, id string) error {
	return c.respond(ctx, question, arcp.HumanChoiceResponse, c.opts.Handlers.choiceResponse(id))
}

// GrantParams is the permission to grant.
type GrantParams struct {
	Permission string        // permission of the request
	Resource   string        // resource of the request, or a narrower one
	Operation  string        // operation of the request
	For        time.Duration // duration of the lease, rounded up to seconds; 0: 1 h
}

// Grant answers a permission.request with the requested permission or a part of it, and returns the
// lease. It has the errors of RespondInput.
func (c *Client) Grant(ctx context.Context, question arcp.MessageID, p GrantParams) (arcp.LeaseGrantedPayload, error) {
	env := arcp.Frame(arcp.PermissionGrant, arcp.PermissionGrantPayload{Permission: p.Permission, Resource: p.Resource,
		Operation: p.Operation, LeaseSeconds: cmp.Or(seconds(p.For), defaultGrantSeconds)})
	env.CorrelationID = question
	return granted(c.request(ctx, env, arcp.LeaseGranted, nil))
}

func granted(env arcp.Envelope, err error) (arcp.LeaseGrantedPayload, error) {
	if err != nil {
		return arcp.LeaseGrantedPayload{}, err
	}
	p, err := arcp.DecodePayload[arcp.LeaseGrantedPayload](&env)
	if err != nil {
		err = &ProtocolError{string(env.Type), err}
	}
	return p, err
}

// DenyParams is the permission to refuse.
type DenyParams struct {
	Permission string // permission of the request
	Reason     string // for people
}

// Deny answers a permission.request. It has the errors of RespondInput.
func (c *Client) Deny(ctx context.Context, question arcp.MessageID, p DenyParams) error {
	return c.respond(ctx, question, arcp.PermissionDeny, arcp.PermissionDenyPayload(p))
}

// respond sends an answer and waits until it is accepted.
func (c *Client) respond(ctx context.Context, question arcp.MessageID, t arcp.Type, payload any) error {
	env := arcp.Frame(t, payload)
	env.CorrelationID = question
	want := arcp.Ack
	if t == arcp.PermissionGrant {
		want = arcp.LeaseGranted
	}
	_, err := c.request(ctx, env, want, nil)
	return err
}

// Interrupt pauses a job and makes it ask, in a human.input.request with the prompt, whether to
// continue. It returns when the question is asked. A job that cannot be interrupted is a *RemoteError.
func (c *Client) Interrupt(ctx context.Context, id arcp.JobID, prompt string) error {
	p := arcp.InterruptPayload{Target: arcp.TargetJob, TargetID: string(id), Prompt: prompt}
	_, err := c.request(ctx, arcp.Frame(arcp.Interrupt, p), arcp.Ack, nil)
	return err
}

// ExtendLease requests more time for a permission lease of a job submitted by this session, and
// returns the new end.
func (c *Client) ExtendLease(ctx context.Context, id arcp.LeaseID, more time.Duration) (time.Time, error) {
	p, err := ask[arcp.LeaseExtendedPayload](ctx, c, arcp.LeaseRefresh,
		arcp.LeaseRefreshPayload{LeaseID: id, AdditionalSeconds: seconds(more)}, arcp.LeaseExtended)
	return p.ExpiresAt, err
}

// RevokeLease ends a permission lease that the principal of this client granted.
func (c *Client) RevokeLease(ctx context.Context, id arcp.LeaseID, reason string) error {
	_, err := c.request(ctx, arcp.Frame(arcp.LeaseRevoked, arcp.LeaseRevokedPayload{LeaseID: id, Reason: reason}), arcp.LeaseRevoked, nil)
	return err
}

// ElevateParams is a request for a higher trust level of the session.
type ElevateParams struct {
	Level  arcp.TrustLevel
	Reason string        // for the approver
	For    time.Duration // 0: the longest allowed duration
}

// Elevate requests a higher trust level and waits for the decision or the end of ctx. It returns
// the lease of the level. A denial is a *RemoteError with the type permission.deny.
//
// After a reconnect the request is repeated, and the approver is asked only once.
func (c *Client) Elevate(ctx context.Context, p ElevateParams) (arcp.LeaseGrantedPayload, error) {
	request := arcp.PermissionRequestPayload{
		Permission: "trust.elevate." + string(p.Level),
		Resource:   "session",
		Operation:  "elevate",
		Reason:     p.Reason,
	}
	if p.For > 0 {
		request.RequestedLeaseSeconds = new(seconds(p.For))
	}
	got, err := c.request(ctx, arcp.Frame(arcp.PermissionRequest, request), arcp.LeaseGranted, nil)
	if got.Type != arcp.PermissionDeny {
		return granted(got, err)
	}
	deny, err := arcp.DecodePayload[arcp.PermissionDenyPayload](&got)
	if err != nil {
		return arcp.LeaseGrantedPayload{}, &ProtocolError{string(got.Type), err}
	}
	return arcp.LeaseGrantedPayload{}, fmt.Errorf("elevate: %w", &RemoteError{Type: got.Type, Code: arcp.CodePermissionDenied,
		RawCode: string(arcp.CodePermissionDenied), Message: deny.Reason})
}
