package client

import (
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
)

// sequence checks that event numbers have no gap. New and later the reader change it. Every goroutine may
// read last.
type sequence struct {
	last    atomic.Uint64
	known   bool // last is valid: the next number is last + 1
	lenient bool // repeated earlier events are dropped
}

func (s *sequence) start(last uint64) {
	s.last.Store(last)
	s.known = true
}

// startFor sets the number before the first event. It is 0 in a new session and the requested position in
// a resumed session. It stays unknown when the runtime chooses the position.
func (s *sequence) startFor(r *Resume) {
	switch {
	case r == nil:
		s.start(0)
	case r.LastEventSeq != nil:
		s.start(*r.LastEventSeq)
	}
}

// resume checks the position of a replay. Events up to last may be repeated, but none may be missing.
func (s *sequence) resume(from uint64) error {
	if last := s.last.Load(); from > last {
		return &SequenceError{Want: last + 1, Got: from + 1, Type: arcp.SessionResumed}
	}
	return nil
}

// check reports whether an envelope is new. A gap is a *SequenceError.
func (s *sequence) check(env *arcp.Envelope) (isNew bool, err error) {
	if env.EventSeq == 0 {
		return true, nil
	}
	want := s.last.Load() + 1
	switch {
	case s.known && s.lenient && env.EventSeq < want:
		return false, nil
	case s.known && env.EventSeq != want:
		return false, &SequenceError{Want: want, Got: env.EventSeq, Type: env.Type}
	}
	s.start(env.EventSeq)
	return true, nil
}
