package sequence

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// appender appends events to the logs of jobs, and to the logs of the sessions that
// follow the jobs.
type appender struct {
	*batch
	sessions *sessions
	runs     []store.Run    // of this batch
	bits     []arcp.TypeSet // of the events that are being appended
}

// append appends events to the log of a job. Events with a route are appended one by
// one.
func (a *appender) append(j *job, events []*store.Event) {
	for len(events) > 0 {
		n := slices.IndexFunc(events, func(e *store.Event) bool { return e.Route != nil })
		switch n {
		case -1:
			n = len(events)
			a.appendPlain(j, events)
		case 0:
			n = 1
			a.appendRouted(j, events[:1])
		default:
			a.appendPlain(j, events[:n])
		}
		events = events[n:]
	}
}

// appendPlain appends events for the followers of a job.
func (a *appender) appendPlain(j *job, events []*store.Event) {
	union := a.assign(j, events)
	for i := range j.followers {
		a.deliverNew(&j.followers[i], j, events, union)
	}
	j.advance(events)
}

// appendRouted appends one event for the sessions that its route selects.
func (a *appender) appendRouted(j *job, events []*store.Event) {
	bit := a.assign(j, events)
	for _, f := range a.receivers(j, events[0].Route, bit&arcp.Directed != 0) {
		a.deliverNew(&f, j, events, bit)
	}
	j.advance(events)
}

// deliverNew delivers events that are being appended.
func (a *appender) deliverNew(f *follower, j *job, events []*store.Event, union arcp.TypeSet) {
	if f.primary {
		a.assignOriginSeq(f, events)
	}
	a.deliver(f, j.id, events, a.bits, union)
}

// advance moves the end of the log of a job behind appended events.
func (j *job) advance(events []*store.Event) {
	j.lastJSeq += uint64(len(events))
	j.lastSeq = events[len(events)-1].OriginSeq
}

// receivers returns the receivers of an event with a route. The submitter is first: its
// numbers are the OriginSeq of the event.
func (a *appender) receivers(j *job, r *store.Route, directed bool) []follower {
	var list []follower
	if !directed {
		list = slices.Clone(j.followers)
	}
	named := r.To
	if r.Reply != "" {
		named = append(slices.Clip(named), r.Reply)
	}
	for _, id := range named {
		if s := a.sessions.get(id); s != nil && !slices.ContainsFunc(list, func(f follower) bool { return f.session == s }) {
			list = append(list, j.receiver(s))
		}
	}
	for i := range list {
		f := &list[i]
		f.directed = directed
		if r.ReplyTo != "" && (directed || f.session.id == r.Reply) {
			f.correlation = r.ReplyTo
		}
	}
	if i := slices.IndexFunc(list, func(f follower) bool { return f.primary }); i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	return list
}

// assign sets the ids and positions of new events, adds them to the job's change, and
// sets a.bits. It returns the union of the bits. OriginSeq is set for events that
// the submitter does not get; without a submitter it counts on.
func (a *appender) assign(j *job, events []*store.Event) (union arcp.TypeSet) {
	setIDs(events, a.ids)
	for i, e := range events {
		e.JSeq = j.lastJSeq + uint64(i) + 1
		if j.submitter == nil {
			e.OriginSeq = j.lastSeq + uint64(i) + 1
		} else {
			e.OriginSeq = j.submitter.last
		}
	}
	a.bits, union = appendBits(a.bits[:0], events)
	a.changes.last = events[len(events)-1]
	change := j.changed
	if change.Events == nil {
		change.Events = events[:len(events):len(events)]
	} else {
		change.Events = append(change.Events, events...)
	}
	return union
}

// assignOriginSeq sets the OriginSeq of events that the primary follower is about to get. An event
// that the follower does not see has the number of the event before.
func (a *appender) assignOriginSeq(f *follower, events []*store.Event) {
	mask, seq := f.mask(), f.session.last
	for i, e := range events {
		if a.bits[i]&mask != 0 {
			seq++
		}
		e.OriginSeq = seq
	}
}

// deliverStored delivers stored events of a job to one follower.
func (a *appender) deliverStored(f *follower, id arcp.JobID, events []*store.Event) {
	bits, union := appendBits(make([]arcp.TypeSet, 0, len(events)), events)
	a.deliver(f, id, events, bits, union)
}

// deliver appends the events that a follower sees to the log of its session.
func (a *appender) deliver(f *follower, id arcp.JobID, events []*store.Event, bits []arcp.TypeSet, union arcp.TypeSet) {
	mask := f.mask()
	if union&mask == 0 {
		return
	}
	shown, first := events, f.session.last+1
	change := a.sessions.changeOf(f.session)
	if union&^mask == 0 {
		change.add(f.run(id, first, events[0].JSeq, uint64(len(events))))
	} else {
		shown = filter(change, f, id, events, bits)
	}
	f.session.last = change.Last
	a.runs = append(a.runs, store.Run{
		Session:       f.session.id,
		First:         first,
		CorrelationID: f.correlation,
		Forwarded:     f.forwarded,
		Events:        shown,
	})
}

// filter adds the events that a follower sees to a change, and returns them.
func filter(change *SessionChange, f *follower, id arcp.JobID, events []*store.Event, bits []arcp.TypeSet) []*store.Event {
	mask := f.mask()
	shown := make([]*store.Event, 0, len(events))
	for i, e := range events {
		if bits[i]&mask != 0 {
			shown = append(shown, e)
			change.add(f.run(id, f.session.last+uint64(len(shown)), e.JSeq, 1))
		}
	}
	return shown
}

// hidden is the bit of types that are in no TypeSet. No session sees their events.
const hidden arcp.TypeSet = 1 << 63

func bitOf(e *store.Event) arcp.TypeSet {
	switch {
	case e.RuntimeMetric():
		return arcp.RuntimeMetrics
	case e.DraftChunk():
		return arcp.DraftChunks
	}
	if s := arcp.Lookup(e.Type); s != nil && s.Bit != 0 {
		return s.Bit
	}
	return hidden
}

// appendBits appends the bit of each event, and returns the union of these.
func appendBits(bits []arcp.TypeSet, events []*store.Event) (out []arcp.TypeSet, union arcp.TypeSet) {
	var t arcp.Type
	var bit arcp.TypeSet
	for i, e := range events {
		if e.Type != t || i == 0 || t == arcp.Metric || t == arcp.StreamChunk { // not all of these have the same bit
			t, bit = e.Type, bitOf(e)
		}
		bits = append(bits, bit)
		union |= bit
	}
	return bits, union
}
