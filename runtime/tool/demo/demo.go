// Package demo provides the tools of --demo, which clients, tests and benchmarks use to exercise the features of
// jobs (SPEC.md §7.2).
package demo

import (
	"fmt"
	"time"

	"github.com/arcpd/arcpd/runtime/tool"
)

// Limits of the demo tools, of which thousands of jobs run at once.
const (
	timeout     = 2 * time.Hour
	concurrency = 10_000
	unlimited   = -1
)

// makers lists the demo tools in the order of SPEC.md §7.2.
var makers = []func() (*tool.Tool, error){
	newEcho, newOldEcho, newEmit, newProgress, newSleep, newStubborn, newFail, newPanic, newStall, newStream, newReport, newCollect,
	newAsk, newChoose, newPermit, newSpend, newModel, newAccess, newCount, newDelegate, newResource, newArtifact, newTrace,
}

// Register adds the demo tools to r. The error is a conflict with a registered tool.
func Register(r *tool.Registry) error {
	for _, newTool := range makers {
		t, err := newTool()
		if err == nil {
			err = r.RegisterBuiltin(t)
		}
		if err != nil {
			return fmt.Errorf("demo tools: %w", err)
		}
	}
	return nil
}

// capability returns the common capability of the demo tools. They have no side effects, so a restart runs their
// jobs again.
func capability(name, description string) tool.Capability {
	return tool.Capability{
		Name: "demo." + name, Description: description,
		SideEffect: tool.SideEffectNone, Recovery: tool.RecoveryRerun,
		Limits: tool.Limits{Timeout: timeout, Concurrency: concurrency},
	}
}

// interruptible returns the capability of a tool that clients can interrupt.
func interruptible(name, description string) tool.Capability {
	c := capability(name, description)
	c.Interruptible = true
	return c
}

// failingAtRestart returns the capability of a tool whose jobs fail at a restart.
func failingAtRestart(name, description string) tool.Capability {
	c := capability(name, description)
	c.Recovery = tool.RecoveryFail
	return c
}
