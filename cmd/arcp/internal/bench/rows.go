package bench

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

const (
	jobSessions   = 64
	eventSessions = 16
	subscribers   = 50
	dialers       = 32
	maxHandshakes = 50_000     // bounds the sessions that the runtime retains
	endless       = 10_000_000 // events of a job that outlasts the row
	ackEach       = 128        // events between acknowledgements
	publishEach   = 64         // events between updates of a shared counter
)

// measureRate runs do on all sessions and returns the increase of count per second. It measures for
// Options.Duration after a warm-up.
func (r *run) measureRate(count *atomic.Int64, do func(i int, s *session) error) (float64, error) {
	done := make(chan error, 1)
	go func() { done <- r.each(r.sessions, do) }()
	if err := r.pause(r.opts.Duration/5, done); err != nil {
		return 0, err
	}
	r.startCPU()
	began, before := time.Now(), count.Load()
	if err := r.pause(r.opts.Duration, done); err != nil {
		return 0, err
	}
	elapsed, n := time.Since(began), count.Load()-before
	r.stopCPU(elapsed)
	r.end()
	<-done // the error is the end of the connections
	return float64(n) / elapsed.Seconds(), nil
}

// pause waits for d. The error is the end of the work before.
func (r *run) pause(d time.Duration, done <-chan error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case err := <-done:
		if err == nil {
			err = errors.New("the work ended early")
		}
		return err
	}
}

func (r *run) jobs() (float64, error) { return r.measureEchoes(r.opts.Window) }

// oneByOne measures jobs with one job in flight in each session.
func (r *run) oneByOne() (float64, error) { return r.measureEchoes(1) }

func (r *run) measureEchoes(window int) (float64, error) {
	if err := r.open(jobSessions); err != nil {
		return 0, err
	}
	r.details["in_flight"] = float64(window)
	var completed atomic.Int64
	return r.measureRate(&completed, func(_ int, s *session) error {
		return echoLoop(s, window, &completed)
	})
}

// echoLoop submits a job for each completed job, with a window of jobs in flight. It flushes the submits of half a
// window at once, so that the other half is in flight meanwhile.
func echoLoop(s *session, window int, completed *atomic.Int64) error {
	d := s.dialect
	echo, acks := d.invoke("demo.echo", `{"n":1}`), d.newAcks(ackEach)
	for range window {
		if err := s.conn.Write(echo.next()); err != nil {
			return err
		}
	}
	if err := s.conn.Flush(); err != nil {
		return err
	}
	for unflushed := 0; ; {
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
		completed.Add(1)
		if ack := acks.due(seqOf(frame)); ack != nil {
			if err := s.conn.Write(ack); err != nil {
				return err
			}
		}
		if err := s.conn.Write(echo.next()); err != nil {
			return err
		}
		if unflushed++; unflushed >= max(window/2, 1) {
			unflushed = 0
			if err := s.conn.Flush(); err != nil {
				return err
			}
		}
	}
}

func (r *run) events() (float64, error) { return r.measureEvents(ackEach) }

// acks measures events with an acknowledgement of each event. The difference to events is the cost of
// acknowledgements.
func (r *run) acks() (float64, error) { return r.measureEvents(1) }

func (r *run) measureEvents(each uint64) (float64, error) {
	if err := r.open(eventSessions); err != nil {
		return 0, err
	}
	var received atomic.Int64
	return r.measureRate(&received, func(_ int, s *session) error {
		if err := s.send(r.dialect.emit(endless, 0, 0).next()); err != nil {
			return err
		}
		return readEvents(s, each, &received)
	})
}

// readEvents reads events and adds their number to received. It writes the acknowledgements of one read at once.
func readEvents(s *session, each uint64, received *atomic.Int64) error {
	acks := s.dialect.newAcks(each)
	for n := int64(0); ; {
		frame, err := s.conn.Read()
		if err != nil {
			return err
		}
		t := typeOf(frame)
		if !s.dialect.isEvent(t, frame) {
			if s.dialect.isRefusal(t) {
				return fmt.Errorf("%w: %s", errRefused, frame)
			}
			continue
		}
		if n++; n%publishEach == 0 {
			received.Add(publishEach)
		}
		if ack := acks.due(seqOf(frame)); ack != nil {
			if err := s.conn.Write(ack); err != nil {
				return err
			}
		}
		if !s.conn.(transport.Bufferer).Buffered() {
			if err := s.conn.Flush(); err != nil {
				return err
			}
		}
	}
}

// subscription is a way to receive the events of a job.
type subscription struct {
	request string                       // type of the request
	payload string                       // of the id of the job
	granted string                       // type of the answer
	isEvent func(typ, frame []byte) bool // reports an event of the job
	ended   func(typ, frame []byte) bool // reports the end of the job
}

// jobSubscription returns the use of job.subscribe: each event is a frame with a number of the session.
func (d *dialect) jobSubscription() subscription {
	return subscription{
		request: d.subscribe, payload: `{"job_id":"%s","history":true}`, granted: d.followed,
		isEvent: d.isEvent,
		ended:   func(typ, _ []byte) bool { return string(typ) == d.completed },
	}
}

// filterSubscription uses subscribe with a filter: each event is in a frame of the subscription.
var filterSubscription = subscription{
	request: string(arcp.Subscribe), payload: `{"filter":{"job_id":["%s"],"types":["log","job.completed"]}}`,
	granted: string(arcp.SubscribeAccepted),
	isEvent: func(typ, _ []byte) bool { return string(typ) == string(arcp.SubscribeEvent) },
	ended:   func(_, frame []byte) bool { return bytes.Contains(frame, []byte(`"type":"job.completed"`)) },
}

// subscribe starts demo.emit in the first session with a delay, and subscribes the other sessions to the job before
// its first event.
func (r *run) subscribe(sub subscription, count, intervalMS int) (followers []*session, err error) {
	if err := r.open(1 + subscribers); err != nil {
		return nil, err
	}
	const delay = 1000 // ms, enough for 50 subscriptions
	source := r.sessions[0]
	if err := source.send(r.dialect.emit(count, intervalMS, delay).next()); err != nil {
		return nil, err
	}
	frame, err := source.await(r.dialect.accepted)
	if err != nil {
		return nil, err
	}
	payload := fmt.Sprintf(sub.payload, member(frame, jobKey))
	go func() { _ = readEvents(source, ackEach, new(atomic.Int64)) }() // it ends with the row
	followers = r.sessions[1:]
	return followers, r.each(followers, func(_ int, s *session) error {
		if err := s.send(r.dialect.prepare(sub.request, payload).next()); err != nil {
			return err
		}
		_, err := s.await(sub.granted)
		return err
	})
}

// follow reads the events of the job until its end, and calls event with each. The error is another number of events than
// want.
func (sub *subscription) follow(s *session, want int, event func(frame []byte)) error {
	acks := s.dialect.newAcks(ackEach)
	for n := 0; ; {
		frame, err := s.conn.Read()
		if err != nil {
			return err
		}
		switch t := typeOf(frame); {
		case sub.ended(t, frame):
			if n != want {
				return fmt.Errorf("a subscriber got %d events of %d", n, want)
			}
			return nil
		case sub.isEvent(t, frame):
			n++
			event(frame)
		case s.dialect.isRefusal(t):
			return fmt.Errorf("%w: %s", errRefused, frame)
		}
		if ack := acks.due(seqOf(frame)); ack != nil {
			if err := s.send(ack); err != nil {
				return err
			}
		}
	}
}

func (r *run) fanout() (float64, error) { return r.burst(r.dialect.jobSubscription()) }

func (r *run) filtered() (float64, error) { return r.burst(filterSubscription) }

func (r *run) burst(sub subscription) (float64, error) {
	events := int(r.opts.Duration.Seconds() * 10_000)
	followers, err := r.subscribe(sub, events, 0)
	if err != nil {
		return 0, err
	}
	var began time.Time
	var once sync.Once
	err = r.each(followers, func(_ int, s *session) error {
		first := true
		return sub.follow(s, events, func([]byte) {
			if first {
				first = false
				once.Do(func() { began = time.Now(); r.startCPU() })
			}
		})
	})
	elapsed := time.Since(began)
	if err != nil {
		return 0, err
	}
	r.stopCPU(elapsed)
	r.details["events"] = float64(events)
	return float64(events*subscribers) / elapsed.Seconds(), nil
}

func (r *run) paced() (float64, error) {
	events := int(r.opts.Duration / time.Millisecond)
	sub := r.dialect.jobSubscription()
	followers, err := r.subscribe(sub, events, 1)
	if err != nil {
		return 0, err
	}
	samples := make([][]time.Duration, len(followers))
	r.startCPU()
	began := time.Now()
	err = r.each(followers, func(i int, s *session) error {
		samples[i] = make([]time.Duration, 0, events)
		return sub.follow(s, events, func(frame []byte) {
			if clock, ok := clockOf(frame); ok {
				samples[i] = append(samples[i], since(time.Now(), clock))
			}
		})
	})
	if err != nil {
		return 0, err
	}
	r.stopCPU(time.Since(began))
	all := slices.Concat(samples...)
	if len(all) != events*subscribers {
		return 0, fmt.Errorf("%d of %d events had a timestamp with a fraction of a second", len(all), events*subscribers)
	}
	r.details["p50_ms"], r.details["max_ms"] = percentile(all, 0.5), percentile(all, 1)
	return percentile(all, 0.99), nil
}

func (r *run) handshakes() (float64, error) {
	h, err := newHandshake(r.server, r.dialect)
	if err != nil {
		return 0, err
	}
	until := time.Now().Add(r.opts.Duration)
	r.startCPU()
	began := time.Now()
	var n atomic.Int64
	err = inParallel(dialers, maxHandshakes, func(int) error {
		if time.Now().After(until) {
			return nil
		}
		n.Add(1)
		return h.do(r.ctx)
	})
	elapsed := time.Since(began)
	r.stopCPU(elapsed)
	return float64(n.Load()) / elapsed.Seconds(), err
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
		if err := s.send(echo.next()); err != nil {
			return 0, err
		}
		if _, err := s.await(r.dialect.completed); err != nil {
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

func (r *run) idle() (float64, error) {
	if err := r.open(1); err != nil { // the first session includes one-time allocations of the server
		return 0, err
	}
	before, err := r.memory()
	if err != nil {
		return 0, err
	}
	n := r.opts.Idle
	if err := r.open(n); err != nil {
		return 0, err
	}
	after, err := r.memory()
	r.details["sessions"] = float64(n)
	r.details["rss_mb"] = float64(after) / 1e6
	return float64(after-before) / float64(n) / 1000, err
}

func (r *run) memory() (int64, error) {
	for range 2 { // the second collection frees objects that the first collection finalised
		if err := freeMemory(r.ctx, r.server.Admin); err != nil {
			return 0, err
		}
	}
	return residentMemory(r.server.PID)
}
