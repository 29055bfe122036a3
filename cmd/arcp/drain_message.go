package main

import (
	"fmt"

	"github.com/arcpd/arcpd/runtime"
)

// maxDrainJobs bounds the jobs that a message of a drain names.
const maxDrainJobs = 5

// jobsInTheWay describes the n jobs for which a drain waits: those of list, and the number of others.
func jobsInTheWay(list []runtime.ActiveJob, n int) (texts []string) {
	for _, j := range list {
		text := fmt.Sprintf("%s %s", j.ID, j.Tool)
		if j.Waiting != nil {
			text += ": " + j.Waiting.Message
		}
		texts = append(texts, text)
	}
	if more := n - len(list); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return texts
}

// counted returns a number with its noun.
func counted[T int | int64 | uint64](n T, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}
