package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// ListJobs returns one page of the principal's jobs, oldest first. A zero filter,
// limit or cursor is left out.
func (c *Client) ListJobs(ctx context.Context, filter *arcp.JobFilter, limit uint32, cursor string) (arcp.SessionJobsPayload, error) {
	p := arcp.SessionListJobsPayload{Filter: filter, Cursor: cursor}
	if limit != 0 {
		p.Limit = &limit
	}
	return ask[arcp.SessionJobsPayload](ctx, c, arcp.SessionListJobs, p, arcp.SessionJobs)
}

// ListAllJobs iterates over all pages. It ends at the first error.
func (c *Client) ListAllJobs(ctx context.Context, filter *arcp.JobFilter) iter.Seq2[arcp.JobEntry, error] {
	return func(yield func(arcp.JobEntry, error) bool) {
		for cursor := ""; ; {
			page, err := c.ListJobs(ctx, filter, 0, cursor)
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
			cursor = *page.NextCursor
		}
	}
}

// Cancel asks for the end of a job and returns when the runtime has agreed, or
// a *CancelRefused. After the deadline, zero for the runtime's default, the job
// is ended by force. Its terminal message comes through its handles.
func (c *Client) Cancel(ctx context.Context, id arcp.JobID, reason string, deadline time.Duration) error {
	p := arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(id), Reason: reason}
	if deadline > 0 {
		p.DeadlineMS = new(uint64(max(deadline.Milliseconds(), 1)))
	}
	got, err := c.Call(ctx, arcp.Frame(arcp.Cancel, p))
	if err != nil {
		return err
	}
	return cancelAnswer(&got)
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
		return &CancelRefused{TargetID: p.TargetID, Reason: p.Reason, Code: p.Code, Message: p.Message}
	}
	if refusal := RemoteErrorOf(got); refusal != nil {
		return fmt.Errorf("cancel: %w", refusal)
	}
	return unexpected("cancel", got.Type)
}

// Subscribe follows a job that this client has not submitted. Events after
// from are replayed if it is set, all of them with history; it counts in the
// numbers of the session that submitted the job. A refusal is a *RemoteError.
func (c *Client) Subscribe(ctx context.Context, id arcp.JobID, from *uint64, history bool) (*Job, error) {
	j := newJob(c, id)
	if err := c.follow(j); err != nil {
		return nil, fmt.Errorf("job.subscribe: %w", err)
	}
	p, err := ask[arcp.JobSubscribedPayload](ctx, c, arcp.JobSubscribe,
		arcp.JobSubscribePayload{JobID: id, FromEventSeq: from, History: history}, arcp.JobSubscribed)
	if err != nil {
		c.forget(j)
		return nil, err
	}
	j.mu.Lock()
	j.subscribed = p
	j.mu.Unlock()
	if arcp.JobState(p.CurrentStatus).Terminal() && !p.Replayed && from == nil && !history {
		c.forget(j)
		j.finish(ErrOutcomeMissed)
	}
	return j, nil
}

// Job returns a handle of a job named in Options.Resume.Jobs, or that this
// client submitted or subscribed to, while it has not ended.
func (c *Client) Job(id arcp.JobID) (*Job, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if js := c.jobs[id]; len(js) > 0 {
		return js[0], true
	}
	return nil, false
}
