package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/runtime/store"
)

const (
	maxDrainJobs  = 1000        // jobs that are read for the message of a drain
	maxDrainTools = 3           // tools that the message names
	drainRead     = time.Second // for reading them
)

// jobsInTheWay describes the n jobs for which a drain waits, for example "2 jobs (demo.sleep)".
func jobsInTheWay(st store.Store, n int) string {
	ctx, cancel := context.WithTimeout(context.Background(), drainRead)
	defer cancel()
	read, tools := 0, make(map[string]bool)
	err := st.LiveJobs(ctx, func(j store.Job) bool {
		read++
		name, _, _ := strings.Cut(j.Agent, "@")
		tools[name] = true
		return read < maxDrainJobs
	})
	if err != nil || len(tools) == 0 {
		return counted(n, "job")
	}
	names := slices.Sorted(maps.Keys(tools))
	if more := len(names) - maxDrainTools; more > 0 {
		names = append(names[:maxDrainTools], counted(more, "more tool"))
	}
	return fmt.Sprintf("%s (%s)", counted(n, "job"), strings.Join(names, ", "))
}

// counted returns a number with its noun.
func counted[T int | int64 | uint64](n T, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}
