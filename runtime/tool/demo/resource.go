package demo

import (
	"context"
	"fmt"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/local"
)

type resourceArgs struct {
	Kind         string `json:"kind" jsonschema:"minLength=1,maxLength=64,description=process and directory are real ones; of any other kind it is only a name."`
	LeaseSeconds int64  `json:"lease_seconds" jsonschema:"minimum=0,maximum=3600"`
}

type resourceResult struct {
	LeaseID    arcp.LeaseID `json:"lease_id"`
	Provider   string       `json:"provider"`
	Type       string       `json:"resource_type"`
	ExternalID string       `json:"external_id"`
	ExpiresAt  time.Time    `json:"lease_expires_at"`
	Path       string       `json:"path,omitzero"` // of a directory
	PID        int          `json:"pid,omitzero"`  // of a process
}

// maxProcesses bounds the running processes of demo.resource: each lasts up to an hour
// and uses more memory than a job.
const maxProcesses = 64

// spare is the time that a process may outlive its lease.
const spare = 10 * time.Minute

// provider is the provider of leases on names.
const provider = "demo"

func newResource() (*tool.Tool, error) {
	c := failingAtRestart("resource", "Leases something, and leaves it to be cleaned up.")
	c.SideEffect = tool.SideEffectExternal
	var processes atomic.Int32
	return tool.New(c, func(ctx context.Context, job tool.Job, a resourceArgs) (resourceResult, error) {
		d := time.Duration(a.LeaseSeconds) * time.Second
		switch a.Kind {
		case local.Process:
			return leaseProcess(ctx, job, d, &processes)
		case local.Directory:
			return leaseDirectory(ctx, job, d)
		}
		return leaseName(ctx, job, a.Kind, d)
	})
}

func result(l tool.ResourceLease) resourceResult {
	return resourceResult{LeaseID: l.ID(), Provider: l.Provider(), Type: l.Type(), ExternalID: l.ExternalID(), ExpiresAt: l.ExpiresAt().UTC()}
}

// leaseProcess starts a process that starts another one.
func leaseProcess(ctx context.Context, job tool.Job, d time.Duration, processes *atomic.Int32) (resourceResult, error) {
	if processes.Add(1) > maxProcesses {
		processes.Add(-1)
		return resourceResult{}, arcp.Errorf(arcp.CodeResourceExhausted, "%d processes of demo.resource have not ended", maxProcesses).RetryAfter(1)
	}
	// The processes end by themselves if a store in memory has forgotten the lease.
	cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("sleep %d & wait", int((d+spare).Seconds())))
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin"}, "/"
	l, err := local.Start(ctx, job, cmd, d)
	if err != nil {
		processes.Add(-1)
		return resourceResult{}, err
	}
	go func() {
		_ = cmd.Wait() // its end by a signal is no error
		processes.Add(-1)
	}()
	r := result(l)
	r.PID = cmd.Process.Pid
	return r, nil
}

func leaseDirectory(ctx context.Context, job tool.Job, d time.Duration) (resourceResult, error) {
	path, l, err := job.Resources().Directory(ctx, tool.DirectoryRequest{For: d})
	if err != nil {
		return resourceResult{}, err
	}
	r := result(l)
	r.Path = path
	return r, nil
}

// leaseName leases a name. The call of the clean-up tool shows the clean-up.
func leaseName(ctx context.Context, job tool.Job, kind string, d time.Duration) (resourceResult, error) {
	l, err := job.Resources().Lease(ctx, tool.ResourceRequest{
		Provider:    provider,
		Type:        kind,
		ExternalID:  arcp.NewID("demo_"),
		For:         d,
		CleanupTool: "demo.echo",
	})
	if err != nil {
		return resourceResult{}, err
	}
	return result(l), nil
}
