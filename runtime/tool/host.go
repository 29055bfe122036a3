package tool

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// Host implements the methods of a Job; the comments of these methods specify it. The engine
// is the Host of jobs in its process, package toolworker of jobs in a worker, and package
// tooltest of tools under test. Job has checked the arguments. Many goroutines may call the
// methods.
type Host interface {
	ID() arcp.JobID
	Attempt() uint32
	TraceID() string
	Restored() arcp.Raw

	// Emit appends an event to the job: an arcp.LogPayload, JobProgressPayload,
	// MetricPayload or EventEmitPayload. The raw members of payload are not used
	// after it returns.
	Emit(t arcp.Type, payload any) error
	Checkpoint(label string, data arcp.Raw) error
	CheckpointWanted() <-chan struct{}
	Yield(ctx context.Context) (guidance string, err error)
	Interrupted() <-chan struct{}
	ManualHeartbeat()
	Heartbeat()

	Ask(ctx context.Context, a InputAsk) (Answer, error)
	Choose(ctx context.Context, c ChoiceAsk) (Answer, error)
	Call(ctx context.Context, c Call) (arcp.Raw, error)

	Allow(namespace, target string) error
	UseModel(model string) error
	Files() *access.Files
	Fetcher() *access.Fetcher
	Charge(name, currency string, amount arcp.Number) error

	Permit(ctx context.Context, p PermissionAsk) (PermissionLease, error)
	Permitted(permission, resource, operation string) error
	Extend(ctx context.Context, id arcp.LeaseID, more time.Duration) (time.Time, error)

	Lease(ctx context.Context, a ResourceAsk) (ResourceLease, error)
	LeaseDirectory(ctx context.Context, a DirectoryAsk) (path string, l ResourceLease, err error)

	// Failed receives the *PanicError of a tool that panicked, on its goroutine, and
	// an error that wraps ErrLost. It is called before Tool.Run returns.
	Failed(err error)
}

// ErrLost ends an attempt with an unknown outcome, because the program that made it is gone.
// The job follows the tool's recovery: another attempt, or ABORTED. A wrapping error may
// describe the loss.
var ErrLost = errors.New("the attempt is lost")

// AttemptInfo holds the conditions of an attempt.
type AttemptInfo struct {
	Principal  string // owner of the job
	Priority   arcp.Priority
	SpanID     string
	Lease      arcp.Raw                   // nil: the job has none
	Deadline   time.Time                  // latest end, as far as it is known now; zero: none
	Checkpoint *arcp.JobCheckpointPayload // Job.Restored and its checkpoint; nil: the attempt begins at the start
}

// Attempt is a Host that reports the conditions and the end of the attempt, for tools
// that delegate the work to another program. The Hosts of the engine are Attempts.
type Attempt interface {
	Host
	Info() AttemptInfo
	// Ended is closed when nothing more of the attempt is accepted.
	Ended() <-chan struct{}
	// Failure is the error that the job ended with, once Ended is closed; nil: it has
	// none, or the job continues.
	Failure() *arcp.Error
}

// Slots holds how many jobs of each tool from workers may run at once, by the tool's
// reference. It changes as workers come and go. The zero value has none.
type Slots struct {
	mu sync.Mutex
	n  map[string]int // above 0
}

// Set changes the number of one tool.
func (s *Slots) Set(ref string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= 0 {
		delete(s.n, ref)
		return
	}
	if s.n == nil {
		s.n = make(map[string]int)
	}
	s.n[ref] = n
}

// Of returns the number of one tool; a nil Slots has none.
func (s *Slots) Of(ref string) int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n[ref]
}
