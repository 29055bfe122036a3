package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
)

// of returns the job here that one there is: a question comes after the acceptance
// of its job. There is none for the jobs that the program's jobs call.
func (c *calls) of(there arcp.JobID) (tool.Job, error) {
	if k := c.find(there); k != nil {
		return k.job, nil
	}
	return tool.Job{}, fmt.Errorf("%s is no job of this runtime", there)
}

// left is the time until a question expires; at least a little.
func left(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(time.Until(at), time.Millisecond)
}

// refused reports an answer that was not taken there. It would not be another one
// if it were asked for again.
func refused(q *client.Question) error {
	if q.Refused == nil {
		return nil
	}
	return fmt.Errorf("the program did not take the answer: %w", q.Refused)
}

func (c *calls) input(ctx context.Context, q client.InputRequest) (any, error) {
	job, err := c.of(q.JobID)
	if err = errors.Join(err, refused(&q.Question)); err != nil {
		return nil, err
	}
	a, err := job.Ask(ctx, tool.InputAsk{Prompt: q.Prompt, Schema: q.ResponseSchema, Default: q.Default, Expires: left(q.ExpiresAt)})
	return a.Value, err
}

func (c *calls) choice(ctx context.Context, q client.ChoiceRequest) (string, error) {
	job, err := c.of(q.JobID)
	if err = errors.Join(err, refused(&q.Question)); err != nil {
		return "", err
	}
	a, err := job.Choose(ctx, tool.ChoiceAsk{Prompt: q.Prompt, Options: q.Options, Expires: left(q.ExpiresAt)})
	return a.ChoiceID, err
}

// seconds is a duration; one that is too long is the longest.
func seconds(n uint64) time.Duration {
	return time.Duration(min(n, uint64(math.MaxInt64/time.Second))) * time.Second
}

func (c *calls) permission(ctx context.Context, q client.PermissionRequest) (client.PermissionAnswer, error) {
	job, err := c.of(q.JobID)
	if err = errors.Join(err, refused(&q.Question)); err != nil {
		return client.PermissionAnswer{}, err
	}
	ask := tool.PermissionAsk{Permission: q.Permission, Resource: q.Resource, Operation: q.Operation, Reason: q.Reason}
	if q.RequestedLeaseSeconds != nil {
		ask.For = seconds(*q.RequestedLeaseSeconds)
	}
	l, err := job.Permissions().Request(ctx, ask)
	if e, ok := errors.AsType[*arcp.Error](err); ok && e.Code == arcp.CodePermissionDenied {
		return client.PermissionAnswer{Reason: e.Message}, nil
	}
	if err != nil {
		return client.PermissionAnswer{}, err
	}
	return client.PermissionAnswer{Grant: true, Resource: l.Resource, For: max(time.Until(l.ExpiresAt), time.Second)}, nil
}
