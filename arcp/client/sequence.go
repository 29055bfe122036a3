package client

import (
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
)

// sequence checks that event numbers come without a gap. Only the reader, and
// New before there is one, may change it; everyone may read it.
type sequence struct {
	last    atomic.Uint64
	known   bool // last is what the next number follows
	lenient bool // what came before may come again, and is to be dropped
}

func (s *sequence) start(last uint64) {
	s.last.Store(last)
	s.known = true
}

// resume checks where the runtime begins again: events from before last may
// come twice, but none may be left out.
func (s *sequence) resume(from uint64) error {
	if last := s.last.Load(); from > last {
		return &SequenceError{Want: last + 1, Got: from + 1, Type: arcp.SessionResumed}
	}
	return nil
}

// check reports whether an envelope is new.
func (s *sequence) check(env *arcp.Envelope) (fresh bool, err error) {
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
