package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// Each limit refuses one job too many, and forgets a job however it ends.
func TestLimits(t *testing.T) {
	shared := func(several bool) func() bool { return func() bool { return several } }
	bob := func(q *request) { q.Principal = "bob" }
	for name, c := range map[string]struct {
		change func(*Config)
		other  func(*request) // a job outside the limit; nil: there is none
	}{
		"all":       {func(c *Config) { c.MaxJobs = 2 }, nil},
		"principal": {func(c *Config) { c.MaxJobsPerPrincipal = 2 }, bob},
		"session":   {func(c *Config) { c.MaxJobsPerSession = 2 }, func(q *request) { q.Session = "sess_2" }},
		"arguments": {func(c *Config) { c.MaxArguments = int64(2 * len("{}")) }, nil},
		"share":     {func(c *Config) { c.MaxJobs, c.JobShare, c.Shared = 3, 2, shared(true) }, bob},
		"alone":     {func(c *Config) { c.MaxJobs, c.JobShare, c.Shared = 2, 1, shared(false) }, nil},
		"share of arguments": {func(c *Config) {
			c.MaxArguments, c.ArgumentShare, c.Shared = int64(3*len("{}")), int64(2*len("{}")), shared(true)
		}, bob},
		"alone with arguments": {func(c *Config) {
			c.MaxArguments, c.ArgumentShare, c.Shared = int64(2*len("{}")), int64(len("{}")), shared(false)
		}, nil},
		"own": {func(c *Config) { c.MaxJobsPerPrincipal, c.JobShare, c.Shared = 100, 1, shared(true) }, func(q *request) { q.Principal, q.MaxJobs = "bob", 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			runEngine(t, c.change, func(f *fixture) {
				f.session("sess_2")
				f.tool("t", nil, wait)
				f.tool("quick", nil, echo)
				send := func(change func(*request)) arcp.MessageID {
					q := f.request("sess_1", "t", "{}")
					if name == "own" {
						q.MaxJobs = 2
					}
					if change != nil {
						change(q)
					}
					return f.send(q)
				}
				for round := range 3 {
					send(nil)
					send(nil)
					f.frames("sess_1")
					refused := send(nil)
					wantRetryAfter(t, f.want("one too many", "job.failed "+string(refused)+" RESOURCE_EXHAUSTED")[0])
					if c.other != nil {
						if send(c.other); f.e.LiveCount() != 3 {
							t.Errorf("%d jobs, want the third: it counts elsewhere", f.e.LiveCount())
						}
					}
					f.e.SessionJobs().CancelAll("sess_1", "")
					f.e.SessionJobs().CancelAll("sess_2", "")
					f.frames("sess_1")
					f.frames("sess_2")
					f.expectNoState(fmt.Sprintf("round %d", round))
				}
				for range 3 { // a refused claim does not count
					send(func(q *request) { q.Session = "sess_gone" })
					f.frames("sess_1")
					send(func(q *request) { q.payload.Tool = "quick" })
					f.frames("sess_1")
				}
				f.expectNoState("quick and refused ones")
			})
		})
	}
}

// A call whose arguments can never be accepted is not to be sent again.
func TestArgumentsBeyondTheLimitAreNotRetryable(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxArguments = 10 }, func(f *fixture) {
		f.tool("t", nil, wait)
		id := f.send(f.request("sess_1", "t", `{"a":"12345"}`))
		refused := f.want("too large", "job.failed "+string(id)+" RESOURCE_EXHAUSTED")[0]
		failed, err := arcp.DecodePayload[arcp.Error](&refused.Envelope)
		if err != nil || failed.Retryable || len(failed.Details) > 0 || !strings.Contains(failed.Message, "the arguments have 13 bytes; those of all jobs together may have 10 (max-arguments)") {
			t.Errorf("%+v, want that it is not retryable, and why", failed)
		}
	})
}
