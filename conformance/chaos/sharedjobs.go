package chaos

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of sharedJobs.
const (
	maxShared = 64 // jobs of one principal, the newest
	maxRecent = 8  // of these, jobs that probably still run and are picked more often
)

// sharedJobs publishes the jobs of sessions to other sessions, which follow and cancel them.
type sharedJobs struct {
	mu   sync.Mutex
	jobs map[string][]sharedJob
	keys map[string]int // number of the newest idempotency key, by principal
}

type sharedJob struct {
	job arcp.JobID
	by  arcp.SessionID
}

func newSharedJobs() *sharedJobs {
	return &sharedJobs{jobs: make(map[string][]sharedJob), keys: make(map[string]int)}
}

func (b *sharedJobs) add(principal string, by arcp.SessionID, job arcp.JobID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := append(b.jobs[principal], sharedJob{job, by})
	b.jobs[principal] = slices.Clone(list[max(0, len(list)-maxShared):])
}

// pick returns a random job of a principal. ok is false if there is none or session except
// submitted the job.
func (b *sharedJobs) pick(rnd *rand.Rand, principal string, except arcp.SessionID) (arcp.JobID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.jobs[principal]
	if len(list) == 0 {
		return "", false
	}
	from := 0
	if rnd.IntN(4) > 0 {
		from = max(0, len(list)-maxRecent)
	}
	p := list[from+rnd.IntN(len(list)-from)]
	return p.job, p.by != except
}

// key returns the number of a recent idempotency key of the principal. Sessions of a principal
// often share it.
func (b *sharedJobs) key(rnd *rand.Rand, principal string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rnd.IntN(4) == 0 {
		b.keys[principal]++
	}
	return max(0, b.keys[principal]-rnd.IntN(3))
}
