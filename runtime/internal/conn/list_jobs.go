package conn

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// listJobs answers session.list_jobs.
func (c *conn) listJobs(cmd machine.ListJobs) {
	who := c.actor()
	c.read(func(ctx context.Context) func(time.Time) {
		page, err := c.srv.opts.Jobs.Page(ctx, &who, &cmd.Payload)
		return func(now time.Time) {
			if err != nil {
				c.nack(now, cmd.Request, err)
				return
			}
			page.RequestID = cmd.Request
			c.reply(now, cmd.Request, arcp.SessionJobs, page)
		}
	})
}
