// Package tooltest runs tools without a runtime.
//
// A [Job] answers the requests of a tool from its [Script] and records the tool's events:
//
//	job := tooltest.New(tooltest.Script{
//		Ask: func(tool.InputRequest) (tool.Answer, error) { return tool.Answer{Value: arcp.Raw(`"blue"`)}, nil },
//	})
//	out, err := job.Run(t.Context(), paint, map[string]any{"room": "hall"})
//
// Run checks the arguments, the result and the scripted answers against their schemas, as the
// runtime does. Nothing is stored. Limits.Timeout does not apply; the context bounds a run. Many
// goroutines may use a Job.
package tooltest

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Script defines the answers of a Job. The zero Script allows every operation, has no budget
// to spend, and refuses questions, calls and permissions.
type Script struct {
	ID      arcp.JobID // default job_test
	Attempt uint32     // default 1
	TraceID string     // default trace_test
	SpanID  string     // default span_test

	Restored arcp.Raw               // result of Job.Restored; nil: no checkpoint
	Budget   map[string]arcp.Number // by currency; a currency without an entry is not limited
	Dir      string                 // parent of leased directories, such as t.TempDir(); empty: Resources.Directory fails

	// Ask and Choose answer questions. Run fails the question if its schema or options do not
	// allow the answer. Without Ask, Job.Ask returns the default of the question.
	Ask    func(tool.InputRequest) (tool.Answer, error)
	Choose func(tool.ChoiceRequest) (tool.Answer, error)

	// Allow decides on Authority.Allow, on Authority.UseModel with the namespace
	// arcp.NamespaceModelUse, and on files and URLs. nil allows every operation.
	Allow func(namespace, target string) error

	Permit    func(tool.PermissionRequest) (tool.PermissionLease, error) // Permissions.Request
	Permitted func(permission, resource, operation string) error         // Permissions.Check; nil permits every operation
	Call      func(context.Context, tool.Call) (arcp.Raw, error)         // Job.Call
	Lease     func(tool.ResourceRequest) error                           // Resources.Lease; nil grants every lease
	Artifacts map[arcp.ArtifactID][]byte                                 // content that Artifacts.Open opens, beside what the tool has put
	Streams   []ClientStream                                             // that Job.AcceptStream returns, one after the other
	Emit      func(t arcp.Type, payload any) error                       // called before an event is recorded; an error refuses it
}

// ClientStream is a stream that a client writes to the job.
type ClientStream struct {
	arcp.StreamOpenPayload
	Chunks []tool.ClientChunk
	Err    error // behind the chunks; nil: io.EOF
}

// Record holds the events and requests of a tool. Each list has the order of the calls.
type Record struct {
	Logs        []arcp.LogPayload
	Progress    []arcp.JobProgressPayload
	Metrics     []arcp.MetricPayload    // also of charges
	Spans       []arcp.TraceSpanPayload // that have ended
	Events      []arcp.EventEmitPayload
	Checkpoints []Checkpoint
	Streams     []Stream
	Closed      []ClosedStream
	Result      *Result // of Job.Result; nil: none
	Questions   []any   // tool.InputRequest, tool.ChoiceRequest and tool.PermissionRequest
	Checks      []Check
	Calls       []tool.Call
	Leases      []tool.ResourceRequest
	Artifacts   []Artifact
	Failures    []error // panics (*tool.PanicError), tool.ErrLost and *tool.LoggableError

	ManualHeartbeat bool
	Heartbeats      int
	Yielding        bool // Job.Yield is waiting for Resume
}

// Result is a call of Job.Result, with the content of the chunks.
type Result struct {
	tool.ResultOptions
	Chunks  [][]byte
	Closed  bool // the last of Chunks is the last chunk
	Summary string
}

// Content returns the content of all chunks.
func (r *Result) Content() []byte { return slices.Concat(r.Chunks...) }

// Stream is a call of Job.OpenStream, with the chunks of the stream.
type Stream struct {
	arcp.StreamOpenPayload
	Chunks []arcp.StreamChunkPayload // numbered from 0
	Ended  bool                      // the tool has called Close or CloseWithError
	Err    *arcp.Error               // of CloseWithError; nil: none
}

// ClosedStream is a call of ClientStream.CloseWithError.
type ClosedStream struct {
	ID  arcp.StreamID
	Err *arcp.Error
}

// Content returns the decoded chunks of a text or binary stream.
func (s *Stream) Content() []byte {
	var content []byte
	for _, c := range s.Chunks {
		var part string
		if err := arcp.Unmarshal(c.Data, &part); err != nil {
			panic("tooltest: chunk: " + err.Error()) // Stream encodes texts
		}
		if s.Kind != arcp.StreamBinary {
			content = append(content, part...)
			continue
		}
		var err error
		if content, err = base64.StdEncoding.AppendDecode(content, []byte(part)); err != nil {
			panic("tooltest: chunk: " + err.Error())
		}
	}
	return content
}

// Artifact is a call of Artifacts.Put.
type Artifact struct {
	arcp.ArtifactObject
	Content []byte
}

// Checkpoint is a call of Job.Checkpoint.
type Checkpoint struct {
	Label string
	Data  arcp.Raw
}

// Check is a call of Authority.Allow, or of Permissions.Check.
type Check struct {
	Namespace string // the permission of Permissions.Check
	Target    string // the resource of Permissions.Check
	Operation string // of Permissions.Check only
}

// Job is an attempt of a job whose requests a Script answers.
type Job struct {
	script   Script
	wanted   chan struct{} // buffered 1
	mu       sync.Mutex
	record   Record
	spent    spending
	accepted int           // of Script.Streams
	pause    chan struct{} // closed while an interrupt is open
	resumed  chan struct{} // closed by Resume; nil: no interrupt is open
	guidance string        // result of the next Yield
}

// New returns a Job that answers with s.
func New(s Script) *Job {
	if s.ID == "" {
		s.ID = "job_test"
	}
	s.TraceID, s.SpanID = cmp.Or(s.TraceID, "trace_test"), cmp.Or(s.SpanID, "span_test")
	s.Attempt = max(s.Attempt, 1)
	return &Job{script: s, wanted: make(chan struct{}, 1), pause: make(chan struct{}), spent: newSpending(s.Budget)}
}

// Job returns the tool's handle on the attempt, to call a function of a tool directly.
func (j *Job) Job() tool.Job { return tool.NewJob(host{j}) }

// Run runs a tool. It encodes args with arcp.Marshal, or uses an arcp.Raw unchanged. The errors are
// the errors that a client receives: INVALID_ARGUMENT for arguments that break the input schema,
// INTERNAL for a panic or a result that breaks the output schema, and the other errors of Tool.Run.
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

// Resume ends an interrupt. Job.Yield returns the guidance, which may be empty.
func (j *Job) Resume(guidance string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.resumed != nil {
		j.guidance = guidance
		close(j.resumed)
		j.resumed, j.pause = nil, make(chan struct{})
	}
}

// WantCheckpoint sends to the channel of Job.CheckpointWanted.
func (j *Job) WantCheckpoint() {
	select {
	case j.wanted <- struct{}{}:
	default:
	}
}
