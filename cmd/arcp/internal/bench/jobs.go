package bench

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	jobSessions  = 64
	manySessions = 1024
	finishedRate = 5_000   // jobs of the row finished for each second of Options.Duration
	maxFinished  = 100_000 // bounds the jobs of the row finished
)

func (r *run) jobs() (float64, error) { return r.measureEchoes(jobSessions, r.opts.Window) }

// oneByOne measures jobs with one job in flight in each session.
func (r *run) oneByOne() (float64, error) { return r.measureEchoes(jobSessions, 1) }

// oneByOneInMany measures jobs with one job in flight in each of many sessions.
func (r *run) oneByOneInMany() (float64, error) { return r.measureEchoes(manySessions, 1) }

func (r *run) measureEchoes(sessions, window int) (float64, error) {
	if err := r.open(sessions); err != nil {
		return 0, err
	}
	r.details[inFlight] = float64(window)
	var completed atomic.Int64
	return r.measureRate(&completed, func(_ int, s *session) error {
		return s.echoes(endless, window, &completed)
	})
}

// sustained returns the duration of the row sustained.
func (o *Options) sustained() time.Duration { return min(12*o.Duration, time.Minute) }

// sustained measures jobs for a long time, and the change of their rate.
func (r *run) sustained() (float64, error) {
	if err := r.open(jobSessions); err != nil {
		return 0, err
	}
	total := r.opts.sustained()
	sixth := total / 6
	var completed atomic.Int64
	counts, err := r.observe(&completed, func() error {
		return r.each(r.sessions, func(_ int, s *session) error {
			return s.echoes(endless, r.opts.Window, &completed)
		})
	}, sixth, total-2*sixth, sixth)
	if err != nil {
		return 0, err
	}
	first, last := rate(counts[0], counts[1]), rate(counts[2], counts[3])
	r.details[inFlight] = float64(r.opts.Window)
	r.details[interval] = sixth.Seconds()
	r.details["first_jobs_per_s"], r.details["last_jobs_per_s"] = first, last
	r.details["last_to_first"] = ratio(false, last, first)
	return rate(counts[0], counts[3]), nil
}

// finished measures the memory that the runtime retains for each finished job.
func (r *run) finished() (float64, error) {
	if err := r.open(jobSessions); err != nil {
		return 0, err
	}
	n := max(1, min(int(r.opts.Duration.Seconds()*finishedRate), maxFinished)/jobSessions)
	echoes := func(_ int, s *session) error { return s.echoes(n, r.opts.Window, new(atomic.Int64)) }
	if err := r.each(r.sessions, echoes); err != nil { // these jobs fill caches
		return 0, err
	}
	before, err := r.memory()
	if err != nil {
		return 0, err
	}
	if err := r.each(r.sessions, echoes); err != nil {
		return 0, err
	}
	after, err := r.memory()
	r.details[finishedJobs] = float64(n * jobSessions)
	r.details["rss_mb"] = float64(after) / 1e6
	return float64(after-before) / float64(n*jobSessions), err
}

// echoes runs n jobs, of which window are in flight, and adds to completed. It flushes the submits of half a window at
// once, so that the other half is in flight meanwhile.
func (s *session) echoes(n, window int, completed *atomic.Int64) error {
	d := s.dialect
	echo, acks := d.invoke("demo.echo", `{"n":1}`), d.newAcks(ackEach)
	submitted := min(window, n)
	for range submitted {
		if err := s.conn.Write(echo.next()); err != nil {
			return err
		}
	}
	if err := s.conn.Flush(); err != nil {
		return err
	}
	for done, unflushed := 0, 0; done < n; {
		frame, err := s.conn.Read()
		if err != nil {
			return err
		}
		switch t := typeOf(frame); {
		case d.isRefusal(t):
			return fmt.Errorf("%w: %s", errRefused, frame)
		case string(t) != d.completed:
			continue
		}
		done++
		completed.Add(1)
		if ack := acks.due(seqOf(frame)); ack != nil {
			if err := s.conn.Write(ack); err != nil {
				return err
			}
		}
		if submitted < n {
			submitted++
			if err := s.conn.Write(echo.next()); err != nil {
				return err
			}
		}
		if unflushed++; unflushed >= max(window/2, 1) || submitted == n {
			unflushed = 0
			if err := s.conn.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// schedules measures schedules of one job, one at a time in each session.
func (r *run) schedules() (float64, error) {
	if err := r.open(jobSessions); err != nil {
		return 0, err
	}
	r.details[inFlight] = 1
	var ended atomic.Int64
	return r.measureRate(&ended, func(_ int, s *session) error { return s.schedules(endless, &ended) })
}

// schedules runs n schedules, one after the other, and adds to ended.
func (s *session) schedules(n int, ended *atomic.Int64) error {
	d := s.dialect
	submit := d.invoke("schedule.create", `{"job":{"type":"tool.invoke","payload":{"tool":"demo.echo","arguments":{"n":1}}},"when":{"after":0}}`)
	acks := d.newAcks(ackEach)
	for range n {
		if err := s.send(submit.next()); err != nil {
			return err
		}
		frame, err := s.await(d.accepted)
		if err != nil {
			return err
		}
		for schedule, id := string(member(frame, jobKey)), ""; id != schedule; id = string(member(frame, jobKey)) {
			if frame, err = s.await(d.completed); err != nil { // also of its job
				return err
			}
		}
		ended.Add(1)
		if ack := acks.due(seqOf(frame)); ack != nil {
			if err := s.conn.Write(ack); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) roundtrip() (float64, error) {
	if err := r.open(1); err != nil {
		return 0, err
	}
	var samples []time.Duration
	s, echo := r.sessions[0], r.dialect.invoke("demo.echo", `{"n":1}`)
	warm := time.Now().Add(r.opts.Duration / 10)
	for until := time.Now().Add(r.opts.Duration / 2); time.Now().Before(until); {
		began := time.Now()
		if _, err := s.roundTrip(echo); err != nil {
			return 0, err
		}
		if began.After(warm) {
			samples = append(samples, time.Since(began))
		}
	}
	r.details["p99_ms"] = percentile(samples, 0.99)
	r.details["jobs"] = float64(len(samples))
	return percentile(samples, 0.5), nil
}

// roundTrip submits a job and returns the frame of its completion.
func (s *session) roundTrip(submit *prepared) ([]byte, error) {
	if err := s.send(submit.next()); err != nil {
		return nil, err
	}
	return s.await(s.dialect.completed)
}
