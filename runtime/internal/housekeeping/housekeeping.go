// Package housekeeping ends sessions whose resume window is over, deletes data older than the
// retention, and keeps the store within its bound.
package housekeeping

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/agentservice"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/resourceservice"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/space"
	"github.com/arcpd/arcpd/runtime/store"
)

// Pace of the janitor.
const (
	interval = 5 * time.Second
	step     = 256 // sessions or jobs deleted by one step

	// boundStep is the number of jobs deleted by one step when the store nears its bound. A step waits
	// for a commit. With fewer jobs the deletions of a busy store in memory are slower than the submits.
	boundStep = 2048

	// boundScan is the number of ended jobs among which such a step looks for jobs to delete. Jobs that
	// are still needed do not count.
	boundScan = 2 * boundStep

	// costlyScan is the number of jobs after which the store is not bounded again for an interval.
	costlyScan = 16 * boundScan

	// recheckSession is the interval of the checks of a session with unacknowledged events, which
	// may be deleted meanwhile.
	recheckSession = 10 * time.Minute

	// logEarlyEvery is the interval of the log messages about a store that nears its bound.
	logEarlyEvery = time.Minute
)

// Janitor runs on one goroutine of its own, in small steps: a concurrent commit waits for at most
// one step. Artifacts are swept on another goroutine.
type Janitor struct {
	opts     Options
	quit     context.CancelFunc
	donec    chan struct{}
	measurec chan struct{} // buffered 1: the log has a backlog to measure
	boundc   chan struct{} // buffered 1: the store nears its bound

	pendingReclaim pendingReclaim

	sweeping sync.WaitGroup // of artifacts
	sweptc   chan struct{}  // buffered 1: no sweep of artifacts runs

	// Fields of the goroutine.
	boundAgain       time.Time // boundData does nothing before, because it has read much
	early            int       // jobs deleted before their retention ended that are not logged
	earlyLogged      time.Time // when early was last logged
	approvalsChecked time.Time // last scan of the approvals
	approvalCursor   string    // key of the last scanned approval; "": the scan is complete
	resourcesChecked time.Time // last scan of the resources
	resourceCursor   string    // key of the last scanned resource; "": the scan is complete
}

// Options of a Janitor.
type Options struct {
	Store     store.Store
	Log       *eventlog.Log
	Auth      *auth.Set
	Engine    *engine.Engine
	Sessions  *session.Directory
	Questions *questions.Broker
	Agents    *agentservice.Service
	Resources *resourceservice.Service
	Artifacts *artifact.Store
	Metrics   *metrics.Metrics
	Logger    zerolog.Logger
	Broken    func() bool // reports whether the store has failed

	ResumeWindow time.Duration
	Retention    time.Duration // not positive: for ever
	MaxData      int64         // bytes of the store and the artifacts; not positive: any number
}

// New returns a janitor that has not started.
func New(o Options) *Janitor {
	j := &Janitor{opts: o, donec: make(chan struct{}), measurec: make(chan struct{}, 1), boundc: make(chan struct{}, 1),
		sweptc: make(chan struct{}, 1)}
	wake(j.sweptc)
	return j
}

// Start starts the janitor's goroutine.
func (j *Janitor) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	j.quit = cancel
	go j.run(ctx, tickInterval(j.opts.ResumeWindow))
}

// Stop ends the goroutine, and the sweep of artifacts, and waits for both.
func (j *Janitor) Stop() {
	j.quit()
	<-j.donec
	j.sweeping.Wait()
}

// MeasureBacklogs makes the janitor measure the backlogs of earlier processes at once. It does not
// block.
func (j *Janitor) MeasureBacklogs() { wake(j.measurec) }

// BoundData makes the janitor bound the size of the store at once. It does not block.
func (j *Janitor) BoundData() { wake(j.boundc) }

// Size returns the bytes of the store, without the space that it has yet to reclaim, and of the
// artifacts on this machine. Any goroutine may call it.
func (j *Janitor) Size(now time.Time) int64 {
	st := j.opts.Store.Stat()
	artifacts := j.opts.Artifacts.LocalBytes()
	if !st.Lags {
		return st.Bytes + artifacts
	}
	return st.Bytes + artifacts - j.pendingReclaim.update(now, st.Bytes)
}

// wake sends to a channel with a buffer of 1, unless it is full.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tickInterval returns an interval that is short compared with the resume window.
func tickInterval(window time.Duration) time.Duration {
	if window <= 0 {
		return interval
	}
	return min(interval, max(window/20, 10*time.Millisecond))
}

func (j *Janitor) run(ctx context.Context, every time.Duration) {
	defer close(j.donec)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			j.clean(ctx, time.Now())
		case <-j.measurec: // the bound of a backlog holds only after Measure
			j.repeat(ctx, time.Now(), j.backlogs)
		case <-j.boundc:
			j.repeat(ctx, time.Now(), j.boundData)
		case <-ctx.Done():
			return
		}
	}
}

// clean repeats each step until it has nothing to do. A step that fails is repeated next time.
func (j *Janitor) clean(ctx context.Context, now time.Time) {
	steps := []func(context.Context, time.Time) (bool, error){
		j.sessions, j.storeKnownClients, j.approvals, j.resources, j.artifacts, j.agents, j.feeds, j.jobs, j.boundData, j.backlogs,
	}
	for _, step := range steps {
		j.repeat(ctx, now, step)
	}
}

// repeat repeats a step until it has nothing to do.
func (j *Janitor) repeat(ctx context.Context, now time.Time, step func(context.Context, time.Time) (more bool, err error)) {
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = step(ctx, now); err != nil {
			j.logFailure(err)
			break
		}
	}
}

func (j *Janitor) logFailure(err error) {
	if !errors.Is(err, context.Canceled) && !j.opts.Broken() {
		j.opts.Logger.Error().Err(err).Msg("clean up")
	}
}

// sessions ends sessions that have been without a connection for longer than the resume window.
// Sessions with unacknowledged events end after the retention.
func (j *Janitor) sessions(ctx context.Context, now time.Time) (more bool, err error) {
	window := max(j.opts.ResumeWindow, 0)
	list := j.opts.Sessions.Expired(now, now.Add(-window), step)
	ended, n := make(chan error, len(list)), 0
	for _, e := range list {
		until, err := j.unacknowledged(ctx, &e, now)
		switch {
		case err != nil:
			return false, err
		case !until.IsZero():
			e.PostponeExpiry(until)
		case j.opts.Sessions.EndDetached(e.Session, e.Since, func(err error) {
			if err == nil {
				j.opts.Metrics.Evictions.WithLabelValues("expired").Inc()
			}
			ended <- err
		}):
			n++
		}
	}
	for range n { // the next steps need the sessions' ends to be recorded
		select {
		case <-ended:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	j.opts.Sessions.Sweep()
	return len(list) == step, nil
}

// unacknowledged returns the time of the next check of a session with unacknowledged events; zero
// if it has none.
func (j *Janitor) unacknowledged(ctx context.Context, e *session.Expired, now time.Time) (until time.Time, err error) {
	retention := j.opts.Retention
	if !e.Acks || retention > 0 && !e.Since.After(now.Add(-retention)) {
		return time.Time{}, nil
	}
	row, err := j.opts.Store.Session(ctx, e.ID)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && row.LastSeq <= row.TrimmedTo:
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, err
	}
	until = now.Add(recheckSession)
	if end := e.Since.Add(retention); retention > 0 && end.Before(until) {
		until = end
	}
	return until, nil
}

// approvalsEvery is the interval of the scans for closed approvals.
const approvalsEvery = time.Minute

// approvals closes approvals that have expired or whose session has ended, and deletes those
// closed before the retention.
func (j *Janitor) approvals(ctx context.Context, now time.Time) (more bool, err error) {
	j.opts.Questions.SessionApprovals().EndOverdue(ctx, now)
	if j.opts.Retention <= 0 || j.approvalCursor == "" && now.Sub(j.approvalsChecked) < approvalsEvery {
		return false, nil
	}
	j.approvalsChecked = now
	var old []store.Record
	n, last := 0, ""
	err = j.opts.Store.Records(ctx, approval.RecordPrefix(""), j.approvalCursor, func(rec store.Record) bool {
		var q approval.Row
		if arcp.Unmarshal(rec.Value, &q) == nil && q.Status != approval.Pending && q.ResolvedAt.Before(now.Add(-j.opts.Retention)) &&
			(q.Job == "" || !j.opts.Engine.Lives(q.Job)) { // an attempt may ask again
			old = append(old, store.Record{Key: rec.Key, Rev: rec.Rev})
		}
		n, last = n+1, rec.Key
		return n < step
	})
	if j.approvalCursor = last; n < step {
		j.approvalCursor = ""
	}
	if err == nil && len(old) > 0 {
		_, err = j.opts.Log.Commit(ctx, store.NewWrite().Put(old...))
	}
	return j.approvalCursor != "", err
}

// artifacts deletes artifacts that have expired, and idle uploads. It does so on another goroutine, one
// at a time: the content may be on another machine, which may be slow.
func (j *Janitor) artifacts(ctx context.Context, now time.Time) (more bool, err error) {
	select {
	case <-j.sweptc:
	default:
		return false, nil
	}
	j.sweeping.Go(func() {
		defer wake(j.sweptc)
		if err := j.opts.Artifacts.Sweep(ctx, now); err != nil {
			j.logFailure(err)
		}
	})
	return false, nil
}

// agents stops the remaining agents of sessions that have ended, and deletes agents that were stopped
// before the retention.
func (j *Janitor) agents(ctx context.Context, now time.Time) (more bool, err error) {
	return false, j.opts.Agents.Sweep(ctx, now)
}

// feeds trims feed entries older than the retention. It runs before jobs, so that few feed
// entries refer to a deleted job.
func (j *Janitor) feeds(ctx context.Context, now time.Time) (more bool, err error) {
	if j.opts.Retention <= 0 {
		return false, nil
	}
	var principals []string
	err = j.opts.Store.Feeds(ctx, func(p string) bool {
		principals = append(principals, p)
		return true
	})
	w := writes{log: j.opts.Log}
	return false, errors.Join(err, j.trimFeeds(ctx, &w, principals, now.Add(-j.opts.Retention)), w.wait())
}

// trimFeeds trims feed entries older than before. A read error of one feed does not stop the
// others.
func (j *Janitor) trimFeeds(ctx context.Context, w *writes, principals []string, before time.Time) (err error) {
	for _, p := range principals {
		if failed := j.trimFeed(ctx, w, p, before); failed != nil {
			err = errors.Join(err, fmt.Errorf("trim: %w", failed))
		}
	}
	return err
}

func (j *Janitor) trimFeed(ctx context.Context, w *writes, principal string, before time.Time) error {
	trimmed, last, err := j.opts.Store.FeedBounds(ctx, principal)
	if err != nil {
		return err
	}
	f := feedSearch{j.opts.Store, principal, before}
	upTo, err := f.lastOld(ctx, trimmed, last)
	if err == nil && upTo > trimmed {
		w.add(&store.Write{Ops: []store.Op{&store.TrimFeed{Principal: principal, Position: upTo}}, NoSync: true})
	}
	return err
}

// feedSearch finds the entries of a feed that are older than a time. It reads one entry of each position
// that it tries. Commits are only nearly ordered by time, so the end of the old entries is not exact.
type feedSearch struct {
	store     store.Store
	principal string
	before    time.Time
}

// lastOld returns the last position after low, and up to high, of an old entry, or of an entry of a
// deleted job that follows on it; low if there is none.
func (f *feedSearch) lastOld(ctx context.Context, low, high uint64) (uint64, error) {
	probe := low + 1 // most feeds have no old entry
	for low < high {
		position, old, err := f.entry(ctx, probe)
		switch {
		case err != nil:
			return low, err
		case old:
			low = min(position, high)
		default:
			high = probe - 1
		}
		probe = low + (high-low+1)/2
	}
	return f.passDeleted(ctx, low)
}

// maxDeletedRuns bounds the reads of one position that fail because the job was deleted.
const maxDeletedRuns = 64

// entry reports whether the first entry from a position on is old, and returns its position. An entry
// after more than maxDeletedRuns deleted runs is not old.
func (f *feedSearch) entry(ctx context.Context, from uint64) (position uint64, old bool, err error) {
	for range maxDeletedRuns {
		err := f.store.Feed(ctx, f.principal, from-1, func(e store.FeedEvent) bool {
			position, old = e.Position, e.Event.Time.Before(f.before)
			return false
		})
		trimmed, ok := errors.AsType[*store.TrimmedError](err)
		if !ok {
			return position, old, err
		}
		from = trimmed.UpTo + 1
	}
	return 0, false, nil
}

// passDeleted returns the last position before the next entry of a job that is stored, at most
// maxDeletedRuns deleted runs after a position.
func (f *feedSearch) passDeleted(ctx context.Context, position uint64) (uint64, error) {
	for range maxDeletedRuns {
		err := f.store.Feed(ctx, f.principal, position, func(store.FeedEvent) bool { return false })
		trimmed, ok := errors.AsType[*store.TrimmedError](err)
		if !ok {
			return position, err
		}
		position = trimmed.UpTo
	}
	return position, nil
}

// jobs deletes jobs that ended before the retention.
func (j *Janitor) jobs(ctx context.Context, now time.Time) (more bool, err error) {
	if j.opts.Retention <= 0 {
		return false, nil
	}
	var ended []endedJob
	err = j.opts.Store.EndedJobs(ctx, now.Add(-j.opts.Retention), func(job store.Job) bool {
		ended = append(ended, newEndedJob(&job))
		return len(ended) < step
	})
	if err != nil {
		return false, err
	}
	if j.isLarge(now) {
		if ended, err = j.measure(ctx, ended, math.MaxInt64); err != nil {
			return false, err
		}
	}
	w := writes{log: j.opts.Log}
	j.deleteJobs(&w, now, ended)
	return len(ended) == step, w.wait()
}

// endedJob is a job that has ended. Its size is the size of its arguments and options and, if it was
// measured, of its events.
type endedJob struct {
	id        arcp.JobID
	principal string
	at        time.Time
	size      int64
}

func newEndedJob(row *store.Job) endedJob {
	return endedJob{id: row.ID, principal: row.Principal, at: row.EndedAt, size: int64(len(row.Arguments) + len(row.Options))}
}

// dispensable returns at most n of the jobs that ended first. Jobs with events that their session has
// not received are returned only if the boundScan oldest ones are all of this kind. A job that is
// still needed is never returned.
func (j *Janitor) dispensable(ctx context.Context, before time.Time, n int) ([]endedJob, error) {
	var received, unreceived []endedJob
	var failed error
	read := 0
	needed := j.newNeeded(ctx)
	err := j.opts.Store.EndedJobs(ctx, before, func(job store.Job) bool {
		read++
		var keep bool
		if keep, failed = needed(&job); keep || failed != nil {
			return failed == nil
		}
		if j.received(&job) {
			received = append(received, newEndedJob(&job))
		} else {
			unreceived = append(unreceived, newEndedJob(&job))
		}
		return len(received) < n && len(received)+len(unreceived) < boundScan
	})
	if read > costlyScan {
		j.boundAgain = before.Add(interval)
	}
	if len(received) == 0 {
		received = unreceived[:min(n, len(unreceived))]
	}
	return received, cmp.Or(err, failed)
}

// newNeeded returns a function that reports whether an ended job is still needed: its end is being
// written, or an ancestor lives, which may ask for the outcome (SPEC §5.6).
func (j *Janitor) newNeeded(ctx context.Context) func(*store.Job) (bool, error) {
	living := make(map[arcp.JobID]bool) // by parent: it or an ancestor of it lives
	return func(job *store.Job) (bool, error) {
		if job.Parent == "" {
			return j.opts.Engine.Lives(job.ID), nil
		}
		lives, known := living[job.Parent]
		if !known {
			ancestor, err := j.opts.Engine.LivingAncestor(ctx, job)
			if err != nil {
				return false, err
			}
			lives = ancestor != ""
			living[job.Parent] = lives
		}
		return lives || j.opts.Engine.Lives(job.ID), nil
	}
}

// received reports whether the session that submitted a job has received its last event, or has
// ended. A session that acknowledges events has received those that it acknowledged.
func (j *Janitor) received(job *store.Job) bool {
	s := j.opts.Sessions.Find(job.Session)
	return s == nil || s.Position() >= job.LastSeq
}

// measure adds the sizes of the events of the first jobs until their sum reaches enough bytes. It returns these
// jobs.
func (j *Janitor) measure(ctx context.Context, list []endedJob, enough int64) ([]endedJob, error) {
	for i := range list {
		if enough <= 0 {
			return list[:i], nil
		}
		err := j.opts.Store.JobEvents(ctx, list[i].id, 0, func(e *store.Event) bool {
			list[i].size += int64(len(e.Body))
			return true
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		enough -= list[i].size
	}
	return list, nil
}

func (j *Janitor) deleteJobs(w *writes, now time.Time, list []endedJob) {
	for _, job := range list {
		w.addThen(store.NewWrite(&store.DeleteJob{Job: job.id}), func() { j.pendingReclaim.add(now, job.size) })
	}
}

// writes are writes that are committed at the same time.
type writes struct {
	log *eventlog.Log
	wg  sync.WaitGroup
	mu  sync.Mutex
	err error // of the first write that failed
}

// add appends a write to the log.
func (w *writes) add(write *store.Write) { w.addThen(write, func() {}) }

// addThen is add with a function that is called on the committer's goroutine when the write is committed.
func (w *writes) addThen(write *store.Write, then func()) {
	w.wg.Add(1)
	w.log.Append(write, func(r *store.Result) {
		defer w.wg.Done()
		if r.Err == nil {
			then()
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = cmp.Or(w.err, r.Err)
	})
}

// wait waits until the writes are committed. It returns the error of the first one that failed.
func (w *writes) wait() error {
	w.wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// lowWater returns the size down to which the data of a large store is deleted, a little below
// space.HighWater.
func lowWater(maxData int64) int64 { return space.HighWater(maxData) - maxData/50 }

// boundData deletes the oldest ended jobs of a large store until it has lowWater bytes, without the
// space that it has yet to reclaim.
func (j *Janitor) boundData(ctx context.Context, now time.Time) (more bool, err error) {
	if !j.isLarge(now) {
		return false, nil
	}
	n := 0
	for ctx.Err() == nil && err == nil && !now.Before(j.boundAgain) {
		excess := j.Size(now) - lowWater(j.opts.MaxData)
		if excess <= 0 {
			break
		}
		var deleted int
		if deleted, err = j.deleteOldest(ctx, now, excess); deleted == 0 {
			break
		}
		n += deleted
	}
	j.logEarly(now, n)
	return false, err
}

// logEarly logs jobs that were deleted before their retention ended, at most once in logEarlyEvery.
func (j *Janitor) logEarly(now time.Time, jobs int) {
	if j.early += jobs; j.early == 0 || now.Sub(j.earlyLogged) < logEarlyEvery {
		return
	}
	j.opts.Logger.Warn().Int("jobs", j.early).
		Msg("the store nears --max-data: the oldest finished jobs were deleted before their retention ended")
	j.early, j.earlyLogged = 0, now
}

// deleteOldest deletes the jobs that ended first until they have a number of bytes, at most boundStep
// jobs. It trims their feeds before.
func (j *Janitor) deleteOldest(ctx context.Context, now time.Time, enough int64) (deleted int, err error) {
	list, err := j.oldest(ctx, now, enough)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	var principals []string
	for i := range list {
		if p := list[i].principal; p != "" && !slices.Contains(principals, p) {
			principals = append(principals, p)
		}
	}
	w := writes{log: j.opts.Log}
	err = j.trimFeeds(ctx, &w, principals, list[len(list)-1].at.Add(1))
	j.deleteJobs(&w, now, list)
	return len(list), errors.Join(err, w.wait())
}

// oldest returns the jobs that deleteOldest deletes. A store that frees their space at once shows by
// itself whether they were enough, so their sizes are not read: the average is a good start.
func (j *Janitor) oldest(ctx context.Context, now time.Time, enough int64) ([]endedJob, error) {
	st := j.opts.Store.Stat()
	if !st.Lags {
		average := max(st.Bytes/int64(max(st.Jobs, 1)), 1)
		return j.dispensable(ctx, now, int(min(enough/average+1, boundStep)))
	}
	list, err := j.dispensable(ctx, now, boundStep)
	if err != nil {
		return nil, err
	}
	return j.measure(ctx, list, enough)
}

// backlogs measures the data delivered to sessions by earlier processes.
func (j *Janitor) backlogs(ctx context.Context, _ time.Time) (more bool, err error) {
	return j.opts.Log.Measure(ctx, j.position)
}

// isLarge reports whether the store nears its bound.
func (j *Janitor) isLarge(now time.Time) bool {
	return j.opts.MaxData > 0 && j.Size(now) > space.HighWater(j.opts.MaxData)
}

// pendingReclaim estimates how many deleted bytes the store has yet to reclaim. Any goroutine may call its
// methods.
type pendingReclaim struct {
	mu    sync.Mutex
	bytes int64
	size  int64     // of the store at the last update
	since time.Time // when bytes was last halved, or became more than 0
}

// reclaimHalfLife is the half-life of pendingReclaim.bytes. They decay because a job takes less disk
// space than the size of its events, and because new writes hide reclaimed space.
const reclaimHalfLife = time.Minute

func (p *pendingReclaim) add(now time.Time, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes == 0 {
		p.since = now
	}
	p.bytes += n
}

// update updates the estimate with the present size of the store, and returns it.
func (p *pendingReclaim) update(now time.Time, size int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes = max(p.bytes-max(p.size-size, 0), 0)
	p.size = size
	for ; p.bytes > 0 && now.Sub(p.since) >= reclaimHalfLife; p.since = p.since.Add(reclaimHalfLife) {
		p.bytes /= 2
	}
	return p.bytes
}

// sweepEvery is the interval of the scans for resources of sessions that have ended.
const sweepEvery = time.Minute

// resources deletes the remaining resources of sessions that have ended, and leases that were
// released before the retention.
func (j *Janitor) resources(ctx context.Context, now time.Time) (more bool, err error) {
	resources := j.opts.Resources.Store
	if more, err = resources.DeleteReleased(ctx, now, step); more || err != nil {
		return more, err
	}
	if j.resourceCursor == "" && now.Sub(j.resourcesChecked) < sweepEvery {
		return false, nil
	}
	j.resourcesChecked = now
	j.resourceCursor, err = resources.Sweep(ctx, j.resourceCursor, step)
	return j.resourceCursor != "" && err == nil, err
}

// position returns the event_seq up to which a session has received its events, or 0 if it is
// unknown.
func (j *Janitor) position(id arcp.SessionID) uint64 {
	if s := j.opts.Sessions.Find(id); s != nil {
		return s.Position()
	}
	return 0
}
