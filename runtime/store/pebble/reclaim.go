package pebble

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
)

// reclaimer reclaims the disk space of deleted jobs by compaction. Pebble itself compacts
// only after enough later writes. Jobs that are deleted because the disk is full cannot
// wait for those.
type reclaimer struct {
	db    *pdb.DB
	pause time.Duration
	age   time.Duration // of files that are rewritten
	wake  chan struct{}
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu   sync.Mutex
	jobs [][]byte // prefixes of the chunks of deleted jobs
}

// Bounds of a reclaimer.
const (
	reclaimPause = 30 * time.Second // between rounds, each of which flushes the memory tables; scaled
	reclaimGap   = 8 << 20          // bytes between two jobs that are compacted together
	reclaimJobs  = 4096             // of more jobs every other is dropped: compacting its neighbours covers it
)

func startReclaimer(db *pdb.DB, pause, age time.Duration) *reclaimer {
	ctx, stop := context.WithCancel(context.Background())
	r := &reclaimer{db: db, pause: pause, age: age, wake: make(chan struct{}, 1), stop: stop}
	r.done.Go(func() { r.run(ctx) })
	return r
}

// close stops the current round and waits for it.
func (r *reclaimer) close() {
	r.stop()
	r.done.Wait()
}

// deleted adds a job whose deletion was committed.
func (r *reclaimer) deleted(id arcp.JobID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(jobKey(nil, tChunk, id))
}

func (r *reclaimer) addLocked(jobs ...[]byte) {
	if r.jobs = append(r.jobs, jobs...); len(r.jobs) > reclaimJobs {
		r.halve()
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reclaimer) halve() {
	slices.SortFunc(r.jobs, bytes.Compare)
	kept := r.jobs[:0]
	for i := 0; i < len(r.jobs); i += 2 {
		kept = append(kept, r.jobs[i])
	}
	clear(r.jobs[len(kept):])
	r.jobs = kept
}

// run starts a round after each wake and a pause. While there is garbage, it flushes every
// r.age, so that Pebble rewrites files.
func (r *reclaimer) run(ctx context.Context) {
	for ctx.Err() == nil {
		var rewrite <-chan time.Time
		if r.garbage() {
			rewrite = time.After(r.age)
		}
		select {
		case <-ctx.Done():
			return
		case <-rewrite:
			_ = r.db.Flush() // afterwards Pebble looks for files to rewrite
			continue
		case <-r.wake:
		}
		// The pause is before the round: a sweep deletes jobs in many batches.
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.pause):
		}
		r.round(ctx)
	}
}

// garbage reports whether files of values should be rewritten. Pebble does so, but looks
// for them only after other work.
func (r *reclaimer) garbage() bool {
	m := r.db.Metrics()
	unwanted := m.BlobFiles.ValueSize - min(m.BlobFiles.ReferencedValueSize, m.BlobFiles.ValueSize)
	return float64(unwanted) > garbageRatio*float64(m.BlobFiles.ValueSize)
}

// round compacts the deleted jobs. A failed job is retried in the next round; Pebble logs the
// error.
func (r *reclaimer) round(ctx context.Context) {
	r.mu.Lock()
	jobs := r.jobs
	r.jobs = nil
	r.mu.Unlock()
	slices.SortFunc(jobs, bytes.Compare)
	for len(jobs) > 0 && ctx.Err() == nil {
		n := 1
		for n < len(jobs) && r.near(jobs[n-1], jobs[n]) {
			n++
		}
		if err := r.db.Compact(ctx, jobs[0], after(jobs[n-1]), false); err != nil {
			r.mu.Lock()
			r.addLocked(jobs[:n]...)
			r.mu.Unlock()
		}
		jobs = jobs[n:]
	}
}

// near reports whether little is stored between two jobs.
func (r *reclaimer) near(a, b []byte) bool {
	from := after(a)
	if string(from) >= string(b) {
		return true
	}
	n, err := r.db.EstimateDiskUsage(from, b)
	return err == nil && n < reclaimGap
}
