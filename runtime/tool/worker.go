package tool

import (
	"errors"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// ErrLost ends an attempt whose outcome nobody will ever say, because the program
// that made it is gone. Its job follows the tool's recovery: another attempt, or
// ABORTED. It may be wrapped: the text says what was lost.
var ErrLost = errors.New("the attempt is lost")

// LossReporter is a Job that has to know of ErrLost, which is no error of the
// tool's. It is called before Run returns.
type LossReporter interface {
	AttemptLost(err error)
}

// AttemptInfo is what a worker is told about an attempt.
type AttemptInfo struct {
	Principal  string // whose job it is
	Priority   arcp.Priority
	SpanID     string
	Lease      arcp.Raw                   // nil: the job has none
	Deadline   time.Time                  // the attempt ends then at the latest, as far as is known now; zero: never
	Checkpoint *arcp.JobCheckpointPayload // Job.Restored and where it is from; nil: the attempt begins at the start
}

// Attempt is a Job that tells more, for tools that have somebody else do the work.
// Every Job of the engine is one.
type Attempt interface {
	Job
	Terms() AttemptInfo
	// Ended is closed when nothing more of the attempt is taken, whatever its tool
	// does.
	Ended() <-chan struct{}
	// Failure is the error that the job ended with, once Ended is closed; nil: there is
	// none, or the job goes on.
	Failure() *arcp.Error
}

// Slots says how many jobs of each tool from workers may run at once, by the
// tool's reference. It changes as workers come and go. The zero value has none.
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

// Of is the number of one tool; nil has none.
func (s *Slots) Of(ref string) int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n[ref]
}
