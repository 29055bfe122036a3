package conformance

import (
	"maps"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// record is what a session has said and was told over all its connections. It
// belongs to the check's goroutine.
type record struct {
	session  arcp.SessionID          // empty until accepted
	token    string                  // the newest resume token
	offered  arcp.Capabilities       // of the session.open that made it
	caps     arcp.Capabilities       // negotiated
	own      map[string]bool         // ids of what was sent
	resent   map[arcp.MessageID]bool // submits that were sent on a later connection too
	calls    map[arcp.MessageID]bool // submits of a worker for the job that it does
	assigned map[arcp.MessageID]bool // jobs that the session was given to do, and interrupts of them
	events   map[uint64]*Frame       // by event_seq
	asked    map[arcp.MessageID]bool // questions that came
}

func newRecord() *record {
	return &record{own: map[string]bool{}, resent: map[arcp.MessageID]bool{}, calls: map[arcp.MessageID]bool{}, assigned: map[arcp.MessageID]bool{}, events: map[uint64]*Frame{},
		asked: map[arcp.MessageID]bool{}}
}

// begin notes what a session negotiated. Taking it over does not change that.
func (r *record) begin(id arcp.SessionID, offered, caps arcp.Capabilities) {
	if r.session == "" {
		r.session, r.offered, r.caps = id, offered, caps
	}
}

// upTo returns the events up to a number that came, in their order.
func (r *record) upTo(seq uint64) []*Frame {
	var list []*Frame
	for _, n := range slices.Sorted(maps.Keys(r.events)) {
		if n <= seq {
			list = append(list, r.events[n])
		}
	}
	return list
}
