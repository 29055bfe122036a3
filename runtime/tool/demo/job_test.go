package demo

import (
	"errors"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

var errEnded = errors.New("the job has ended")

// fakeJob remembers what its tool did. It keeps attributes as it got them, as a
// job may.
type fakeJob struct {
	tool.Job
	endsAfter int // events until every call fails; zero: never

	mu       sync.Mutex
	logs     []arcp.LogPayload
	progress []arcp.JobProgressPayload
	manual   bool
	panics   int
}

func (j *fakeJob) count() error {
	if j.endsAfter > 0 && len(j.logs)+len(j.progress) >= j.endsAfter {
		return errEnded
	}
	return nil
}

func (j *fakeJob) Log(level, message string, attributes any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.count(); err != nil {
		return err
	}
	j.logs = append(j.logs, arcp.LogPayload{Level: level, Message: message, Attributes: attributes.(arcp.Raw)})
	return nil
}

func (j *fakeJob) Progress(p arcp.JobProgressPayload) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.count(); err != nil {
		return err
	}
	j.progress = append(j.progress, p)
	return nil
}

func (j *fakeJob) ManualHeartbeat() { j.manual = true }

func (j *fakeJob) ToolPanicked(*tool.PanicError) { j.panics++ }

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
