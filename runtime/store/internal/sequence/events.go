package sequence

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// append gives events their ids and positions and hands them to who is to have
// them: those with a route one by one.
func (c *Core) append(j *job, events []*store.Event) {
	for len(events) > 0 {
		n := slices.IndexFunc(events, func(e *store.Event) bool { return e.Route != nil })
		switch n {
		case -1:
			n = len(events)
			c.appendPlain(j, events)
		case 0:
			n = 1
			c.appendRouted(j, events[:1])
		default:
			c.appendPlain(j, events[:n])
		}
		events = events[n:]
	}
}

// appendPlain appends events for who follows the job.
func (c *Core) appendPlain(j *job, events []*store.Event) {
	union := c.stamp(j, events)
	for i := range j.followers {
		c.hand(&j.followers[i], j, events, union)
	}
	j.logged(events)
}

// appendRouted appends one event for whom its route says.
func (c *Core) appendRouted(j *job, events []*store.Event) {
	bit := c.stamp(j, events)
	for _, f := range c.receivers(j, events[0].Route, bit&arcp.Directed != 0) {
		c.hand(&f, j, events, bit)
	}
	j.logged(events)
}

func (c *Core) hand(f *follower, j *job, events []*store.Event, union arcp.TypeSet) {
	if f.home {
		c.number(f, j, events)
	}
	c.give(f, j.id, events, c.marks, union)
}

func (j *job) logged(events []*store.Event) {
	j.lastJSeq += uint64(len(events))
	j.lastSeq = events[len(events)-1].OriginSeq
}

// receivers are who is given an event with a route, the home session first: its
// numbers are the origin numbers of the others.
func (c *Core) receivers(j *job, r *store.Route, directed bool) []follower {
	var list []follower
	if !directed {
		list = slices.Clone(j.followers)
	}
	named := r.To
	if r.Reply != "" {
		named = append(slices.Clip(named), r.Reply)
	}
	for _, id := range named {
		if s := c.session(id); s != nil && !slices.ContainsFunc(list, func(f follower) bool { return f.session == s }) {
			list = append(list, j.receiver(s))
		}
	}
	for i := range list {
		f := &list[i]
		f.directed = directed
		if r.ReplyTo != "" && (directed || f.session.id == r.Reply) {
			f.corr = r.ReplyTo
		}
	}
	if i := slices.IndexFunc(list, func(f follower) bool { return f.home }); i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	return list
}

// receiver is a session that is given single events, whether it follows the job
// or not.
func (j *job) receiver(s *session) follower {
	if s == j.home {
		return follower{session: s, corr: j.submitID, types: everything, home: true}
	}
	return follower{session: s, types: everything, origin: true}
}

// hidden marks an event that no session sees; its other bits mean nothing.
const hidden arcp.TypeSet = 1 << 63

// stamp mints ids, sets positions and, for a job that its home session is not
// given, origin numbers: without a session they count on. It adds the events to
// the job's change, leaves their bits in c.marks and returns the union of those.
func (c *Core) stamp(j *job, events []*store.Event) (union arcp.TypeSet) {
	c.marks = c.marks[:0]
	var t arcp.Type
	var bit arcp.TypeSet
	store.SetIDs(events, c.ids)
	for i, e := range events {
		e.JSeq = j.lastJSeq + uint64(i) + 1
		if j.home == nil {
			e.OriginSeq = j.lastSeq + uint64(i) + 1
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
	jc := j.change
	if jc.Events == nil {
		jc.Events = events[:len(events):len(events)]
	} else {
		jc.Events = append(jc.Events, events...)
	}
	return union
}

func bitOf(t arcp.Type) arcp.TypeSet {
	if s := arcp.Lookup(t); s != nil && s.Bit != 0 {
		return s.Bit
	}
	return hidden
}

// mask is the set of types that a follower is given.
func (f *follower) mask() arcp.TypeSet {
	set := f.session.view & f.types &^ hidden
	if !f.directed {
		set &^= arcp.Directed
	}
	return set
}

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
		sc.add(f.run(id, first, events[0].JSeq, uint64(len(events))))
	} else {
		shown = c.some(sc, f, id, events, marks)
	}
	f.session.last = sc.Last
	c.runs = append(c.runs, store.Run{Session: f.session.id, First: first, CorrelationID: f.corr, Origin: f.origin, Events: shown})
}

func (f *follower) run(id arcp.JobID, first, jseq, n uint64) Run {
	return Run{First: first, Job: id, CorrelationID: f.corr, Origin: f.origin, JSeq: jseq, N: n}
}

// some notes the runs of those events that the follower sees and returns them.
func (c *Core) some(sc *SessionChange, f *follower, id arcp.JobID, events []*store.Event, marks []arcp.TypeSet) []*store.Event {
	mask := f.mask()
	shown := make([]*store.Event, 0, len(events))
	for i, e := range events {
		if marks[i]&mask != 0 {
			shown = append(shown, e)
			sc.add(f.run(id, f.session.last+uint64(len(shown)), e.JSeq, 1))
		}
	}
	return shown
}

// unlogged mints the id of an event that is not stored and addresses it to the
// followers that see it. submitted is the job of SubmitJob in the same write.
func (c *Core) unlogged(op *store.DeliverUnlogged, submitted *job) (out []store.Delivery) {
	j := submitted
	if op.Job != "" {
		j = c.jobs[op.Job]
	}
	e := op.Event
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
