package client

import (
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
)

// sequence checks that event numbers come without a gap. Only the reader, and
// New before there is one, may change it; everyone may read it.
type sequence struct {
	last  atomic.Uint64
	known bool // last is what the next number follows
}

func (s *sequence) start(last uint64) {
	s.last.Store(last)
	s.known = true
}

func (s *sequence) check(env *arcp.Envelope) error {
	if env.EventSeq == 0 {
		return nil
	}
	if want := s.last.Load() + 1; s.known && env.EventSeq != want {
		return &SequenceError{Want: want, Got: env.EventSeq, Type: env.Type}
	}
	s.start(env.EventSeq)
	return nil
}
