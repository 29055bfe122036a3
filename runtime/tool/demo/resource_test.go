package demo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// leasingJob is a job that gives leases.
type leasingJob struct {
	tool.Job
	asks []tool.ResourceAsk
	err  error
}

func (j *leasingJob) Lease(_ context.Context, a tool.ResourceAsk) (tool.ResourceLease, error) {
	j.asks = append(j.asks, a)
	return leaseOn{ask: a}, j.err
}

func (j *leasingJob) LeaseDirectory(ctx context.Context, a tool.DirectoryAsk) (string, tool.ResourceLease, error) {
	l, err := j.Lease(ctx, tool.ResourceAsk{Provider: "local", Type: "directory", ExternalID: "dir", For: a.For})
	return "/resources/dir", l, err
}

type leaseOn struct {
	tool.ResourceLease
	ask tool.ResourceAsk
}

func (l leaseOn) ID() arcp.LeaseID     { return "lease_1" }
func (l leaseOn) Provider() string     { return l.ask.Provider }
func (l leaseOn) Type() string         { return l.ask.Type }
func (l leaseOn) ExternalID() string   { return l.ask.ExternalID }
func (l leaseOn) ExpiresAt() time.Time { return time.Time{} }

func TestResource(t *testing.T) {
	for _, c := range []struct {
		args string
		want tool.ResourceAsk
		says string
	}{
		{`{"kind":"sandbox","lease_seconds":7}`, tool.ResourceAsk{Provider: "demo", Type: "sandbox", For: 7 * time.Second, CleanupTool: "demo.echo"}, `"resource_type":"sandbox"`},
		{`{"kind":"directory","lease_seconds":0}`, tool.ResourceAsk{Provider: "local", Type: "directory"}, `"path":"/resources/dir"`},
	} {
		job := &leasingJob{}
		out, err := demo(t, "demo.resource").Run(t.Context(), job, arcp.Raw(c.args))
		if err != nil || !strings.Contains(string(out), c.says) || !strings.Contains(string(out), `"lease_id":"lease_1"`) {
			t.Errorf("%s returns %s, %v", c.args, out, err)
		}
		got := job.asks[0]
		got.ExternalID = ""
		if len(job.asks) != 1 || got.Provider != c.want.Provider || got.Type != c.want.Type || got.For != c.want.For || got.CleanupTool != c.want.CleanupTool {
			t.Errorf("%s asks for %+v", c.args, job.asks)
		}
	}
	for _, kind := range []string{"sandbox", "directory", "process"} {
		job := &leasingJob{err: errors.New("no")}
		if out, err := demo(t, "demo.resource").Run(t.Context(), job, arcp.Raw(`{"kind":"`+kind+`","lease_seconds":1}`)); err == nil {
			t.Errorf("without a lease a %s is %s", kind, out)
		}
	}
	for _, bad := range []string{`{}`, `{"kind":"","lease_seconds":1}`, `{"kind":"x"}`, `{"kind":"x","lease_seconds":-1}`, `{"kind":"x","lease_seconds":3601}`, `{"kind":"x","lease_seconds":1,"y":1}`} {
		if err := demo(t, "demo.resource").Validate(arcp.Raw(bad)); err == nil {
			t.Errorf("%s is valid", bad)
		}
	}
}
