package bench

import (
	"context"
	"sync/atomic"
	"time"
)

// The load of the row mixed.
const (
	mixedSessions = 16
	mixedInterval = 10 * time.Millisecond // between handshakes, pages and read events
	mixedPage     = 100                   // jobs
	slowBytes     = 4096                  // of each event of the slow reader
	slowInterval  = 1                     // ms between the events of the slow reader
)

// operation is a finished piece of work.
type operation struct {
	ended time.Time
	took  time.Duration
}

// timeline has the operations of one goroutine.
type timeline []operation

// add adds an operation that ends now.
func (t *timeline) add(began time.Time) {
	now := time.Now()
	*t = append(*t, operation{now, now.Sub(began)})
}

// between returns the durations of the operations that ended in an interval.
func (t timeline) between(from, to time.Time) []time.Duration {
	var took []time.Duration
	for _, o := range t {
		if o.ended.After(from) && !o.ended.After(to) {
			took = append(took, o.took)
		}
	}
	return took
}

// mixed measures jobs beside other work at fixed rates.
func (r *run) mixed() (float64, error) {
	h, err := newHandshake(r.server, r.dialect)
	if err != nil {
		return 0, err
	}
	if err := r.open(mixedSessions + 2); err != nil {
		return 0, err
	}
	var completed atomic.Int64
	var handshakes, pages, events timeline
	jobs := make([]timeline, mixedSessions)
	tasks := []func() error{
		func() error { return r.repeat(&handshakes, func() error { return h.close(r.ctx) }) },
		func() error { return r.listJobs(r.sessions[0], &pages) },
		func() error { return r.readSlowly(r.sessions[1], &events) },
	}
	for i, s := range r.sessions[2:] {
		tasks = append(tasks, func() error { return s.roundTrips(&jobs[i], &completed) })
	}
	counts, err := r.observe(&completed, func() error { return r.together(tasks) }, r.opts.Duration)
	if err != nil {
		return 0, err
	}
	from, to := counts[0].at, counts[1].at
	for kind, t := range map[string]timeline{"handshakes": handshakes, "pages": pages, "events": events} {
		r.details[kind] = float64(len(t.between(from, to)))
	}
	var trips []time.Duration
	for _, t := range jobs {
		trips = append(trips, t.between(from, to)...)
	}
	r.details["jobs"] = float64(len(trips))
	r.details["p50_ms"], r.details["p99_ms"], r.details["p999_ms"] = percentile(trips, 0.5), percentile(trips, 0.99), percentile(trips, 0.999)
	return rate(counts[0], counts[1]), nil
}

// repeat calls do at an interval until the end of the measurement. A call that takes longer delays the next call.
func (r *run) repeat(t *timeline, do func() error) error {
	ticker := time.NewTicker(mixedInterval)
	defer ticker.Stop()
	for {
		began := time.Now()
		if err := do(); err != nil {
			return err
		}
		t.add(began)
		select {
		case <-ticker.C:
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
}

// listJobs reads the jobs of the principal page by page, and begins again after the last page.
func (r *run) listJobs(s *session, pages *timeline) error {
	cursor := ""
	return r.repeat(pages, func() error {
		if err := s.send(r.dialect.page(mixedPage, cursor).next()); err != nil {
			return err
		}
		frame, err := s.await(r.dialect.listed)
		cursor = string(member(frame, nextKey))
		return err
	})
}

// readSlowly starts demo.emit and reads its events more slowly than it emits them.
func (r *run) readSlowly(s *session, events *timeline) error {
	if err := s.send(r.dialect.emit(endless, slowBytes, slowInterval, 0).next()); err != nil {
		return err
	}
	acks := r.dialect.newAcks(ackEach)
	return r.repeat(events, func() error {
		frame, err := s.await(r.dialect.event)
		if err != nil {
			return err
		}
		if ack := acks.due(seqOf(frame)); ack != nil {
			return s.send(ack)
		}
		return nil
	})
}

// roundTrips runs one job at a time until the end of the connection.
func (s *session) roundTrips(jobs *timeline, completed *atomic.Int64) error {
	echo, acks := s.dialect.invoke("demo.echo", `{"n":1}`), s.dialect.newAcks(ackEach)
	for {
		began := time.Now()
		frame, err := s.roundTrip(echo)
		if err != nil {
			return err
		}
		jobs.add(began)
		completed.Add(1)
		if ack := acks.due(seqOf(frame)); ack != nil {
			if err := s.send(ack); err != nil {
				return err
			}
		}
	}
}
