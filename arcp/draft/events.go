package draft

import (
	"bytes"
	"cmp"
	"fmt"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// Event is an event of a job, as the log of the job has it. Its members are encoded as in the log:
// identifiers without escapes, and the timestamp as arcp.AppendTime writes it.
type Event struct {
	Type      arcp.Type
	ID        arcp.Raw
	Timestamp arcp.Raw
	JobID     arcp.Raw
	TraceID   arcp.Raw // nil: none
	Payload   arcp.Raw // of the type in package arcp
}

// EventOf returns the event of an envelope.
func EventOf(env *arcp.Envelope) Event {
	text := func(s string) arcp.Raw { return arcp.AppendString(nil, s) }
	e := Event{
		Type:      env.Type,
		ID:        text(string(env.ID)),
		Timestamp: arcp.AppendTime(nil, env.Timestamp),
		JobID:     text(string(env.JobID)),
		Payload:   env.Payload,
	}
	if env.TraceID != "" {
		e.TraceID = text(env.TraceID)
	}
	return e
}

// appendTimestamp appends the timestamp of an event in milliseconds.
func appendTimestamp(dst []byte, timestamp arcp.Raw) []byte {
	if len(timestamp) != arcp.TimeLen { // not reached: the runtime wrote the event
		return append(dst, timestamp...)
	}
	return append(append(dst, timestamp[:arcp.TimeLen-len(`000Z"`)]...), `Z"`...)
}

// inner returns the text of a JSON string without escapes.
func inner(raw arcp.Raw) []byte {
	if len(raw) < len(`""`) {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// Body is the part of an event's frame that sessions share: everything but event_seq and
// session_id. It is valid for sessions with the same Form. A Body must not be changed.
type Body struct {
	JSON  []byte
	event *Event // without the payload
}

// maxHead bounds the members of a frame that are not in its Body, in bytes.
const maxHead = 512

// EventBody encodes the body of an event. The error is a *TooLargeError, or says that the event
// has no frame.
func EventBody(e *Event, p Profile) (*Body, error) {
	raw, err := appendBody(make([]byte, 0, 320+len(e.Payload)+len(e.Payload)/4), e, p.quirks(), false)
	if err != nil {
		return nil, err
	}
	event := *e
	event.Payload = nil
	return &Body{JSON: raw, event: &event}, nil
}

// encoder holds the members of a payload that are being encoded.
type encoder struct {
	encoding

	// Entries up to n have the members; the others are empty.
	names  [maxMembers][]byte
	values [maxMembers]arcp.Raw
}

// encoding is the part of an encoder that begins empty for each event.
type encoding struct {
	event  *Event
	quirks *quirks
	row    *kindRow
	time   arcp.Raw // of the event, encoded
	name   string   // of an event.emit
	data   arcp.Raw // the payload, or the data of an event.emit
	n      int      // members in the encoder

	resultMember resultMember

	payload, body object // being written
}

// maxMembers bounds the members of a payload that are looked at. Members with names that no
// row reads are not counted.
const maxMembers = 24

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// appendBody appends the body of an event. With reduce, a large value of a result is written once,
// in the member that the profile reads.
func appendBody(dst []byte, event *Event, q *quirks, reduce bool) ([]byte, error) {
	if body, ok := appendLog(dst, event); ok {
		return body, nil
	}
	e := encoders.Get().(*encoder)
	e.event, e.quirks = event, q
	e.read()
	start := len(dst)
	dst, err := e.append(dst)
	if err == nil && reduce && len(dst)-start > MaxFrame-maxHead && event.Type.Terminal() {
		if e.resultMember = resultOnly; q.resultInOutput {
			e.resultMember = outputOnly
		}
		dst, err = e.append(dst[:start])
	}
	e.release()
	if err != nil {
		return dst[:start], err
	}
	if size := len(dst) - start; size > MaxFrame-maxHead {
		return dst[:start], &TooLargeError{event.Type, size}
	}
	oneLine(dst[start:])
	return dst, nil
}

// release empties e for the next event. It clears only the used entries, because most events have few
// members.
func (e *encoder) release() {
	e.clearMembers()
	e.encoding = encoding{}
	encoders.Put(e)
}

func (e *encoder) clearMembers() {
	clear(e.names[:e.n])
	clear(e.values[:e.n])
	e.n = 0
}

// read finds the members of the payload, or of the data of an event.emit and of a chunk.
func (e *encoder) read() {
	e.data = e.event.Payload
	e.members(e.data)
	switch e.event.Type {
	case arcp.EventEmit:
		e.name = internName(e.get("name"))
	case arcp.StreamChunk:
		if e.name = internName(e.get("kind")); e.name == arcp.StreamThought {
			return // its members are in the payload
		}
	default:
		return
	}
	e.data = e.get("data")
	e.clearMembers()
	e.members(e.data)
}

// members adds the members of an object.
func (e *encoder) members(raw arcp.Raw) {
	if raw.Kind() != '{' {
		return
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		arcp.EachMember(raw, func(name []byte, value arcp.Raw) bool {
			e.member(name, value)
			return true
		})
		return
	}
	for i := 1; ; {
		name, value, next := nextMember(raw, i)
		if next == 0 {
			return
		}
		e.member(name, value)
		i = next
	}
}

func (e *encoder) member(name []byte, value arcp.Raw) {
	if value[0] != 'n' && e.n < maxMembers && isMember(string(name)) {
		e.names[e.n], e.values[e.n] = name, value
		e.n++
	}
}

// isMember reports whether a row or a terminal reads a member.
func isMember(name string) bool {
	switch name {
	case "name", "data", "description", "label", "reason", "prompt", "current", "total", "units", "percent", "message",
		"result_id", "chunk_seq", "encoding", "more", "level", "attributes", "value", "unit", "dims", "dimensions", "uri", "media_type", "size", "sha256",
		"tool", "args", "call_id", "result", "error", "child_job_id", "delegate_id", "agent", "input", "lease_request", "lease", "lease_constraints",
		"text", "role", "content", "id", "result_ref", "result_size", "summary", "kind":
		return true
	}
	return false
}

// get returns a member; nil if it is missing or null.
func (e *encoder) get(name string) arcp.Raw {
	for i := range e.n {
		if string(e.names[i]) == name {
			return e.values[i]
		}
	}
	return nil
}

// internName returns the name of an event without an allocation if a row has it.
func internName(raw arcp.Raw) string {
	if isName(raw) {
		for i := range kinds {
			if kinds[i].event != "" && string(raw[1:len(raw)-1]) == kinds[i].event {
				return kinds[i].event
			}
		}
	}
	return cmp.Or(textOf(raw), "event")
}

// append appends the body.
func (e *encoder) append(dst []byte) ([]byte, error) {
	if e.row = e.find(); e.row == nil {
		return e.appendTerminal(dst)
	}
	dst, e.time = e.event.begin(dst, JobEvent)
	e.body = begin(appendKind(dst, e.row.kind, e.time))
	e.row.write(&e.body, e)
	return append(e.body.end(), '}', '}'), nil
}

// appendTerminal appends the body of an event that ends a job.
func (e *encoder) appendTerminal(dst []byte) ([]byte, error) {
	t, ok := terminals[e.event.Type]
	if !ok {
		return dst, fmt.Errorf("draft: %s has no frame", e.event.Type)
	}
	dst, e.time = e.event.begin(dst, t.to)
	e.payload = begin(dst)
	t.write(&e.payload, e)
	return append(e.payload.end(), '}'), nil
}

// begin appends the members of the envelope up to the value of the payload. It returns the encoded
// timestamp, too.
func (e *Event) begin(dst []byte, t Type) (_ []byte, timestamp arcp.Raw) {
	dst = append(append(dst, `"id":`...), e.ID...)
	dst = append(append(append(dst, `,"type":"`...), t...), `","timestamp":`...)
	start := len(dst)
	dst = appendTimestamp(dst, e.Timestamp)
	timestamp = dst[start:]
	if len(e.JobID) > 0 {
		dst = append(append(dst, `,"job_id":`...), e.JobID...)
	}
	if validTrace(inner(e.TraceID)) {
		dst = append(append(dst, `,"trace_id":`...), e.TraceID...)
	}
	return append(dst, `,"payload":`...), timestamp
}

// appendKind appends the members of the payload of a job.event before the value of its body.
func appendKind(dst []byte, k Kind, timestamp arcp.Raw) []byte {
	dst = append(append(append(dst, `{"kind":"`...), k...), `","ts":`...)
	return append(append(dst, timestamp...), `,"body":`...)
}

// appendLog appends the body of a log event as arcp.LogPayload encodes it, without an encoder: jobs
// send many. ok is false if the payload has another form, or an escape; dst is then unchanged.
func appendLog(dst []byte, e *Event) (_ []byte, ok bool) {
	p := e.Payload
	if e.Type != arcp.Log || bytes.IndexByte(p, '\\') >= 0 || len(p) > maxCopied {
		return dst, false
	}
	level, rest := cutText(p, `{"level":`)
	message, rest := cutText(rest, `,"message":`)
	attributes, isLast := bytes.CutPrefix(rest, []byte(`,"attributes":`))
	switch {
	case level == nil || message == nil:
		return dst, false
	case !isLast && string(rest) == "}":
		attributes = nil
	case !isLast, attributes[0] != '{', valueEnd(attributes, 0) != len(attributes)-1:
		return dst, false
	default:
		attributes = attributes[:len(attributes)-1]
	}
	if bytes.IndexByte(attributes, '\n') >= 0 || bytes.IndexByte(attributes, '\r') >= 0 {
		return dst, false // see oneLine; the other members have no newlines
	}
	dst, timestamp := e.begin(dst, JobEvent)
	o := begin(appendKind(dst, KindLog, timestamp))
	o.name("level")
	o.dst = append(append(append(o.dst, '"'), logLevel(level)...), '"')
	o.raw("message", message)
	o.raw("fields", attributes)
	o.raw("attributes", attributes)
	return append(o.end(), '}', '}'), true
}

// cutText returns the JSON string that follows a prefix of a text without backslashes, and the text after
// it; nil: none follows.
func cutText(raw []byte, prefix string) (text arcp.Raw, rest []byte) {
	if len(raw) <= len(prefix) || string(raw[:len(prefix)]) != prefix || raw[len(prefix)] != '"' {
		return nil, raw
	}
	end := bytes.IndexByte(raw[len(prefix)+1:], '"')
	if end < 0 {
		return nil, raw
	}
	end += len(prefix) + len(`""`)
	return arcp.Raw(raw[len(prefix):end]), raw[end:]
}

// terminal says how an event that ends a job is encoded.
type terminal struct {
	to     Type
	write  func(o *object, e *encoder)
	varies varies // the body depends on the profile; nil: it does not
}

var terminals = map[arcp.Type]terminal{
	arcp.JobCompleted:     {JobResult, writeResult, nil},
	arcp.WorkflowComplete: {JobResult, writeResult, nil},
	arcp.ToolResult:       {JobResult, writeResult, nil},
	arcp.JobFailed:        {JobError, writeFailed, byFailure},
	arcp.ToolError:        {JobError, writeFailed, byFailure},
	arcp.JobCancelled:     {JobError, writeCancelled, byFailure},
}

// resultMember says which of the members result and output have the value of a job.result.
type resultMember uint8

const (
	resultAndOutput resultMember = iota
	resultOnly
	outputOnly // Go
)

// writeResult writes the value twice or, if that is too large, once. For a result in chunks it
// writes the identifier, and for a result in an artifact result_ref, which only the runtime has.
func writeResult(o *object, e *encoder) {
	o.raw("job_id", e.event.JobID)
	o.text("final_status", statusSuccess)
	if s := e.get("summary"); isText(s) {
		o.raw("summary", s)
	}
	value, ref := e.get("value"), e.get("result_ref")
	if id := e.get("result_id"); isText(id) && len(id) > len(`""`) {
		o.raw("result_id", id)
		value, ref = nil, nil
	}
	o.raw("result_ref", ref)
	if size := e.get("result_size"); len(size) > 0 && isUint(size) {
		o.raw("result_size", size)
	}
	if e.resultMember != outputOnly {
		o.raw("result", value)
	}
	if e.resultMember != resultOnly {
		o.raw("output", value)
	}
	o.raw("completed_at", e.time)
}

func writeFailed(o *object, e *encoder) {
	env := arcp.Envelope{Payload: e.event.Payload}
	p, err := arcp.DecodePayload[arcp.Error](&env)
	if err != nil { // not reached: the runtime wrote the payload
		p = *arcp.Errorf(arcp.CodeInternal, "failed")
	}
	e.failed(o, failureOf(&p, aboutAny))
}

func writeCancelled(o *object, e *encoder) {
	env := arcp.Envelope{Payload: e.event.Payload}
	p, err := arcp.DecodePayload[arcp.JobCancelledPayload](&env)
	if err != nil {
		p = arcp.JobCancelledPayload{}
	}
	cancelled := arcp.Errorf(cmp.Or(p.Code, arcp.CodeCancelled), "%s", cmp.Or(p.Reason, "cancelled"))
	e.failed(o, failureOf(cancelled, aboutCancel))
}

// failed writes the payload of a job.error.
func (e *encoder) failed(o *object, f Failure) {
	info, _ := f.Code.Info()
	status := info.Status
	if e.quirks.finalStatusError {
		status = statusError
	}
	o.raw("job_id", e.event.JobID)
	o.text("final_status", status)
	o.failure(&f)
	o.raw("completed_at", e.time)
}
