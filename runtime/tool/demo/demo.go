// Package demo has the tools of --demo: they show what a job can do and let a
// client, a test or a benchmark provoke it (SPEC.md §7.2).
package demo

import (
	"fmt"
	"time"

	"github.com/arcpd/arcpd/runtime/tool"
)

// The limits of the demo tools are those of long-running agents: one must be
// able to run thousands of them at once.
const (
	timeout     = 2 * time.Hour
	concurrency = 10_000
	unlimited   = -1
)

// makers lists the demo tools in the order of SPEC.md §7.2.
var makers = []func() (*tool.Tool, error){
	newEcho, newOldEcho, newEmit, newProgress, newSleep, newStubborn, newFail, newPanic, newStall,
	newAsk, newChoose, newPermit, newSpend, newModel, newAccess, newCount, newDelegate, newResource,
}

// Register adds the demo tools to r.
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

// capability is what the demo tools have in common: they touch nothing outside
// of their job, so one that a restart interrupted may run again, unless it has
// emitted something or is there to fail.
func capability(name, description string) tool.Capability {
	return tool.Capability{
		Name: "demo." + name, Description: description,
		SideEffect: tool.SideEffectNone, Recovery: tool.RecoveryRerun,
		Limits: tool.Limits{Timeout: timeout, Concurrency: concurrency},
	}
}

// interruptible is the capability of a tool that a client can hold up.
func interruptible(name, description string) tool.Capability {
	c := capability(name, description)
	c.Interruptible = true
	return c
}

// once is the capability of a tool that a restart ends.
func once(name, description string) tool.Capability {
	c := capability(name, description)
	c.Recovery = tool.RecoveryFail
	return c
}
