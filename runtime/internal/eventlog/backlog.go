package eventlog

import (
	"cmp"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// backlogMarks is the number of parts of a full backlog. An overflow drops the oldest
// parts.
const backlogMarks = 16

// backlog measures the events of a session that it has not released, in bytes of their
// bodies.
type backlog struct {
	added, freed uint64
	marks        []backlogMark // ascending, one for each part
}

type backlogMark struct{ seq, added uint64 }

// add adds a run that ends at last. It returns the last number of the parts over the limit, 0 if
// there are none.
func (b *backlog) add(last, size, limit uint64) (overflow uint64) {
	b.added += size
	marked := b.freed
	if n := len(b.marks); n > 0 {
		marked = b.marks[n-1].added
	}
	if b.added-marked >= limit/backlogMarks {
		b.marks = append(b.marks, backlogMark{last, b.added})
	}
	return b.overflow(limit)
}

// overflow frees the oldest parts over the limit and returns their last number, 0 if there are none.
func (b *backlog) overflow(limit uint64) (upTo uint64) {
	for b.added-b.freed > limit && len(b.marks) > 0 {
		upTo = b.marks[0].seq
		b.free(upTo)
	}
	return upTo
}

// free frees the parts up to a number. b may be nil.
func (b *backlog) free(seq uint64) {
	if b == nil {
		return
	}
	i, _ := slices.BinarySearchFunc(b.marks, seq+1, func(m backlogMark, at uint64) int { return cmp.Compare(m.seq, at) })
	if i == 0 {
		return
	}
	b.freed = b.marks[i-1].added
	if b.marks = append(b.marks[:0], b.marks[i:]...); len(b.marks) == 0 {
		b.marks = nil
	}
}

// freeAll frees all parts. b may be nil.
func (b *backlog) freeAll() {
	if b != nil {
		b.freed, b.marks = b.added, nil
	}
}

// prepend adds the backlog of older events. The events of older that b has freed must be freed.
func (b *backlog) prepend(older *backlog) {
	for i := range b.marks {
		b.marks[i].added += older.added
	}
	b.marks = append(older.marks, b.marks...)
	b.added += older.added
	b.freed += older.freed
}

// Release releases the events of a session up to a number: the client has acknowledged
// them or, if it never acknowledges, they were written to it.
func (l *Log) Release(id arcp.SessionID, seq uint64) {
	l.sessionsMu.Lock()
	defer l.sessionsMu.Unlock()
	st := l.sessions[id]
	switch {
	case st == nil:
		return
	case st.last <= seq:
		st.backlog.freeAll()
	default:
		st.backlog.free(seq)
	}
	l.updateLocked(st, func() { st.released = max(st.released, seq) })
}

// sizes adds up the sizes of events. Followers of a job share the events.
type sizes struct {
	events []*store.Event
	total  uint64
}

func (s *sizes) of(events []*store.Event) uint64 {
	if len(s.events) == len(events) && s.events[0] == events[0] {
		return s.total
	}
	s.events, s.total = events, 0
	for _, e := range events {
		s.total += uint64(len(e.Body))
	}
	return s.total
}
