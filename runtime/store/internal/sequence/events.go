package sequence

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// append gives events their ids and positions and hands them to the followers.
func (c *Core) append(j *job, events []*store.Event) {
	union := c.stamp(j, events)
	jc := j.change
	if jc.Events == nil {
		jc.Events = events[:len(events):len(events)]
	} else {
		jc.Events = append(jc.Events, events...)
	}
	for i := range j.followers {
		f := &j.followers[i]
		if f.home {
			c.number(f, j, events)
		}
		c.give(f, j.id, events, c.marks, union)
	}
	j.lastJSeq += uint64(len(events))
	j.lastSeq = events[len(events)-1].OriginSeq
}

// hidden marks an event that no session sees; its other bits mean nothing.
const hidden arcp.TypeSet = 1 << 63

// stamp mints ids, sets positions and, for a job that nobody is given, origin
// numbers. It leaves the events' bits in c.marks and returns their union.
func (c *Core) stamp(j *job, events []*store.Event) (union arcp.TypeSet) {
	c.marks = c.marks[:0]
	var t arcp.Type
	var bit arcp.TypeSet
	store.SetIDs(events, c.ids)
	for i, e := range events {
		e.JSeq = j.lastJSeq + uint64(i) + 1
		if j.home == nil {
			e.OriginSeq = e.JSeq
		} else {
			e.OriginSeq = j.home.last
		}
		if e.Type != t || i == 0 {
			t, bit = e.Type, bitOf(e.Type)
		}
		c.marks = append(c.marks, bit)
		union |= bit
	}
	c.chg.last = events[len(events)-1]
	return union
}

func bitOf(t arcp.Type) arcp.TypeSet {
	if s := arcp.Lookup(t); s != nil && s.Bit != 0 {
		return s.Bit
	}
	return hidden
}

// mask is the set of types that a follower is given.
func (f *follower) mask() arcp.TypeSet { return f.session.view & f.types &^ hidden }

// number sets the origin numbers of events that the home session is about to
// be given: an event it does not see takes the last one before.
func (c *Core) number(f *follower, j *job, events []*store.Event) {
	mask, seq := f.mask(), f.session.last
	for i, e := range events {
		if c.marks[i]&mask != 0 {
			seq++
		}
		e.OriginSeq = seq
	}
}

// give gives a follower those of the events that it sees.
func (c *Core) give(f *follower, id arcp.JobID, events []*store.Event, marks []arcp.TypeSet, union arcp.TypeSet) {
	mask := f.mask()
	if union&mask == 0 {
		return
	}
	shown, first := events, f.session.last+1
	sc := c.sessionChange(f.session)
	if union&^mask == 0 {
		sc.addRun(f, id, first, events[0].JSeq, uint64(len(events)))
	} else {
		shown = c.some(sc, f, id, events, marks)
	}
	f.session.last += uint64(len(shown))
	sc.LastSeq = f.session.last
	c.runs = append(c.runs, store.Run{Session: f.session.id, First: first, CorrelationID: f.corr, Origin: f.origin, Events: shown})
}

// some notes the runs of those events that the follower sees and returns them.
func (c *Core) some(sc *SessionChange, f *follower, id arcp.JobID, events []*store.Event, marks []arcp.TypeSet) []*store.Event {
	mask := f.mask()
	shown := make([]*store.Event, 0, len(events))
	for i, e := range events {
		if marks[i]&mask != 0 {
			shown = append(shown, e)
			sc.addRun(f, id, f.session.last+uint64(len(shown)), e.JSeq, 1)
		}
	}
	return shown
}

// unlogged mints the id of an event that is not stored and addresses it to the
// followers that see it.
func (c *Core) unlogged(j *job, e *store.Event) (out []store.Delivery) {
	e.SetID(c.ids)
	bit := bitOf(e.Type)
	for i := range j.followers {
		if f := &j.followers[i]; f.sees(bit) {
			out = append(out, store.Delivery{Session: f.session.id, CorrelationID: f.corr, Origin: f.origin, Event: e})
		}
	}
	return out
}

// sees reports whether the follower is given an unlogged event. Types without
// a number are in no TypeSet: only a follower of everything is given them.
func (f *follower) sees(bit arcp.TypeSet) bool {
	if bit == hidden {
		return f.types == everything
	}
	return f.mask()&bit != 0
}
