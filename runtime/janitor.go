package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/store"
)

// Pace of the janitor: how often it looks, and how much it does before it looks
// at everything again.
const (
	janitorInterval = 5 * time.Second
	janitorStep     = 256  // sessions or jobs deleted in one go
	janitorEvents   = 4096 // events of a feed looked at in one go

	// A session that is kept for what it has not acknowledged is looked at again
	// after this: its jobs may be gone.
	janitorKeep = 10 * time.Minute
)

// janitor ends sessions that nobody came back to and deletes what is older than
// the retention, in the background and in small steps: whoever commits meanwhile
// waits for one step at most.
type janitor struct {
	rt    *Runtime
	quit  context.CancelFunc
	donec chan struct{}

	owed   owed      // run's
	looked time.Time // at the approvals
	at     string    // the record it has come to

	swept     time.Time // the resources, of sessions that have ended
	resources string    // the record it has come to
}

func newJanitor(r *Runtime) *janitor {
	ctx, cancel := context.WithCancel(context.Background())
	j := &janitor{rt: r, quit: cancel, donec: make(chan struct{})}
	go j.run(ctx, interval(r.cfg.ResumeWindow))
	return j
}

// interval is short enough that a session does not outlive its window by much.
func interval(window time.Duration) time.Duration {
	if window <= 0 {
		return janitorInterval
	}
	return min(janitorInterval, max(window/20, 10*time.Millisecond))
}

func (j *janitor) stop() {
	j.quit()
	<-j.donec
}

func (j *janitor) run(ctx context.Context, every time.Duration) {
	defer close(j.donec)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			j.clean(ctx, time.Now())
		case <-j.rt.older: // at once: until it has come to its end, the bound of a backlog does not hold
			j.do(ctx, time.Now(), j.backlogs)
		case <-ctx.Done():
			return
		}
	}
}

// clean goes on until there is nothing to do. A step that fails is for the next
// time.
func (j *janitor) clean(ctx context.Context, now time.Time) {
	for _, step := range []func(context.Context, time.Time) (bool, error){j.sessions, j.sightings, j.approvals, j.registry, j.host, j.feeds, j.jobs, j.disk, j.backlogs} {
		j.do(ctx, now, step)
	}
}

// do takes a step until there is nothing more to do.
func (j *janitor) do(ctx context.Context, now time.Time, step func(context.Context, time.Time) (more bool, err error)) {
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = step(ctx, now); err != nil {
			j.failed(err)
			break
		}
	}
}

func (j *janitor) failed(err error) {
	if !errors.Is(err, context.Canceled) && j.rt.broken.Load() == nil {
		j.rt.cfg.Log.Error().Err(err).Msg("clean up")
	}
}

// sessions ends those that have been without a connection for longer than the
// resume window, or than the retention if there is something that they have not
// acknowledged.
func (j *janitor) sessions(ctx context.Context, now time.Time) (more bool, err error) {
	r := j.rt
	window := max(r.cfg.ResumeWindow, 0)
	list := r.sessions.Expired(now, now.Add(-window), janitorStep)
	ended, n := make(chan error, len(list)), 0
	for _, e := range list {
		until, err := j.unacknowledged(ctx, &e, now)
		switch {
		case err != nil:
			return false, err
		case !until.IsZero():
			e.Keep(until)
		case r.sessions.EndDetached(e.Session, e.Since, func(err error) { ended <- err }):
			r.metrics.Evictions.WithLabelValues("expired").Inc()
			n++
		}
	}
	for range n { // before the next steps look for what is left of sessions that have ended
		select {
		case <-ended:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	r.sessions.Sweep()
	return len(list) == janitorStep, nil
}

// unacknowledged is until when a session is kept for what it has not
// acknowledged, as far as that is known now; zero if there is nothing.
func (j *janitor) unacknowledged(ctx context.Context, e *session.Expired, now time.Time) (until time.Time, err error) {
	retention := j.rt.cfg.Retention
	if !e.Acks || retention > 0 && !e.Since.After(now.Add(-retention)) {
		return time.Time{}, nil
	}
	row, err := j.rt.cfg.Store.Session(ctx, e.ID)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && row.LastSeq <= row.TrimmedTo:
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, err
	}
	until = now.Add(janitorKeep)
	if end := e.Since.Add(retention); retention > 0 && end.Before(until) {
		until = end
	}
	return until, nil
}

// approvalsEvery is how often the janitor looks at the settled questions.
const approvalsEvery = time.Minute

// approvals settles approvals whose time or session is over, and deletes those
// that were settled longer than the retention ago.
func (j *janitor) approvals(ctx context.Context, now time.Time) (more bool, err error) {
	j.rt.questions.EndOverdue(ctx, now)
	if j.rt.cfg.Retention <= 0 || j.at == "" && now.Sub(j.looked) < approvalsEvery {
		return false, nil
	}
	j.looked = now
	var old []store.Record
	n, last := 0, ""
	err = j.rt.cfg.Store.Records(ctx, approval.RecordPrefix(""), j.at, func(rec store.Record) bool {
		var q approval.Row
		if arcp.Unmarshal(rec.Value, &q) == nil && q.Status != approval.Pending && q.ResolvedAt.Before(now.Add(-j.rt.cfg.Retention)) &&
			(q.Job == "" || !j.rt.engine.Lives(q.Job)) { // an attempt may ask again
			old = append(old, store.Record{Key: rec.Key, Rev: rec.Rev})
		}
		n, last = n+1, rec.Key
		return n < janitorStep
	})
	if j.at = last; n < janitorStep {
		j.at = ""
	}
	if err == nil && len(old) > 0 {
		_, err = j.rt.log.Commit(ctx, &store.Write{Records: old})
	}
	return j.at != "", err
}

// host stops the agents of sessions that have ended, if that has not happened
// yet, and forgets those that were stopped so longer than the retention ago.
func (j *janitor) host(ctx context.Context, now time.Time) (more bool, err error) {
	return false, j.rt.agents.Sweep(ctx, now)
}

// feeds trims what is older than the retention. It comes before the jobs, so
// that hardly a feed refers to a job that is gone.
func (j *janitor) feeds(ctx context.Context, now time.Time) (more bool, err error) {
	if j.rt.cfg.Retention <= 0 {
		return false, nil
	}
	var principals []string
	err = j.rt.cfg.Store.Feeds(ctx, func(p string) bool {
		principals = append(principals, p)
		return true
	})
	return false, errors.Join(err, j.trimFeeds(ctx, principals, now.Add(-j.rt.cfg.Retention)))
}

// trimFeeds trims what is older than a time. A feed that cannot be read does not
// keep the others from it.
func (j *janitor) trimFeeds(ctx context.Context, principals []string, before time.Time) (err error) {
	for _, p := range principals {
		for more := true; more && ctx.Err() == nil; {
			var failed error
			if more, failed = j.trimFeed(ctx, p, before); failed != nil {
				err = errors.Join(err, fmt.Errorf("trim: %w", failed))
				break
			}
		}
	}
	return err
}

func (j *janitor) trimFeed(ctx context.Context, principal string, before time.Time) (more bool, err error) {
	trimmed, _, err := j.rt.cfg.Store.FeedBounds(ctx, principal)
	if err != nil {
		return false, err
	}
	upTo, more, err := j.stale(ctx, principal, trimmed, before)
	if upTo == trimmed {
		return false, err
	}
	_, failed := j.rt.log.Commit(ctx, &store.Write{TrimFeed: &store.FeedTrim{Principal: principal, Position: upTo}, NoSync: true})
	return more, errors.Join(err, failed)
}

// stale is how far a feed goes, from a position on, that is older than a time or
// of deleted jobs: commits are not quite in the order of time, so some are
// deleted while an event before theirs is still kept.
func (j *janitor) stale(ctx context.Context, principal string, after uint64, before time.Time) (upTo uint64, more bool, err error) {
	upTo = after
	for n := 0; n < janitorEvents; n++ {
		err := j.rt.cfg.Store.Feed(ctx, principal, upTo, func(e store.FeedEvent) bool {
			old := e.Event.Time.Before(before)
			if old {
				upTo, n = e.Position, n+1
			}
			return old && n < janitorEvents
		})
		gone, ok := errors.AsType[*store.TrimmedError](err)
		if !ok {
			return upTo, n == janitorEvents, err
		}
		upTo = gone.UpTo
	}
	return upTo, true, nil
}

// jobs deletes those that ended longer than the retention ago.
func (j *janitor) jobs(ctx context.Context, now time.Time) (more bool, err error) {
	if j.rt.cfg.Retention <= 0 {
		return false, nil
	}
	ended, err := j.ended(ctx, now.Add(-j.rt.cfg.Retention))
	if err != nil {
		return false, err
	}
	if j.excess(now) > 0 {
		if ended, err = j.measure(ctx, ended, math.MaxInt64); err != nil {
			return false, err
		}
	}
	return len(ended) == janitorStep, j.deleteJobs(ctx, now, ended)
}

// endedJob is a job that has ended. Its size is that of its events, if it was
// measured: more than what it takes on disk.
type endedJob struct {
	id        arcp.JobID
	principal string
	at        time.Time
	size      int64
}

// ended returns the jobs that ended first, a step of them.
func (j *janitor) ended(ctx context.Context, before time.Time) (list []endedJob, err error) {
	err = j.rt.cfg.Store.Ended(ctx, before, func(job store.Job) bool {
		list = append(list, endedJob{id: job.ID, principal: job.Principal, at: job.EndedAt})
		return len(list) < janitorStep
	})
	return list, err
}

// measure fills in the sizes of the first jobs, of as many as take a number of
// bytes together, and returns those.
func (j *janitor) measure(ctx context.Context, list []endedJob, enough int64) ([]endedJob, error) {
	for i := range list {
		if enough <= 0 {
			return list[:i], nil
		}
		err := j.rt.cfg.Store.JobEvents(ctx, list[i].id, 0, func(e *store.Event) bool {
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

func (j *janitor) deleteJobs(ctx context.Context, now time.Time, list []endedJob) (err error) {
	results := make(chan error, len(list))
	for _, job := range list {
		j.rt.log.Append(&store.Write{DeleteJob: job.id}, func(r *store.Result) { results <- r.Err })
	}
	for _, job := range list {
		err = errors.Join(err, <-results)
		j.owed.add(now, job.size)
	}
	return err
}

// disk deletes the oldest ended jobs until the store is within its bound, or
// will be once it has given back what they took.
func (j *janitor) disk(ctx context.Context, now time.Time) (more bool, err error) {
	n := 0
	for ctx.Err() == nil && err == nil {
		excess := j.excess(now)
		if excess <= 0 {
			break
		}
		var list []endedJob
		if list, err = j.oldest(ctx, now, excess); len(list) == 0 {
			break
		}
		err = errors.Join(err, j.deleteJobs(ctx, now, list))
		n += len(list)
	}
	if n > 0 {
		j.rt.cfg.Log.Warn().Int("jobs", n).Msg("the store is over max-disk: the oldest finished jobs were deleted before their retention ended")
	}
	return false, err
}

// oldest returns the ended jobs to delete for a number of bytes, a step of them
// at most, which their feeds have been trimmed of.
func (j *janitor) oldest(ctx context.Context, now time.Time, excess int64) ([]endedJob, error) {
	list, err := j.ended(ctx, now)
	if err == nil {
		list, err = j.measure(ctx, list, excess)
	}
	if err != nil || len(list) == 0 {
		return nil, err
	}
	var principals []string
	for i := range list {
		if p := list[i].principal; p != "" && !slices.Contains(principals, p) {
			principals = append(principals, p)
		}
	}
	return list, j.trimFeeds(ctx, principals, list[len(list)-1].at.Add(1))
}

// backlogs measures what was given to sessions by earlier processes.
func (j *janitor) backlogs(ctx context.Context, _ time.Time) (more bool, err error) {
	return j.rt.log.Measure(ctx, j.rt.letGo)
}

// excess is how far the store is over its bound, without what it will give back.
func (j *janitor) excess(now time.Time) int64 {
	if j.rt.cfg.MaxDisk <= 0 {
		return 0
	}
	n := j.rt.cfg.Store.Stat().Bytes
	j.owed.look(now, n)
	return n - j.owed.bytes - j.rt.cfg.MaxDisk
}

// owed is about how much of what was deleted the store has not given back.
type owed struct {
	bytes int64
	size  int64     // of the store when it was looked at last
	since time.Time // when bytes was last halved, or became more than 0
}

// owedHalf is after how long half of what is owed is no longer expected: a job
// takes less room than its events have, and what is written meanwhile hides what
// is given back.
const owedHalf = time.Minute

func (o *owed) add(now time.Time, n int64) {
	if o.bytes == 0 {
		o.since = now
	}
	o.bytes += n
}

// look takes the size of the store into account.
func (o *owed) look(now time.Time, size int64) {
	o.bytes = max(o.bytes-max(o.size-size, 0), 0)
	o.size = size
	for ; o.bytes > 0 && now.Sub(o.since) >= owedHalf; o.since = o.since.Add(owedHalf) {
		o.bytes /= 2
	}
}

// sweepEvery is how often the janitor looks at the resources of sessions that have
// ended.
const sweepEvery = time.Minute

// registry removes the resources of sessions that have ended for good, and leases
// that were released longer ago than the retention.
func (j *janitor) registry(ctx context.Context, now time.Time) (more bool, err error) {
	book := j.rt.resources.Store
	if more, err = book.Forget(ctx, now, janitorStep); more || err != nil {
		return more, err
	}
	if j.resources == "" && now.Sub(j.swept) < sweepEvery {
		return false, nil
	}
	j.swept = now
	j.resources, err = book.Sweep(ctx, j.resources, janitorStep)
	return j.resources != "" && err == nil, err
}
