package main

import (
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
)

// The message of a drain has the jobs, why they wait, and the number of those that it does not name.
func TestJobsInTheWay(t *testing.T) {
	list := []runtime.ActiveJob{
		{ID: "job_1", Tool: "sleep@1.0.0"},
		{ID: "job_2", Tool: "ask@1.0.0", Waiting: &arcp.JobWaiting{Message: "the question q is pending"}},
	}
	named := []string{"job_1 sleep@1.0.0", "job_2 ask@1.0.0: the question q is pending"}
	for n, want := range map[int][]string{2: named, 9: append(slices.Clone(named), "and 7 more")} {
		if got := jobsInTheWay(list, n); !slices.Equal(got, want) {
			t.Errorf("of %d jobs the message has %q, want %q", n, got, want)
		}
	}
	if got := jobsInTheWay(nil, 0); len(got) != 0 {
		t.Errorf("without jobs the message has %q", got)
	}
}
