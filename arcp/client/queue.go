package client

import (
	"context"
	"iter"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// queue passes envelopes from the reader to iterators. The reader never waits. The queue is bounded
// by count and bytes.
type queue struct {
	maxCount, maxBytes int
	ready              chan struct{} // buffered 1: the queue has changed

	mu    sync.Mutex
	ring  []arcp.Envelope
	head  int
	count int
	bytes int
	end   error // set at the end: the reason
	full  error // set after an overflow: the queue stays empty

	waiting int // number of waiting calls of next
}

// endError ends an iterator without an error.
type endError struct{}

func (endError) Error() string { return "end" }

func newQueue(maxCount, maxBytes int) *queue {
	return &queue{maxCount: maxCount, maxBytes: maxBytes, ready: make(chan struct{}, 1)}
}

// push adds an envelope. If the queue is full it returns false and clears the queue for good, because a
// sequence with a gap is useless.
func (q *queue) push(env *arcp.Envelope) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end != nil || q.full != nil {
		return true
	}
	size := memoryOf(env)
	if q.count == q.maxCount || q.bytes+size > q.maxBytes && q.count > 0 {
		q.full = ErrEventBufferFull
		q.ring, q.head, q.count, q.bytes = nil, 0, 0, 0
		q.signal()
		return false
	}
	q.add(env, size)
	return true
}

// pushDropOldest adds an envelope. If the queue is full it drops the oldest envelopes. It reports whether
// an envelope was dropped.
func (q *queue) pushDropOldest(env *arcp.Envelope) (dropped bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := memoryOf(env)
	for q.count > 0 && (q.count == q.maxCount || q.bytes+size > q.maxBytes) {
		q.remove()
		dropped = true
	}
	q.add(env, size)
	return dropped
}

func (q *queue) add(env *arcp.Envelope, size int) {
	if q.count == len(q.ring) {
		q.grow()
	}
	q.ring[(q.head+q.count)%len(q.ring)] = *env
	q.count++
	q.bytes += size
	if q.count == 1 {
		q.signal()
	}
}

func (q *queue) grow() {
	ring := make([]arcp.Envelope, min(max(4, 2*len(q.ring)), q.maxCount))
	n := copy(ring, q.ring[q.head:])
	copy(ring[n:], q.ring[:q.head])
	q.ring, q.head = ring, 0
}

func (q *queue) remove() arcp.Envelope {
	env := q.ring[q.head]
	q.ring[q.head] = arcp.Envelope{}
	q.head = (q.head + 1) % len(q.ring)
	q.count--
	q.bytes -= memoryOf(&env)
	return env
}

// finish ends the queue with an error. Only the first call has an effect.
func (q *queue) finish(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end == nil {
		q.end = err
		q.signal()
	}
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// pop returns the next envelope. If there is none, ready is not nil and receives after a change of the
// queue.
func (q *queue) pop() (env arcp.Envelope, ready <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.full != nil:
		err = q.full
	case q.count > 0:
		env = q.remove()
	case q.end != nil:
		err = q.end
	default:
		return env, q.ready, nil
	}
	if q.waiting > 0 && (q.count > 0 || err != nil) { // a signal wakes only one caller
		q.signal()
	}
	return env, nil, err
}

// next waits for an envelope.
func (q *queue) next(ctx context.Context) (arcp.Envelope, error) {
	if env, ready, err := q.pop(); ready == nil {
		return env, err
	}
	q.wait(1)
	defer q.wait(-1)
	for {
		env, ready, err := q.pop()
		if ready == nil {
			return env, err
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return env, context.Cause(ctx)
		}
	}
}

func (q *queue) wait(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting += n
}

// all iterates until the end, an error or the end of ctx.
func (q *queue) all(ctx context.Context) iter.Seq2[arcp.Envelope, error] {
	return func(yield func(arcp.Envelope, error) bool) {
		for {
			env, err := q.next(ctx)
			if _, ok := err.(endError); ok {
				return
			}
			if !yield(env, err) || err != nil {
				return
			}
		}
	}
}
