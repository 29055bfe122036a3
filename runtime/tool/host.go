package tool

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// Host implements the methods of a Job; the comments of Job, Authority, Permissions, Resources
// and Artifacts specify them. Three packages have a Host: the engine for jobs in the runtime, toolworker for
// jobs in a worker, and tooltest for tests. Job checks the arguments. Many goroutines may call the
// methods.
type Host interface {
	ID() arcp.JobID
	Attempt() uint32
	TraceID() string
	SpanID() string
	Restored() arcp.Raw

	// Emit appends an event to the job: an arcp.LogPayload, JobProgressPayload,
	// MetricPayload, TraceSpanPayload or EventEmitPayload. Emit copies the raw members of payload.
	Emit(t arcp.Type, payload any) error
	// OpenStream opens a stream. The payload is valid.
	OpenStream(p arcp.StreamOpenPayload) (StreamHost, error)
	// AcceptStream waits for a stream of a client.
	AcceptStream(ctx context.Context) (ClientStreamHost, error)
	// OpenResult begins the result in chunks. The options are complete.
	OpenResult(o ResultOptions) (ResultHost, error)
	Checkpoint(label string, data arcp.Raw) error
	CheckpointWanted() <-chan struct{}
	Yield(ctx context.Context) (guidance string, err error)
	Interrupted() <-chan struct{}
	ManualHeartbeat()
	Heartbeat()

	Ask(ctx context.Context, req InputRequest) (Answer, error)
	Choose(ctx context.Context, req ChoiceRequest) (Answer, error)
	Call(ctx context.Context, c Call) (arcp.Raw, error)

	Allow(namespace, target string) error
	UseModel(model string) error
	Files() *access.Files
	Fetcher() *access.Fetcher
	Charge(name, currency string, amount arcp.Number) error

	Permit(ctx context.Context, req PermissionRequest) (PermissionLease, error)
	Permitted(permission, resource, operation string) error
	Extend(ctx context.Context, id arcp.LeaseID, more time.Duration) (time.Time, error)

	Lease(ctx context.Context, req ResourceRequest) (ResourceLease, error)
	LeaseDirectory(ctx context.Context, req DirectoryRequest) (path string, l ResourceLease, err error)

	PutArtifact(ctx context.Context, n NewArtifact) (arcp.ArtifactObject, error)
	OpenArtifact(ctx context.Context, id arcp.ArtifactID) (arcp.ArtifactObject, io.ReadSeekCloser, error)

	// Failed receives the *PanicError of a tool that panicked, an error that wraps ErrLost, and
	// the *LoggableError that a tool has returned or that describes an invalid result. Tool.Run
	// calls it before it returns.
	Failed(err error)
}

// StreamHost implements the methods of a Stream. Stream calls one method at a time.
type StreamHost interface {
	ID() arcp.StreamID
	// Chunk appends a chunk and numbers it. Chunk copies the raw member of the payload.
	Chunk(p arcp.StreamChunkPayload) error
	// End ends the stream: with stream.close if err is nil, otherwise with stream.error.
	End(err *arcp.Error) error
}

// ClientStreamHost implements the methods of a ClientStream.
type ClientStreamHost interface {
	Opened() (arcp.StreamID, arcp.StreamOpenPayload)
	Next(ctx context.Context) (ClientChunk, error)
	// Close ends the stream with an error for the client, unless it has ended.
	Close(err *arcp.Error)
}

// ResultHost implements the methods of a Result. Result calls one method at a time, with content of at
// most MaxResultChunk bytes, which is UTF-8 for a text. The methods copy the content.
type ResultHost interface {
	// Chunk appends a chunk that others follow.
	Chunk(content []byte) error
	// End appends the last chunk.
	End(content []byte, summary string) error
}

// ErrLost ends an attempt whose outcome is unknown, because the program that ran it has
// disconnected. Capability.Recovery decides how the job continues. A wrapping error may describe the loss.
var ErrLost = errors.New("the attempt is lost")

// LoggableError is an error with a text that repeats neither arguments nor results nor output. The log of the
// runtime may have this text. Clients receive Err.
type LoggableError struct {
	Err *arcp.Error
	Log string // the text for the log, if the message of Err may repeat more; empty: the message of Err
}

// LogText returns the text for the log.
func (e *LoggableError) LogText() string { return cmp.Or(e.Log, e.Err.Message) }

func (e *LoggableError) Error() string { return e.Err.Error() }
func (e *LoggableError) Unwrap() error { return e.Err }

// AttemptInfo holds the conditions of an attempt.
type AttemptInfo struct {
	Principal  string // owner of the job
	Priority   arcp.Priority
	SpanID     string
	Lease      arcp.Raw                   // nil: the job has none
	Deadline   time.Time                  // of the job and its lease, which later commands may change; zero: none
	Limit      time.Duration              // how long a worker may take for the attempt; 0: for ever
	Checkpoint *arcp.JobCheckpointPayload // the attempt continues from it; nil: from the start
}

// WorkerWait says why an attempt waits for a worker (SPEC.md §7.8).
type WorkerWait struct {
	Reason string    // arcp.WaitWorker, arcp.WaitWorkerSlot or arcp.WaitReconnect
	Since  time.Time // when the wait began
	Worker string    // with WaitReconnect: name of the worker; "": it is of another principal than the job
	Until  time.Time // with WaitReconnect: without a new connection until then, the attempt is lost
}

// Attempt is a Host that reports the conditions and the end of its attempt to a tool that
// forwards the work to another program. The Hosts of the engine are Attempts.
type Attempt interface {
	Host
	Info() AttemptInfo
	// CheckLease returns LEASE_EXPIRED, and ends the job, if the job's lease has ended. The tool calls it
	// right before it forwards the work.
	CheckLease() error
	// Ended returns a channel that is closed when the job refuses further events of the
	// attempt.
	Ended() <-chan struct{}
	// Failure returns the error of the job after Ended is closed; nil: the job has
	// completed or continues.
	Failure() *arcp.Error
	// SetWait says why the attempt waits for a worker; nil: it does not wait. While the attempt
	// waits, its time limit does not run. With arcp.WaitReconnect missing heartbeats do not count
	// either. After such a wait the worker has the whole time for the next one. Each wait is a new
	// value, which must not change afterwards. SetWait does not block, and may be called with any
	// lock of the caller. Calls for an attempt must not be concurrent.
	SetWait(*WorkerWait)
}
