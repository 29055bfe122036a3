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

func (sj *sharedJobs) add(principal string, by arcp.SessionID, job arcp.JobID) {
	sj.mu.Lock()
	defer sj.mu.Unlock()
	list := append(sj.jobs[principal], sharedJob{job, by})
	sj.jobs[principal] = slices.Clone(list[max(0, len(list)-maxShared):])
}

// pick returns a random job of a principal. ok is false if there is none or session except
// submitted the job.
func (sj *sharedJobs) pick(rnd *rand.Rand, principal string, except arcp.SessionID) (arcp.JobID, bool) {
	sj.mu.Lock()
	defer sj.mu.Unlock()
	list := sj.jobs[principal]
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
func (sj *sharedJobs) key(rnd *rand.Rand, principal string) int {
	sj.mu.Lock()
	defer sj.mu.Unlock()
	if rnd.IntN(4) == 0 {
		sj.keys[principal]++
	}
	return max(0, sj.keys[principal]-rnd.IntN(3))
}
