package chaos

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// check resumes the session once more from the last acknowledged event. All later events must be
// replayed.
func (c *client) check(ctx context.Context) {
	last := c.stream.Last()
	for !c.connect(ctx) {
		if c.reportFindings(); ctx.Err() != nil || c.reported > 0 {
			return
		}
		sleep(ctx, redialDelay)
	}
	defer c.disconnect()
	for c.stream.Position() < last {
		m, ok := c.next(ctx, answerWait)
		if !ok {
			c.stream.find(RuleLost, "only the events from %[2]d to %[3]d of %[1]d were replayed", last, c.acked+1, c.stream.Position())
			return
		}
		c.handle(m)
	}
}

// list lists all jobs of the principal.
func (c *client) list(ctx context.Context) (all []arcp.JobEntry, ok bool) {
	for !c.connect(ctx) {
		if ctx.Err() != nil {
			return nil, false
		}
		sleep(ctx, redialDelay)
	}
	defer c.disconnect()
	for cursor := ""; ; {
		page, ok := c.page(ctx, cursor)
		if !ok {
			return nil, false
		}
		all = append(all, page.Jobs...)
		if page.NextCursor == nil {
			return all, true
		}
		cursor = *page.NextCursor
	}
}

func (c *client) page(ctx context.Context, cursor string) (page arcp.SessionJobsPayload, ok bool) {
	request := c.compose(arcp.SessionListJobs, arcp.SessionListJobsPayload{Limit: new(uint32(1000)), Cursor: cursor})
	if !c.write(request) {
		return page, false
	}
	for deadline := time.Now().Add(answerWait); ; {
		m, ok := c.next(ctx, time.Until(deadline))
		if !ok {
			return page, false
		}
		c.stream.Receive(m.frame, &m.Envelope)
		if m.CorrelationID == request.ID && m.Type == arcp.SessionJobs {
			page, err := arcp.DecodePayload[arcp.SessionJobsPayload](&m.Envelope)
			return page, err == nil
		}
	}
}
