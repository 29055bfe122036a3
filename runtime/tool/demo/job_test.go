package demo

import (
	"errors"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

var errEnded = errors.New("the job has ended")

// newJob returns a job that allows everything and accepts every event.
func newJob() *tooltest.Job { return tooltest.New(tooltest.Script{}) }

// endingJob returns a job that accepts n events and refuses all others.
func endingJob(n int) *tooltest.Job {
	return tooltest.New(tooltest.Script{Emit: func(arcp.Type, any) error {
		if n--; n < 0 {
			return errEnded
		}
		return nil
	}})
}

// demo returns a demo tool as a client would reach it.
func demo(t testing.TB, ref string) *tool.Tool {
	t.Helper()
	r := tool.NewRegistry()
	if err := Register(r); err != nil {
		t.Fatal(err)
	}
	found, err := r.Resolve(ref)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
