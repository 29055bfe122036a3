package credential

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/backoff"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/store"
)

// Backoff of failed revocations.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	maxError   = 200 // bytes of a stored error
)

// source is a provisioner in use. Its run goroutine processes the rows to revoke, up to
// maxCalls at once. A slow provisioner delays only its own rows.
type source struct {
	Source
	v         *Vault
	slots     chan struct{} // a slot for each running request to issue
	waiting   atomic.Int64  // requests to issue that wait for a slot
	unrevoked atomic.Int64  // queued rows

	mu    sync.Mutex
	inbox []*task
	kick  chan struct{} // buffered 1: the inbox is not empty
}

func newSource(v *Vault, s Source) *source {
	return &source{Source: s, v: v, slots: make(chan struct{}, maxCalls), kick: make(chan struct{}, 1)}
}

// task is a row to process. It belongs to run, or during an attempt to the goroutine of the
// attempt.
type task struct {
	key    string
	n      int      // number of credentials
	values []Secret // forgotten by the redactor after the revocation
	due    time.Time
	tries  int  // consecutive attempts without a stored outcome
	rerun  bool // of the run goroutine: enqueued again while busy
	busy   bool // of the run goroutine: an attempt is running
}

// enqueue queues a row. The state of the row, read in the background, decides whether its
// credentials are revoked.
func (s *source) enqueue(t *task) {
	if limit := time.Now().Add(lastRetry); t.due.After(limit) {
		t.due = limit // the clock went back
	}
	s.v.count(t.n)
	s.unrevoked.Add(1)
	s.mu.Lock()
	s.inbox = append(s.inbox, t)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// finish ends a task.
func (s *source) finish(t *task) {
	for _, value := range t.values {
		s.v.opts.Redactor.Forget(value)
	}
	s.v.count(-t.n)
	s.unrevoked.Add(-1)
}

// run starts a goroutine for each due task, until the vault is closed.
func (s *source) run() {
	var (
		queue   queue
		known   = make(map[string]*task)
		resultc = make(chan *task)
		running int
		timer   = time.NewTimer(time.Hour)
	)
	defer timer.Stop()
	for {
		for _, t := range s.drain() {
			s.merge(t, known, &queue)
		}
		for now := time.Now(); running < maxCalls && len(queue) > 0 && !queue[0].due.After(now); running++ {
			t := heap.Pop(&queue).(*task)
			t.busy = true
			s.v.wg.Go(func() { s.attempt(s.v.ctx, t); resultc <- t })
		}
		var alarm <-chan time.Time
		if running < maxCalls && len(queue) > 0 {
			timer.Reset(time.Until(queue[0].due))
			alarm = timer.C
		}
		select {
		case t := <-resultc:
			running--
			s.requeue(t, known, &queue)
		case <-s.kick:
		case <-alarm:
		case <-s.v.ctx.Done():
			for ; running > 0; running-- {
				<-resultc
			}
			return
		}
	}
}

func (s *source) drain() []*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.inbox
	s.inbox = nil
	return list
}

// merge adds a task to the queue. A second task for the same row is merged into the first
// one, which then runs at the earlier time, or once more if it is running.
func (s *source) merge(t *task, known map[string]*task, q *queue) {
	old := known[t.key]
	switch {
	case old == nil:
		known[t.key] = t
		heap.Push(q, t)
		return
	case old.busy:
		old.rerun = true
	case t.due.Before(old.due):
		old.due = t.due
		heap.Init(q)
	}
	s.finish(t)
}

// requeue requeues a task after an attempt, or finishes it if its due time is zero.
func (s *source) requeue(t *task, known map[string]*task, q *queue) {
	t.busy = false
	if t.rerun {
		t.rerun, t.due = false, time.Now()
	}
	if t.due.IsZero() {
		delete(known, t.key)
		s.finish(t)
		return
	}
	heap.Push(q, t)
}

// attempt processes a row. It sets t.due to the time of the next attempt, or zero.
func (s *source) attempt(ctx context.Context, t *task) {
	next, err := s.process(ctx, t.key)
	switch {
	case ctx.Err() != nil:
		t.due = time.Now().Add(lastRetry) // by the next process
	case err != nil:
		t.tries++
		t.due = time.Now().Add(retryBackoff.Delay(t.tries))
		if !errors.Is(err, store.ErrConflict) {
			s.v.opts.Logger.Error().Err(err).Str("record", t.key).Msg("a record of credentials could not be processed")
		}
	default:
		t.tries, t.due = 0, next
	}
}

// process reads a row and revokes its credentials if the row requires it. It returns the time of
// the next attempt, or zero if the row is deleted or its job is active.
func (s *source) process(ctx context.Context, key string) (time.Time, error) {
	f, err := table(s.v.opts.Store).Get(ctx, key)
	if err != nil || f.Rev == 0 {
		return time.Time{}, err
	}
	if r := &f.Value; r.State != Revoking {
		active, err := s.jobActive(ctx, &f)
		switch {
		case err != nil:
			return time.Time{}, err
		case active && r.State != Live && !s.v.markPending(r):
			return time.Now().Add(firstRetry), nil // no grant is active: the job is about to end, or Recover has not reached it
		case active:
			return time.Time{}, nil
		}
		// The accepting commit requires the revision replaced here: from now on the job cannot be
		// accepted.
		f.Value = r.revoking()
		if err := s.v.write(ctx, &f); err != nil {
			return time.Time{}, err
		}
	}
	return s.revoke(ctx, &f)
}

// jobActive reports whether a row's job is accepted and active; then a later generation is not
// revoked before it is live. It activates a live row before it reads the job, so
// that a concurrent Ended finds them.
func (s *source) jobActive(ctx context.Context, f *stored) (bool, error) {
	r := &f.Value
	if r.State != Live && r.generation() == 1 {
		return false, nil
	}
	ended, err := s.v.jobEnded(ctx, r.Job)
	if ended || err != nil || r.State != Live {
		return err == nil && !ended, err
	}
	s.v.activate(s.v.open(r, f.Rev))
	ended, err = s.v.jobEnded(ctx, r.Job)
	if ended || err != nil {
		s.v.deactivate(r)
	}
	return !ended && err == nil, err
}

// deactivate undoes activate.
func (v *Vault) deactivate(r *row) {
	g, pending := v.removeActive(r)
	if pending {
		v.source(r.Source).enqueue(&task{key: g.row.nextKey(), n: g.row.count()})
	}
}

// removeActive removes the grant of a row. pending: the next generation may have a row.
func (v *Vault) removeActive(r *row) (g *grant, pending bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.active[r.Job]
	i := slices.IndexFunc(list, func(g *grant) bool { return g.row.Source == r.Source && g.row.generation() == r.generation() })
	if i < 0 {
		return nil, false
	}
	g = list[i]
	for _, s := range g.values {
		v.opts.Redactor.Forget(s)
	}
	if list = append(list[:i:i], list[i+1:]...); len(list) == 0 {
		delete(v.active, r.Job)
	} else {
		v.active[r.Job] = list
	}
	return g, g.releaseLocked()
}

// revoke calls the provisioner for all credentials of the row and stores those that failed.
func (s *source) revoke(ctx context.Context, f *stored) (time.Time, error) {
	var failure error
	r := &f.Value
	left := r.Parts[:0:0]
	for i := range r.Parts {
		if err := s.call(ctx, r.ref(&r.Parts[i])); err != nil {
			failure = err
			left = append(left, r.Parts[i])
		}
	}
	if r.Unknown {
		if err := s.call(ctx, Ref{Job: r.Job}); err != nil {
			failure = err
		} else {
			r.Unknown = false
		}
	}
	if ctx.Err() != nil {
		return time.Time{}, context.Cause(ctx)
	}
	if failure == nil {
		return time.Time{}, s.v.erase(ctx, f)
	}
	r.Parts = left
	r.Failed++
	r.NextAt = time.Now().Add(retryBackoff.Delay(r.Failed))
	r.Error = s.v.errorText(failure)
	s.v.opts.Logger.Warn().Str("job_id", string(r.Job)).Str("provisioner", s.Name).Int("attempts", r.Failed).Str("error", r.Error).
		Msg("a credential is not revoked yet")
	return s.saveAttempt(ctx, f)
}

// saveAttempt stores the outcome of an attempt. Losing the write is harmless.
func (s *source) saveAttempt(ctx context.Context, f *stored) (time.Time, error) {
	rec, err := f.Put(&f.Value)
	if err != nil {
		return time.Time{}, err
	}
	_, err = s.v.opts.Log.Commit(ctx, &store.Write{Ops: []store.Op{(*store.PutRecord)(&rec)}, NoSync: true})
	return f.Value.NextAt, err
}

func (s *source) call(ctx context.Context, ref Ref) error {
	ctx, cancel := context.WithTimeoutCause(ctx, revokeTimeout, errTimeout)
	defer cancel()
	err := s.Provisioner.Revoke(ctx, ref)
	if err == nil {
		s.v.countOperation("revoke", "ok")
	} else {
		s.v.countOperation("revoke", "error")
	}
	return err
}

// errorText returns the stored form of an error: short and without values.
func (v *Vault) errorText(err error) string {
	return clip.Text(string(v.Scrub([]byte(err.Error()))), maxError)
}

// retryBackoff is the delay of the next call of a provisioner after one that failed.
var retryBackoff = backoff.Policy{Min: firstRetry, Max: lastRetry, Jitter: 0.2}

// ErrActive is the error of Forget for the credentials of an active job.
var ErrActive = errors.New("the job is active: cancel it first")

// Forget deletes the rows of credentials that an operator has revoked by hand: credentials of
// a job that has ended, and replaced ones. commit performs the deletions in one write and
// calls its function once with the outcome.
func (v *Vault) Forget(ctx context.Context, job arcp.JobID, provisioner string, commit func(context.Context, *store.Write, func(error)) error) error {
	var deletions []store.Record
	found := false
	key := rowKey(job, provisioner)
	err := table(v.opts.Store).Scan(ctx, key, "", func(f stored, bad error) bool {
		if f.Key == key || strings.HasPrefix(f.Key, key+"/") {
			found = true
			if bad != nil || f.Value.State == Revoking {
				deletions = append(deletions, f.Delete())
			}
		}
		return true
	})
	switch {
	case err != nil:
		return err
	case !found:
		return store.ErrNotFound
	case len(deletions) == 0:
		return ErrActive
	}
	return commit(ctx, store.NewWrite().Put(deletions...), func(err error) {
		for i := 0; i < len(deletions) && err == nil; i++ {
			v.source(provisioner).enqueue(&task{key: deletions[i].Key}) // the attempt finds the row deleted
		}
	})
}

// queue is a heap of tasks, ordered by due time.
type queue []*task

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(*task)) }
func (q *queue) Pop() any {
	n := len(*q) - 1
	t := (*q)[n]
	(*q)[n] = nil
	*q = (*q)[:n]
	return t
}
