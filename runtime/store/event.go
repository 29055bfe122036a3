package store

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Event is an event of a job, or an announced event. Before Commit only Type, Time, Body
// and Route are set. Commit sets the rest and writes the id into Body. After that the
// event never changes: all sessions get the same bytes.
type Event struct {
	Type arcp.Type
	Time time.Time
	// Body is the part of the encoded envelope that all receivers share: from the id up
	// to and including the last brace. AppendFrame puts a receiver's own members before it.
	// It begins with "id":"msg_, and arcp.IDBodyLen zeros until Commit writes the id there.
	Body []byte

	// Route selects receivers in addition to, or instead of, the followers of the job.
	// nil: the followers. It is not stored.
	Route *Route

	JSeq      uint64 // position in the job's log, from 1; of an announced event: in the feed
	OriginSeq uint64 // event_seq in the submitting session; of an unseen event: of the event before
}

// Route addresses an event. It skips unknown sessions, and sessions whose view does not
// show the type.
type Route struct {
	// To are sessions that get the event whether they follow the job or not. An event of
	// a directed type goes only to them.
	To []arcp.SessionID

	// Reply is the session whose message the event answers. It gets the event whether it
	// follows the job or not, with the correlation id ReplyTo. With a directed type the
	// sessions in To get the same correlation id.
	Reply   arcp.SessionID
	ReplyTo arcp.MessageID
}

// Memory estimates the memory of the event in bytes.
func (e *Event) Memory() int { return cap(e.Body) + cap(e.Body)/8 + eventBytes }

// eventBytes is the memory of an event without its body.
const eventBytes = 128

const (
	bodyHead = `"id":"` + arcp.MessagePrefix
	idStart  = len(`"id":"`)
	idEnd    = len(bodyHead) + arcp.IDBodyLen
)

// JobContext is the part of an event that is the same for all events of a job, or of a stream of the job.
type JobContext struct {
	JobID        arcp.JobID
	TraceID      string
	SpanID       string
	ParentSpanID string
	CausationID  arcp.MessageID
	StreamID     arcp.StreamID // of the events of a stream
}

// NewEvent encodes an event. The payload must be an encoded JSON object.
func NewEvent(t arcp.Type, now time.Time, c *JobContext, p arcp.Priority, payload []byte) *Event {
	b := make([]byte, 0, bodySize(t, c, p, payload))
	b = append(b, bodyHead+"00000000000000000000000000"...)
	b = AppendTypeAndTime(b, t, now)
	b = member(b, "job_id", string(c.JobID))
	b = member(b, "trace_id", c.TraceID)
	b = member(b, "span_id", c.SpanID)
	b = member(b, "parent_span_id", c.ParentSpanID)
	b = member(b, "causation_id", string(c.CausationID))
	b = member(b, "stream_id", string(c.StreamID))
	if p != arcp.PriorityNormal {
		b = member(b, "priority", string(p))
	}
	b = append(append(b, `,"payload":`...), payload...)
	return &Event{Type: t, Time: now, Body: append(b, '}')}
}

// bodySize returns the length of the body that NewEvent makes. Escapes in members make the body longer.
func bodySize(t arcp.Type, c *JobContext, p arcp.Priority, payload []byte) int {
	n := idEnd + len(`","type":"`) + len(t) + len(`","timestamp":`) + arcp.TimeLen + len(`,"payload":`) + len(payload) + len(`}`)
	n += memberSize("job_id", string(c.JobID)) + memberSize("trace_id", c.TraceID) + memberSize("span_id", c.SpanID)
	n += memberSize("parent_span_id", c.ParentSpanID) + memberSize("causation_id", string(c.CausationID))
	n += memberSize("stream_id", string(c.StreamID))
	if p != arcp.PriorityNormal {
		n += memberSize("priority", string(p))
	}
	return n
}

func memberSize(name, value string) int {
	if value == "" {
		return 0
	}
	return len(`,"":""`) + len(name) + len(value)
}

// AppendTypeAndTime appends the part of a body between its id and its other members.
func AppendTypeAndTime(b []byte, t arcp.Type, now time.Time) []byte {
	b = append(append(append(b, `","type":"`...), t...), `","timestamp":`...)
	return arcp.AppendTime(b, now)
}

// CutBody splits a body made by NewEvent at what AppendTypeAndTime has appended. Another body may
// be split anywhere.
func (e *Event) CutBody() (id, typeAndTime, rest []byte) {
	end := min(e.jobStart(), len(e.Body))
	start := min(idEnd, end)
	return e.Body[:start], e.Body[start:end], e.Body[end:]
}

func member(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return arcp.AppendString(b, value)
}

// runtimeMetricEnd is the end of the body of a metric of the runtime. The payload is the last member of a
// body, dims is the last member of the payload, and source is the last member of dims.
const runtimeMetricEnd = `"source":"runtime"}}}`

// RuntimeMetric reports whether the event is a metric that the runtime adds to a job: the last member of its
// dims is source, with the value runtime. Only sessions with the capability metrics get the event.
func (e *Event) RuntimeMetric() bool {
	return e.Type == arcp.Metric && bytes.HasSuffix(e.Body, []byte(runtimeMetricEnd))
}

// draftChunkEnds are the ends of the bodies of chunks that have a frame in the draft dialect. The payload is
// the last member of a body, and kind is the last member of the payload.
var draftChunkEnds = [][]byte{[]byte(`,"kind":"thought"}}`), []byte(`,"kind":"log"}}`), []byte(`,"kind":"metric"}}`)}

// DraftChunk reports whether the event is a chunk of a stream of a kind that has a frame in the draft dialect.
func (e *Event) DraftChunk() bool {
	return e.Type == arcp.StreamChunk && slices.ContainsFunc(draftChunkEnds, func(end []byte) bool { return bytes.HasSuffix(e.Body, end) })
}

// ID returns the id of a committed event.
func (e *Event) ID() arcp.MessageID { return arcp.MessageID(e.Body[idStart:idEnd]) }

// JobID returns the job of an event made by NewEvent; empty: none.
func (e *Event) JobID() arcp.JobID { return arcp.JobID(e.JobIDText()) }

// JobIDText is JobID without a copy. It must not be changed.
func (e *Event) JobIDText() []byte {
	value, _ := cutMember(e.Body[min(e.jobStart(), len(e.Body)):], jobMember)
	if value == nil {
		return nil
	}
	return value[1 : len(value)-1]
}

const jobMember = `,"job_id":"`

// jobStart returns the position of jobMember in the body, if the event has a job.
func (e *Event) jobStart() int {
	return idEnd + len(`","type":"`) + len(e.Type) + len(`","timestamp":`) + arcp.TimeLen
}

// Payload returns the payload of an event. It must not be changed.
func (e *Event) Payload() arcp.Raw { return payloadIn(e.Body) }

// payloadIn returns the payload in a body, or in the end of a body.
func payloadIn(b []byte) arcp.Raw {
	const name = `,"payload":` // the first one is the member: quotes within strings are escaped
	at := 0
	if len(b) < len(name) || string(b[:len(name)]) != name {
		at = bytes.Index(b, []byte(name))
	}
	return arcp.Raw(b[at+len(name) : len(b)-1])
}

// EventMembers are encoded members of an event made by NewEvent. They must not be changed.
type EventMembers struct {
	ID, Timestamp, JobID arcp.Raw
	TraceID              arcp.Raw // nil: none
	Payload              arcp.Raw
}

// Members returns the members of a committed event.
func (e *Event) Members() (m EventMembers) {
	start := e.jobStart()
	m.ID = arcp.Raw(e.Body[len(`"id":`) : idEnd+1])
	m.Timestamp = arcp.Raw(e.Body[start-arcp.TimeLen : start])
	rest := e.Body[start:]
	m.JobID, rest = cutMember(rest, jobMember)
	m.TraceID, rest = cutMember(rest, `,"trace_id":"`)
	_, rest = cutMember(rest, `,"span_id":"`) // the payload nearly always follows
	m.Payload = payloadIn(rest)
	return m
}

// cutMember removes a member with a text from the front of b, and returns its value. name ends with the
// quote that begins the text. A member that b does not begin with is nil.
func cutMember(b []byte, name string) (value arcp.Raw, rest []byte) {
	if len(b) < len(name) || string(b[:len(name)]) != name {
		return nil, b
	}
	n := bytes.IndexByte(b[len(name):], '"')
	if n < 0 {
		return nil, b
	}
	end := len(name) + n + 1
	return arcp.Raw(b[len(name)-1 : end]), b[end:]
}

// AppendFrame appends the envelope for a receiver. head is the FrameHead of its session;
// seq 0 omits event_seq.
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

// FrameHead returns the first members of all frames of a session.
func FrameHead(version string, id arcp.SessionID) []byte {
	b := arcp.AppendString([]byte(`{"arcp":`), version)
	b = arcp.AppendString(append(b, `,"session_id":`...), string(id))
	return append(b, ',')
}
