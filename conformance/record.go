package conformance

import (
	"maps"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// record is the state of one session over all its connections. It belongs to the goroutine of the
// check.
type record struct {
	session  arcp.SessionID          // empty until session.accepted
	token    string                  // the newest resume token
	offered  arcp.Capabilities       // capabilities in session.open
	caps     arcp.Capabilities       // negotiated capabilities
	own      map[string]bool         // ids of the messages that the session sent
	resent   map[arcp.MessageID]bool // submits repeated on a later connection
	calls    map[arcp.MessageID]bool // submits of a worker as part of a job
	assigned map[arcp.MessageID]bool // tool.invoke and interrupt messages received by a worker
	streams  map[arcp.StreamID]bool  // that the client writes to jobs
	events   map[uint64]*received    // by event_seq, as received last
	asked    map[arcp.MessageID]bool // questions received
}

func newRecord() *record {
	return &record{own: map[string]bool{}, resent: map[arcp.MessageID]bool{}, calls: map[arcp.MessageID]bool{}, assigned: map[arcp.MessageID]bool{}, streams: map[arcp.StreamID]bool{}, events: map[uint64]*received{},
		asked: map[arcp.MessageID]bool{}}
}

// negotiated stores the capabilities of a new session. A later attach does not change them.
func (r *record) negotiated(id arcp.SessionID, offered, caps arcp.Capabilities) {
	if r.session == "" {
		r.session, r.offered, r.caps = id, offered, caps
	}
}

// upTo returns the received events with event_seq up to seq, in order.
func (r *record) upTo(seq uint64) []*received {
	var list []*received
	for _, n := range slices.Sorted(maps.Keys(r.events)) {
		if n <= seq {
			list = append(list, r.events[n])
		}
	}
	return list
}
