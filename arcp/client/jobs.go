package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// ListJobsParams selects jobs. The zero value selects all jobs of the principal.
type ListJobsParams struct {
	Filter *arcp.JobFilter
	Limit  uint32 // jobs on a page; 0: the default of the runtime
	Cursor string // next_cursor of the previous page; empty: the first page

	// Order of the list; empty: oldest first. A runtime that does not know NewestFirst lists the
	// oldest jobs first. SessionJobsPayload.Order of a page says which order it has. The draft
	// dialect has no order.
	Order arcp.JobOrder
}

// ListJobs returns one page of the principal's jobs.
func (c *Client) ListJobs(ctx context.Context, p ListJobsParams) (arcp.SessionJobsPayload, error) {
	list := arcp.SessionListJobsPayload{Filter: p.Filter, Cursor: p.Cursor, Order: p.Order}
	if p.Limit != 0 {
		list.Limit = &p.Limit
	}
	return ask[arcp.SessionJobsPayload](ctx, c, arcp.SessionListJobs, list, arcp.SessionJobs)
}

// Jobs iterates over the jobs of all pages from p.Cursor on. It ends after the first error.
func (c *Client) Jobs(ctx context.Context, p ListJobsParams) iter.Seq2[arcp.JobEntry, error] {
	return func(yield func(arcp.JobEntry, error) bool) {
		for p := p; ; {
			page, err := c.ListJobs(ctx, p)
			if err != nil {
				yield(arcp.JobEntry{}, err)
				return
			}
			for _, j := range page.Jobs {
				if !yield(j, nil) {
					return
				}
			}
			if page.NextCursor == nil {
				return
			}
			p.Cursor = *page.NextCursor
		}
	}
}

// CancelParams selects a job to cancel.
type CancelParams struct {
	JobID    arcp.JobID
	Reason   string
	Deadline time.Duration // time before the job is stopped by force; 0: the default of the runtime
}

// Cancel requests the end of a job and waits until the runtime accepts the request. A refusal is a
// *CancelRefusedError. The handles of the job receive its final message.
func (c *Client) Cancel(ctx context.Context, p CancelParams) error {
	cancel := arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(p.JobID), Reason: p.Reason}
	if p.Deadline > 0 {
		cancel.DeadlineMS = new(uint64(max(p.Deadline.Milliseconds(), 1)))
	}
	got, err := c.Call(ctx, arcp.Frame(arcp.Cancel, cancel))
	if err != nil {
		return err
	}
	return cancelAnswer(&got)
}

// HandoffParams are the parameters of HandOff.
type HandoffParams struct {
	JobID  arcp.JobID     // with the jobs that it has called; empty: all jobs of the session
	To     arcp.SessionID // another session of the principal
	Reason string         // for people
}

// HandOff hands jobs of a client's session over to another session of the same principal (SPEC.md §5.20), and
// waits until the runtime has stored that. The handles of the jobs that the client has submitted end with a
// *HandedOverError. A refusal is a *RemoteError. The draft dialect has no handoffs.
func HandOff(ctx context.Context, c *Client, p HandoffParams) error {
	env := arcp.Frame(arcp.AgentHandoff, arcp.AgentHandoffPayload{Runtime: c.Session().Runtime, SessionID: p.To, Reason: p.Reason})
	env.JobID = p.JobID
	_, err := c.request(ctx, env, arcp.Ack, nil)
	return err
}

func cancelAnswer(got *arcp.Envelope) error {
	switch got.Type {
	case arcp.CancelAccepted:
		return nil
	case arcp.CancelRefused:
		p, err := arcp.DecodePayload[arcp.CancelRefusedPayload](got)
		if err != nil {
			return &ProtocolError{string(got.Type), err}
		}
		return &CancelRefusedError{TargetID: p.TargetID, Reason: p.Reason, Code: p.Code, Message: p.Message}
	}
	if refusal := RemoteErrorOf(got); refusal != nil {
		return fmt.Errorf("cancel: %w", refusal)
	}
	return unexpected("cancel", got.Type)
}

// SubscribeJobParams selects a job and the first event to receive.
type SubscribeJobParams struct {
	JobID   arcp.JobID
	After   *uint64 // replay events after this event_seq of the submitting session; nil: no replay
	History bool    // replay all events
}

// SubscribeJob follows a job of another client. A refusal is a *RemoteError.
func (c *Client) SubscribeJob(ctx context.Context, p SubscribeJobParams) (*Job, error) {
	j := newJob(c, p.JobID)
	if err := c.follow(j); err != nil {
		return nil, fmt.Errorf("job.subscribe: %w", err)
	}
	got, err := ask[arcp.JobSubscribedPayload](ctx, c, arcp.JobSubscribe,
		arcp.JobSubscribePayload{JobID: p.JobID, FromEventSeq: p.After, History: p.History}, arcp.JobSubscribed)
	if err != nil {
		j.unfollow()
		return nil, err
	}
	j.mu.Lock()
	j.subscription = got
	j.mu.Unlock()
	if arcp.JobState(got.CurrentStatus).Terminal() && !got.Replayed && p.After == nil && !p.History {
		j.unfollow()
		j.endWithError(ErrOutcomeMissed)
	}
	return j, nil
}

// Job returns a handle of a running job that this client submitted, subscribed to or named in
// Options.Resume.Jobs.
func (c *Client) Job(id arcp.JobID) (*Job, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if js := c.routes.jobs[id]; len(js) > 0 {
		return js[0], true
	}
	return nil, false
}
