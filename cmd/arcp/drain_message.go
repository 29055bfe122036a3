package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

const (
	maxDrainJobs  = 1000        // jobs that are read for the message of a drain
	maxDrainTools = 3           // tools that the message names
	drainRead     = time.Second // for reading them
)

// jobsInTheWay describes the jobs for which a drain waits, for example "2 jobs (demo.sleep)"; "" without one.
// Jobs that wait for something else than their tool end the drain at once.
func jobsInTheWay(st store.Store) string {
	ctx, cancel := context.WithTimeout(context.Background(), drainRead)
	defer cancel()
	n, tools := 0, make(map[string]bool)
	err := st.LiveJobs(ctx, func(j store.Job) bool {
		if j.State == arcp.StateRunning {
			n++
			name, _, _ := strings.Cut(j.Agent, "@")
			tools[name] = true
		}
		return n < maxDrainJobs
	})
	if err != nil || n == 0 {
		return "" // the message is not essential
	}
	names := slices.Sorted(maps.Keys(tools))
	if more := len(names) - maxDrainTools; more > 0 {
		names = append(names[:maxDrainTools], fmt.Sprintf("%d more tools", more))
	}
	return fmt.Sprintf("%s (%s)", counted(n, "job"), strings.Join(names, ", "))
}

// counted returns a number with its noun.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}
