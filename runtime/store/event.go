package store

import (
	"bytes"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Event is one event of a job. Before Commit only Type, Time and Body are set;
// Commit sets the rest and patches the id into Body. After that it never
// changes: every session, now and later, gets these bytes.
type Event struct {
	Type arcp.Type
	Time time.Time
	// Body is the encoded envelope from the id on, up to and including the last
	// brace: what all receivers share. AppendFrame puts a receiver's own
	// members before it.
	Body []byte

	// Route says who is given the event beside or instead of who follows the job;
	// nil: as usual. It is not stored.
	Route *Route

	JSeq      uint64 // position in the job's log, from 1, or of an announced event in the feed
	OriginSeq uint64 // the event_seq in the submitting session, or the last one before
}

// Route addresses an event. Sessions that are not there are left out, and so are
// those whose view does not show the type.
type Route struct {
	// To is who is given an event whether they follow the job or not; one of a
	// directed type is given to nobody else.
	To []arcp.SessionID

	// Reply is a session whose message the event answers: it is given the event
	// whether it follows the job or not. ReplyTo is the correlation id that it gets
	// and, of a directed type, everybody in To.
	Reply   arcp.SessionID
	ReplyTo arcp.MessageID
}

// Memory is about how many bytes of memory the event takes.
func (e *Event) Memory() int { return cap(e.Body) + cap(e.Body)/8 + eventBytes }

// eventBytes is what an event takes beside its body.
const eventBytes = 128

const (
	bodyHead = `"id":"` + arcp.MessagePrefix
	idStart  = len(`"id":"`)
	idEnd    = len(bodyHead) + arcp.IDBodyLen
)

// Common is what the events of one job have in common.
type Common struct {
	JobID        arcp.JobID
	TraceID      string
	SpanID       string
	ParentSpanID string
	CausationID  arcp.MessageID
}

// NewEvent encodes an event. The payload must be an encoded JSON object.
func NewEvent(t arcp.Type, now time.Time, c *Common, p arcp.Priority, payload []byte) *Event {
	b := make([]byte, 0, 192+len(c.JobID)+len(c.TraceID)+len(c.SpanID)+len(payload))
	return &Event{Type: t, Time: now, Body: AppendBody(b, t, now, c, p, payload)}
}

// AppendBody appends the Body of an event with a blank id.
func AppendBody(b []byte, t arcp.Type, now time.Time, c *Common, p arcp.Priority, payload []byte) []byte {
	b = append(b, bodyHead+"00000000000000000000000000"+`","type":"`...)
	b = append(append(b, t...), `","timestamp":`...)
	b = arcp.AppendTime(b, now)
	b = member(b, "job_id", string(c.JobID))
	b = member(b, "trace_id", c.TraceID)
	b = member(b, "span_id", c.SpanID)
	b = member(b, "parent_span_id", c.ParentSpanID)
	b = member(b, "causation_id", string(c.CausationID))
	if p != arcp.PriorityNormal {
		b = member(b, "priority", string(p))
	}
	b = append(append(b, `,"payload":`...), payload...)
	return append(b, '}')
}

func member(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return arcp.AppendString(b, value)
}

// SetIDs patches the ids of events that follow each other in; only Commit does.
func SetIDs(events []*Event, ids *arcp.IDSource) {
	id := ids.Reserve(len(events))
	for _, e := range events {
		arcp.AppendIDBody(e.Body[:len(bodyHead)], id)
		id = arcp.Next(id)
	}
}

// SetID patches the id's body in; only Commit does.
func (e *Event) SetID(ids *arcp.IDSource) {
	ids.Append(e.Body[:len(bodyHead)])
}

// ID is the id of a committed event.
func (e *Event) ID() arcp.MessageID { return arcp.MessageID(e.Body[idStart:idEnd]) }

// JobID is the job that an event made by NewEvent belongs to; empty: to none.
func (e *Event) JobID() arcp.JobID {
	const name = `,"job_id":"`
	start := idEnd + len(`","type":"`) + len(e.Type) + len(`","timestamp":`) + arcp.TimeLen
	rest, ok := bytes.CutPrefix(e.Body[min(start, len(e.Body)):], []byte(name))
	if !ok {
		return ""
	}
	return arcp.JobID(rest[:max(bytes.IndexByte(rest, '"'), 0)])
}

// AppendFrame appends the envelope that a receiver gets: head is what
// FrameHead made for its session; seq 0 leaves event_seq out.
func AppendFrame(dst, head []byte, seq uint64, corr arcp.MessageID, e *Event) []byte {
	dst = append(dst, head...)
	if corr != "" {
		dst = append(arcp.AppendString(append(dst, `"correlation_id":`...), string(corr)), ',')
	}
	if seq != 0 {
		dst = append(strconv.AppendUint(append(dst, `"event_seq":`...), seq, 10), ',')
	}
	return append(dst, e.Body...)
}

// FrameHead returns the members that all frames of a session begin with.
func FrameHead(version string, id arcp.SessionID) []byte {
	b := arcp.AppendString([]byte(`{"arcp":`), version)
	b = arcp.AppendString(append(b, `,"session_id":`...), string(id))
	return append(b, ',')
}
