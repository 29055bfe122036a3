//go:build linux

package e2e

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// leasedThing is the result of demo.resource and an entry of registry.leases.
type leasedThing struct {
	LeaseID   arcp.LeaseID `json:"lease_id"`
	State     string       `json:"state"`
	ExpiresAt time.Time    `json:"lease_expires_at"`
	Path      string       `json:"path"`
	PID       int          `json:"pid"`
}

type leasedPage struct {
	Items []leasedThing `json:"items"`
}

// call runs a tool and reads its result.
func call[T any](ctx context.Context, t *testing.T, c *client.Client, tool, args string) (out T) {
	t.Helper()
	job, err := c.Invoke(ctx, client.InvokeParams{Tool: tool, Arguments: arcp.Raw(args)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := job.Wait(ctx)
	if err == nil {
		err = arcp.Unmarshal(r.Value, &out)
	}
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return out
}

// groupLives reports whether a process group has a process that has not ended.
func groupLives(t *testing.T, group int) bool {
	t.Helper()
	if syscall.Kill(-group, 0) != nil {
		return false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		raw, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// … state ppid pgrp
		f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		if pgid, err := syscall.Getpgid(atoi(e.Name())); err == nil && pgid == group && f[0] != "Z" {
			return true
		}
	}
	return false
}

func atoi(s string) (n int) {
	for _, c := range s {
		n = 10*n + int(c-'0')
	}
	return n
}

// A process and a directory that a tool has leased are gone after the lease, also if the
// runtime is killed in between. Things leased for longer stay.
func TestLeasedResourcesOverKillNine(t *testing.T) {
	bin, data := binary(t), t.TempDir()
	p := startServer(t, bin, data)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	c := person(ctx, t, p.url, nil)
	const things = 3
	var processes, directories []leasedThing
	for range things {
		processes = append(processes, call[leasedThing](ctx, t, c, "demo.resource", `{"kind":"process","lease_seconds":2}`))
		d := call[leasedThing](ctx, t, c, "demo.resource", `{"kind":"directory","lease_seconds":2}`)
		if err := os.WriteFile(d.Path+"/file", []byte("x"), 0o400); err != nil && time.Now().Before(d.ExpiresAt) {
			t.Fatal(err)
		}
		directories = append(directories, d)
	}
	kept := call[leasedThing](ctx, t, c, "demo.resource", `{"kind":"directory","lease_seconds":3600}`)
	survivor := call[leasedThing](ctx, t, c, "demo.resource", `{"kind":"process","lease_seconds":3600}`)
	t.Cleanup(func() {
		for _, l := range append(processes, survivor) {
			_ = syscall.Kill(-l.PID, syscall.SIGKILL) // most are gone
		}
	})
	p.kill(t)
	for i := range things {
		if time.Now().Before(processes[i].ExpiresAt) && !groupLives(t, processes[i].PID) {
			t.Error("a process has ended with the runtime, and there is nothing to clean up")
		}
	}

	p = startServer(t, bin, data)
	c = person(ctx, t, p.url, nil)
	for left := 2 * things; left > 0; {
		call[struct{}](ctx, t, c, "registry.reap", `{}`)
		page := call[leasedPage](ctx, t, c, "registry.leases", `{"state":"released"}`)
		left = 2*things - len(page.Items)
	}
	for i := range things {
		if groupLives(t, processes[i].PID) {
			t.Errorf("process group %d lives", processes[i].PID)
		}
		if _, err := os.Lstat(directories[i].Path); !os.IsNotExist(err) {
			t.Errorf("%s: %v; want it to be gone", directories[i].Path, err)
		}
	}
	if _, err := os.Stat(kept.Path); err != nil || !groupLives(t, survivor.PID) {
		t.Errorf("what is leased for longer: %v, the process lives: %v", err, groupLives(t, survivor.PID))
	}
	p.kill(t)
}
