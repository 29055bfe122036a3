package client

import (
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
)

// sequence checks that event numbers come without a gap. The reader changes it, and
// New before the reader starts; every goroutine may read it.
type sequence struct {
	last    atomic.Uint64
	known   bool // last is the number before the next one
	lenient bool // earlier events may come again, and are dropped
}

func (s *sequence) start(last uint64) {
	s.last.Store(last)
	s.known = true
}

// startFor sets the number before the first event: 0 in a new session, the requested
// position in a resumed one, and unknown when the runtime chooses the position.
func (s *sequence) startFor(r *Resume) {
	switch {
	case r == nil:
		s.start(0)
	case r.LastEventSeq != nil:
		s.start(*r.LastEventSeq)
	}
}

// resume checks the position from which the runtime replays: events up to last may
// come twice, but none may be left out.
func (s *sequence) resume(from uint64) error {
	if last := s.last.Load(); from > last {
		return &SequenceError{Want: last + 1, Got: from + 1, Type: arcp.SessionResumed}
	}
	return nil
}

// check reports whether an envelope is new.
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
