package eventlog

import (
	"cmp"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// backlogMarks is how finely a backlog is known: overflow costs the oldest of so
// many parts.
const backlogMarks = 16

// backlog measures what a session was given and has not let go of, in bytes of
// the events that it refers to.
type backlog struct {
	given, freed uint64
	marks        []backlogMark // ascending, one for each part of the limit
}

type backlogMark struct{ seq, given uint64 }

// add counts a run; over says up to which number the oldest part goes, 0 if
// there is room.
func (b *backlog) add(last, size, limit uint64) (over uint64) {
	b.given += size
	behind := b.freed
	if n := len(b.marks); n > 0 {
		behind = b.marks[n-1].given
	}
	if b.given-behind >= limit/backlogMarks {
		b.marks = append(b.marks, backlogMark{last, b.given})
	}
	return b.overflow(limit)
}

// overflow forgets the oldest parts that are over the limit, and says up to which
// number they go, 0 if there are none.
func (b *backlog) overflow(limit uint64) (over uint64) {
	for b.given-b.freed > limit && len(b.marks) > 0 {
		over = b.marks[0].seq
		b.free(over)
	}
	return over
}

// free forgets everything up to a number, as far as that is known.
func (b *backlog) free(seq uint64) {
	i, _ := slices.BinarySearchFunc(b.marks, seq+1, func(m backlogMark, at uint64) int { return cmp.Compare(m.seq, at) })
	if i == 0 {
		return
	}
	b.freed = b.marks[i-1].given
	if b.marks = append(b.marks[:0], b.marks[i:]...); len(b.marks) == 0 {
		b.marks = nil
	}
}

// freeAll is free for a session that has let go of everything it was given.
func (b *backlog) freeAll() { b.freed, b.marks = b.given, nil }

// precede puts what was given before everything else in front. It has been freed
// of at least as much as b has let go of.
func (b *backlog) precede(older *backlog) {
	for i := range b.marks {
		b.marks[i].given += older.given
	}
	b.marks = append(older.marks, b.marks...)
	b.given += older.given
	b.freed += older.freed
}

// Free says that a session has let go of what it was given up to a number: it
// has acknowledged it or, if it never acknowledges, it was written to it.
func (l *Log) Free(id arcp.SessionID, seq uint64) {
	l.curMu.Lock()
	defer l.curMu.Unlock()
	p := l.places[id]
	switch {
	case p == nil:
		return
	case p.last <= seq:
		p.lag.freeAll()
	default:
		p.lag.free(seq)
	}
	p.letGo = max(p.letGo, seq)
}

// Forget drops what is known of a session that ends, and its cursor hands out
// nothing any more. It is called before the session is deleted, so that nobody
// reads what is not there, and after, when nothing is given to it any more.
func (l *Log) Forget(id arcp.SessionID) {
	l.curMu.Lock()
	p := l.places[id]
	delete(l.places, id)
	l.curMu.Unlock()
	if p != nil && p.cursor != nil {
		p.cursor.shut()
	}
}

// sizes adds up events; followers of a job share them.
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
