package demo

import (
	"context"
	"errors"
	"strings"
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
	points   []arcp.Raw // data of the checkpoints
	restored arcp.Raw
	wanted   chan struct{}
	manual   bool
	panics   int

	metrics []arcp.MetricPayload
	asked   []string // of the job's authority, in a line each
	refuse  []error  // what Allow, UseModel and Permitted say, one call after the other; then nil
	ask     any      // the question
	answer  tool.Answer
	grant   tool.PermissionLease
	denied  error // instead of an answer or a grant

	halted   bool
	halt     chan struct{}
	goOn     chan string // guidance
	yielding bool
}

func (j *fakeJob) count() error {
	if j.endsAfter > 0 && len(j.logs)+len(j.progress)+len(j.points) >= j.endsAfter {
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
	raw, _ := attributes.(arcp.Raw)
	j.logs = append(j.logs, arcp.LogPayload{Level: level, Message: message, Attributes: raw})
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

func (j *fakeJob) Checkpoint(_ string, data any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.count(); err != nil {
		return err
	}
	raw, err := arcp.Marshal(data)
	j.points = append(j.points, raw)
	return err
}

func (j *fakeJob) CheckpointWanted() <-chan struct{} { return j.wanted }

func (j *fakeJob) Restored() arcp.Raw { return j.restored }

func (j *fakeJob) Metric(m arcp.MetricPayload) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.metrics = append(j.metrics, m)
	return nil
}

func (j *fakeJob) Yield(ctx context.Context) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	j.mu.Lock()
	j.yielding = j.halted
	j.mu.Unlock()
	if !j.yielding {
		return "", nil
	}
	select {
	case guidance := <-j.goOn:
		j.mu.Lock()
		defer j.mu.Unlock()
		j.halted, j.yielding = false, false
		return guidance, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (j *fakeJob) Interrupted() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.halt == nil {
		j.halt = make(chan struct{})
	}
	halt := j.halt
	if j.halted {
		close(halt)
		j.halt = nil
	}
	return halt
}

// interrupt interrupts the job; a guidance sent to goOn has it go on.
func (j *fakeJob) interrupt() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.halted = true
	if j.halt != nil {
		close(j.halt)
		j.halt = nil
	}
}

func (j *fakeJob) isYielding() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.yielding
}

// may notes a question to the job's authority and answers it.
func (j *fakeJob) may(words ...string) (err error) {
	j.asked = append(j.asked, strings.Join(words, " "))
	if len(j.refuse) > 0 {
		err, j.refuse = j.refuse[0], j.refuse[1:]
	}
	return err
}

func (j *fakeJob) Allow(namespace, target string) error { return j.may(namespace, target) }
func (j *fakeJob) UseModel(model string) error          { return j.may("model", model) }
func (j *fakeJob) Permitted(permission, resource, operation string) error {
	return j.may(permission, resource, operation)
}

func (j *fakeJob) Permit(_ context.Context, p tool.PermissionAsk) (tool.PermissionLease, error) {
	j.ask = p
	return j.grant, j.denied
}

func (j *fakeJob) Ask(_ context.Context, a tool.InputAsk) (tool.Answer, error) {
	j.ask = a
	return j.answer, j.denied
}

func (j *fakeJob) Choose(_ context.Context, c tool.ChoiceAsk) (tool.Answer, error) {
	j.ask = c
	return j.answer, j.denied
}

func (j *fakeJob) Call(_ context.Context, c tool.Call) (arcp.Raw, error) {
	j.ask = c
	return j.answer.Value, j.denied
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
