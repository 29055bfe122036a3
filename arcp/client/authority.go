package client

import (
	"context"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// RespondInput answers a human.input.request, which is named by the id of its
// message, with a value encoded with arcp.Marshal. A refusal is a *RemoteError:
// INVALID_ARGUMENT when the value is not what was asked for, and the question is
// still open; FAILED_PRECONDITION or NOT_FOUND when it is not. After a lost
// connection the last may also mean that this answer was the one that counted.
func (c *Client) RespondInput(ctx context.Context, question arcp.MessageID, value any) error {
	p, err := c.opts.Handlers.inputResponse(value)
	if err != nil {
		return err
	}
	return c.respond(ctx, question, arcp.HumanInputResponse, p)
}

// RespondChoice answers a human.choice.request with the id of an option. Errors
// are those of RespondInput.
func (c *Client) RespondChoice(ctx context.Context, question arcp.MessageID, id string) error {
	return c.respond(ctx, question, arcp.HumanChoiceResponse, c.opts.Handlers.choiceResponse(id))
}

// Grant answers a permission.request with what was asked for, or less, and returns
// the lease. Errors are those of RespondInput.
func (c *Client) Grant(ctx context.Context, question arcp.MessageID, p arcp.PermissionGrantPayload) (arcp.LeaseGrantedPayload, error) {
	env := arcp.Frame(arcp.PermissionGrant, p)
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

// Deny answers a permission.request. Errors are those of RespondInput.
func (c *Client) Deny(ctx context.Context, question arcp.MessageID, permission, reason string) error {
	return c.respond(ctx, question, arcp.PermissionDeny, arcp.PermissionDenyPayload{Permission: permission, Reason: reason})
}

// respond sends an answer and waits until it was taken.
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

// Interrupt has a job stop where it can and ask, as a human.input.request, whether
// it shall go on. It returns when the question is asked. A job whose tool cannot
// be interrupted is a *RemoteError.
func (c *Client) Interrupt(ctx context.Context, id arcp.JobID, prompt string) error {
	p := arcp.InterruptPayload{Target: arcp.TargetJob, TargetID: string(id), Prompt: prompt}
	_, err := c.request(ctx, arcp.Frame(arcp.Interrupt, p), arcp.Ack, nil)
	return err
}

// ExtendLease asks for more time for a permission lease of a job that this session
// submitted, and returns when it ends now.
func (c *Client) ExtendLease(ctx context.Context, id arcp.LeaseID, more time.Duration) (time.Time, error) {
	p, err := ask[arcp.LeaseExtendedPayload](ctx, c, arcp.LeaseRefresh,
		arcp.LeaseRefreshPayload{LeaseID: id, AdditionalSeconds: seconds(more)}, arcp.LeaseExtended)
	return p.ExpiresAt, err
}

// RevokeLease ends a permission lease that this client's principal granted.
func (c *Client) RevokeLease(ctx context.Context, id arcp.LeaseID, reason string) error {
	_, err := c.request(ctx, arcp.Frame(arcp.LeaseRevoked, arcp.LeaseRevokedPayload{LeaseID: id, Reason: reason}), arcp.LeaseRevoked, nil)
	return err
}

// Elevate asks for the session to be trusted as level for d, 0 for as long as may
// be, and waits until somebody has decided, which may take as long as ctx allows.
// It returns the lease that the trust ends with. A denial is a *RemoteError with
// the type permission.deny.
//
// It is asked again over the next connection, and people are asked once.
func (c *Client) Elevate(ctx context.Context, level, reason string, d time.Duration) (arcp.LeaseGrantedPayload, error) {
	p := arcp.PermissionRequestPayload{Permission: "trust.elevate." + level, Resource: "session", Operation: "elevate", Reason: reason}
	if d > 0 {
		p.RequestedLeaseSeconds = new(seconds(d))
	}
	got, err := c.request(ctx, arcp.Frame(arcp.PermissionRequest, p), arcp.LeaseGranted, nil)
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
