// Package tooltest runs tools without a runtime.
//
// A [Job] answers the requests of a tool from its [Script] and records the tool's events:
//
//	job := tooltest.New(tooltest.Script{
//		Ask: func(tool.InputAsk) (tool.Answer, error) { return tool.Answer{Value: arcp.Raw(`"blue"`)}, nil },
//	})
//	out, err := job.Run(t.Context(), paint, map[string]any{"room": "hall"})
//
// Run checks the arguments, the result and scripted answers against their schemas, as the
// runtime does. Nothing is stored, and no time limit of the tool applies: the context bounds a
// run. Many goroutines may use a Job.
package tooltest

import (
	"context"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Script defines the answers of a Job. The zero Script allows every operation, has no budget
// to spend, and refuses questions, calls and permissions.
type Script struct {
	ID      arcp.JobID // default job_test
	Attempt uint32     // default 1
	TraceID string

	Restored arcp.Raw               // data of the checkpoint to continue from; nil: none
	Budget   map[string]arcp.Number // by currency; a currency without an entry is not limited
	Dir      string                 // where leased directories are made, such as t.TempDir(); empty: nowhere

	// Ask and Choose answer questions; the answer must be valid for the question.
	// Without Ask a question gets its default.
	Ask    func(tool.InputAsk) (tool.Answer, error)
	Choose func(tool.ChoiceAsk) (tool.Answer, error)

	// Allow decides on Authority.Allow, on Authority.UseModel with the namespace
	// arcp.NamespaceModelUse, and on files and URLs. nil: everything is allowed.
	Allow func(namespace, target string) error

	Permit    func(tool.PermissionAsk) (tool.PermissionLease, error) // Permissions.Request
	Permitted func(permission, resource, operation string) error     // Permissions.Check; nil: everything is covered
	Call      func(context.Context, tool.Call) (arcp.Raw, error)     // Job.Call
	Lease     func(tool.ResourceAsk) error                           // Resources.Lease; nil: every lease is granted
	Emit      func(t arcp.Type, payload any) error                   // called before an event is recorded; an error refuses it
}

// Record holds the events and requests of a tool, each list in the order of the calls.
type Record struct {
	Logs        []arcp.LogPayload
	Progress    []arcp.JobProgressPayload
	Metrics     []arcp.MetricPayload // also of charges
	Events      []arcp.EventEmitPayload
	Checkpoints []Checkpoint
	Questions   []any // tool.InputAsk, tool.ChoiceAsk and tool.PermissionAsk
	Checks      []Check
	Calls       []tool.Call
	Leases      []tool.ResourceAsk
	Failures    []error // panics (*tool.PanicError) and tool.ErrLost

	ManualHeartbeat bool
	Heartbeats      int
	Yielding        bool // Job.Yield waits for Resume
}

// Checkpoint is a checkpoint that a tool has made.
type Checkpoint struct {
	Label string
	Data  arcp.Raw
}

// Check is an operation that a tool has asked its authority or permissions for.
type Check struct {
	Namespace string // or permission
	Target    string // or resource
	Operation string // of Permissions.Check
}

// Job is an attempt of a job that is carried out by a Script.
type Job struct {
	script  Script
	wanted  chan struct{} // buffered 1
	mu      sync.Mutex
	record  Record
	spent   spending
	pause   chan struct{} // closed while an interrupt is open
	resumed chan struct{} // closed by Resume; nil: no interrupt is open
	hint    string        // guidance for the next Yield
}

// New returns a Job that answers by s.
func New(s Script) *Job {
	if s.ID == "" {
		s.ID = "job_test"
	}
	s.Attempt = max(s.Attempt, 1)
	return &Job{script: s, wanted: make(chan struct{}, 1), pause: make(chan struct{}), spent: newSpending(s.Budget)}
}

// Job returns the job as a tool sees it.
func (j *Job) Job() tool.Job { return tool.NewJob(host{j}) }

// Run runs a tool with arguments that are encoded with arcp.Marshal; an arcp.Raw is
// used as it is. Errors are those that a client sees: INVALID_ARGUMENT when the
// arguments do not satisfy the input schema, INTERNAL when the result does not
// satisfy the output schema or the tool panics.
func (j *Job) Run(ctx context.Context, t *tool.Tool, args any) (arcp.Raw, *arcp.Error) {
	raw, ok := args.(arcp.Raw)
	if !ok && args != nil {
		var err error
		if raw, err = arcp.Marshal(args); err != nil {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "the arguments cannot be encoded: %s", err)
		}
	}
	if err := t.Validate(raw); err != nil {
		return nil, err
	}
	return t.Run(ctx, j.Job(), raw)
}

// Record returns the events and requests so far.
func (j *Job) Record() Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.record
}

// Interrupt interrupts the job until Resume.
func (j *Job) Interrupt() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.resumed == nil {
		j.resumed = make(chan struct{})
		close(j.pause)
	}
}

// Resume answers an interrupt with a guidance for the tool, which may be empty.
func (j *Job) Resume(guidance string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.resumed != nil {
		j.hint = guidance
		close(j.resumed)
		j.resumed, j.pause = nil, make(chan struct{})
	}
}

// WantCheckpoint makes the job ask its tool for a checkpoint.
func (j *Job) WantCheckpoint() {
	select {
	case j.wanted <- struct{}{}:
	default:
	}
}
