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
	eventSessions = 16
	subscribers   = 50
	endless       = 10_000_000 // events of a job, or jobs of a session, that outlast the row
	ackEach       = 128        // events between acknowledgements
	publishEach   = 64         // events between updates of a shared counter
)

// count is a number at a time.
type count struct {
	at time.Time
	n  int64
}

// rate returns the increase per second between two counts.
func rate(from, to count) float64 { return float64(to.n-from.n) / to.at.Sub(from.at).Seconds() }

// measureRate runs do on all sessions and returns the increase of n per second. It measures for Options.Duration after
// a warm-up.
func (r *run) measureRate(n *atomic.Int64, do func(i int, s *session) error) (float64, error) {
	counts, err := r.observe(n, func() error { return r.each(r.sessions, do) }, r.opts.Duration)
	if err != nil {
		return 0, err
	}
	return rate(counts[0], counts[1]), nil
}

// observe runs work and returns the count of n after a warm-up and after each of the intervals. Then it drops all
// connections and waits for the end of the work.
func (r *run) observe(n *atomic.Int64, work func() error, intervals ...time.Duration) ([]count, error) {
	done := make(chan error, 1)
	go func() { done <- work() }()
	if err := r.pause(r.opts.Duration/5, done); err != nil {
		return nil, err
	}
	r.startCPU()
	counts := []count{{time.Now(), n.Load()}}
	for _, d := range intervals {
		if err := r.pause(d, done); err != nil {
			return nil, err
		}
		counts = append(counts, count{time.Now(), n.Load()})
	}
	r.stopCPU(counts[len(intervals)].at.Sub(counts[0].at))
	r.end()
	<-done // the error is the end of the connections
	return counts, nil
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
		if err := s.send(r.dialect.emit(endless, 64, 0, 0).next()); err != nil {
			return err
		}
		return readEvents(s, s.dialect.isEvent, each, &received)
	})
}

// maxChunks is the largest number of chunks of a demo.stream.
const maxChunks = 1_000_000

// streams measures the chunks of streams. A job that has ended is followed by another.
func (r *run) streams() (float64, error) {
	if err := r.open(eventSessions); err != nil {
		return 0, err
	}
	var received atomic.Int64
	return r.measureRate(&received, func(_ int, s *session) error {
		stream := s.dialect.invoke("demo.stream", fmt.Sprintf(`{"chunks":%d,"bytes":64}`, maxChunks))
		isChunk := func(typ, _ []byte) bool {
			if string(typ) == s.dialect.completed {
				_ = s.send(stream.next()) // the next read reports a broken connection
			}
			return string(typ) == string(arcp.StreamChunk)
		}
		if err := s.send(stream.next()); err != nil {
			return err
		}
		return readEvents(s, isChunk, ackEach, &received)
	})
}

// readEvents reads the frames that isEvent selects and adds their number to received. It writes the acknowledgements of one read at once.
func readEvents(s *session, isEvent func(typ, frame []byte) bool, each uint64, received *atomic.Int64) error {
	acks := s.dialect.newAcks(each)
	for n := int64(0); ; {
		frame, err := s.conn.Read()
		if err != nil {
			return err
		}
		t := typeOf(frame)
		if !isEvent(t, frame) {
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

// emitDelay is the delay of an emitted burst in ms, enough for 50 subscriptions.
const emitDelay = 1000

// subscribe submits a job in the first of n+1 sessions, and subscribes the other sessions to it.
func (r *run) subscribe(sub subscription, n int, job *prepared) (followers []*session, err error) {
	if err := r.open(1 + n); err != nil {
		return nil, err
	}
	source := r.sessions[0]
	if err := source.send(job.next()); err != nil {
		return nil, err
	}
	frame, err := source.await(r.dialect.accepted)
	if err != nil {
		return nil, err
	}
	payload := fmt.Sprintf(sub.payload, member(frame, jobKey))
	go func() { _ = readEvents(source, source.dialect.isEvent, ackEach, new(atomic.Int64)) }() // it ends with the row
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
	followers, err := r.subscribe(sub, subscribers, r.dialect.emit(events, 64, 0, emitDelay))
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
	followers, err := r.subscribe(sub, subscribers, r.dialect.emit(events, 64, 1, emitDelay))
	if err != nil {
		return 0, err
	}
	all, err := latencies(r, sub, followers, events)
	if err != nil {
		return 0, err
	}
	if len(all) != events*subscribers {
		return 0, fmt.Errorf("%d of %d events had a timestamp with a fraction of a second", len(all), events*subscribers)
	}
	return percentiles(r, all), nil
}

// latencies returns the time from the timestamp of each event to its arrival.
func latencies(r *run, sub subscription, followers []*session, events int) ([]time.Duration, error) {
	samples := make([][]time.Duration, len(followers))
	r.startCPU()
	began := time.Now()
	err := r.each(followers, func(i int, s *session) error {
		samples[i] = make([]time.Duration, 0, events)
		return sub.follow(s, events, func(frame []byte) {
			if clock, ok := clockOf(frame); ok {
				samples[i] = append(samples[i], since(time.Now(), clock))
			}
		})
	})
	r.stopCPU(time.Since(began))
	return slices.Concat(samples...), err
}

// percentiles adds the median and the maximum to the details, and returns the 99th percentile.
func percentiles(r *run, all []time.Duration) float64 {
	r.details["p50_ms"], r.details["max_ms"] = percentile(all, 0.5), percentile(all, 1)
	return percentile(all, 0.99)
}

const (
	streamFollowers = 16     // sessions that read the stream of the row stalled
	chunksBefore    = 60_000 // chunks of it, one a millisecond, while the followers subscribe
)

// stalled measures the latency of a stream for the sessions that read it, while another follower of it reads nothing.
func stalled(r *run) (float64, error) {
	chunks := int(r.opts.Duration / time.Millisecond)
	stream := r.dialect.invoke("demo.stream", fmt.Sprintf(`{"chunks":%d,"bytes":2048,"interval_ms":1}`, chunksBefore+chunks))
	followers, err := r.subscribe(r.dialect.jobSubscription(), streamFollowers+1, stream)
	if err != nil {
		return 0, err
	}
	samples := make([][]time.Duration, streamFollowers) // the last follower does not read
	r.startCPU()
	began := time.Now()
	err = r.each(followers[:streamFollowers], func(i int, s *session) (err error) {
		samples[i], err = s.chunkLatencies(chunks, began)
		return err
	})
	r.stopCPU(time.Since(began))
	if err != nil {
		return 0, err
	}
	return percentiles(r, slices.Concat(samples...)), nil
}

// chunkLatencies reads n chunks that were written after a time, and returns the time from the timestamp of each to its
// arrival.
func (s *session) chunkLatencies(n int, after time.Time) ([]time.Duration, error) {
	samples := make([]time.Duration, 0, n)
	for acks := s.dialect.newAcks(ackEach); len(samples) < n; {
		frame, err := s.conn.Read()
		if err != nil {
			return nil, err
		}
		now, t := time.Now(), typeOf(frame)
		switch clock, ok := clockOf(frame); {
		case string(t) == s.dialect.completed || s.dialect.isRefusal(t):
			return nil, fmt.Errorf("%w: the stream has ended: %s", errRefused, frame)
		case ok && string(t) == string(arcp.StreamChunk):
			if latency := since(now, clock); !now.Add(-latency).Before(after) {
				samples = append(samples, latency)
			}
		}
		if ack := acks.due(seqOf(frame)); ack != nil {
			if err := s.send(ack); err != nil {
				return nil, err
			}
		}
	}
	return samples, nil
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
	r.details[idleSessions] = float64(n)
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
