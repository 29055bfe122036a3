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

// reclaimer gives back the disk space of deleted jobs. Pebble by itself does so
// when enough has been written after them; a store that is cleared because the
// disk is short cannot wait for that.
type reclaimer struct {
	db    *pdb.DB
	pause time.Duration
	age   time.Duration // of files that are rewritten
	wake  chan struct{}
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu   sync.Mutex
	jobs [][]byte // what the keys of deleted jobs' chunks begin with
}

// Bounds of a reclaimer. Every round flushes what is in memory, so they are not
// frequent. Deleted jobs with little between them are compacted together: what
// lies between is rewritten as well. Of very many jobs every other is forgotten:
// its neighbours stand for it.
const (
	reclaimPause = 30 * time.Second
	reclaimGap   = 8 << 20
	reclaimJobs  = 4096
)

func startReclaimer(db *pdb.DB, pause, age time.Duration) *reclaimer {
	ctx, stop := context.WithCancel(context.Background())
	r := &reclaimer{db: db, pause: pause, age: age, wake: make(chan struct{}, 1), stop: stop}
	r.done.Go(func() { r.run(ctx) })
	return r
}

// close ends the round under way and waits for it.
func (r *reclaimer) close() {
	r.stop()
	r.done.Wait()
}

// deleted is told of a job whose deletion was committed.
func (r *reclaimer) deleted(id arcp.JobID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(jobKey(nil, tChunk, id))
}

// add needs the lock.
func (r *reclaimer) add(jobs ...[]byte) {
	if r.jobs = append(r.jobs, jobs...); len(r.jobs) > reclaimJobs {
		r.thin()
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reclaimer) thin() {
	slices.SortFunc(r.jobs, bytes.Compare)
	kept := r.jobs[:0]
	for i := 0; i < len(r.jobs); i += 2 {
		kept = append(kept, r.jobs[i])
	}
	clear(r.jobs[len(kept):])
	r.jobs = kept
}

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
			_ = r.db.Flush() // whatever is done ends with a look at what is to be rewritten
			continue
		case <-r.wake:
		}
		// The round waits, not the next one: a sweep comes in many batches.
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.pause):
		}
		r.round(ctx)
	}
}

// garbage reports whether files with values should be rewritten. The database does
// so, but looks for them only when it has something else to do.
func (r *reclaimer) garbage() bool {
	m := r.db.Metrics()
	unwanted := m.BlobFiles.ValueSize - min(m.BlobFiles.ReferencedValueSize, m.BlobFiles.ValueSize)
	return float64(unwanted) > garbageRatio*float64(m.BlobFiles.ValueSize)
}

// round compacts the deleted jobs. What fails, of which the database tells, is
// for the next round.
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
			r.add(jobs[:n]...)
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
