package arcp

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/arcpd/arcpd/internal/clip"
)

// Decode decodes one frame. It checks the envelope and the JSON syntax of the whole frame strictly.
// The payload is copied as received and not decoded. The error is an *EncodingError. The envelope
// does not alias frame.
//
// A member with a type other than in §2.1 is an error. A null member is absent. Unknown members are
// ignored.
func Decode(frame []byte) (Envelope, error) { return decode(frame, MaxDepth, false) }

// DecodeOwned is Decode for a frame that belongs to the envelope and that the caller no longer changes. A
// payload that is most of the memory of the frame aliases it.
func DecodeOwned(frame []byte) (Envelope, error) {
	env, err := decodeAlias(frame, MaxDepth, false)
	if 2*len(env.Payload) < cap(frame) { // it would retain the frame
		env.Payload = bytes.Clone(env.Payload)
	}
	env.Extensions = bytes.Clone(env.Extensions)
	return env, err
}

// DecodeFromRuntime is Decode for frames of a runtime. The limit of the depth is twice MaxDepth,
// because a runtime forwards events inside other messages.
func DecodeFromRuntime(frame []byte) (Envelope, error) {
	return decode(frame, 2*MaxDepth, false)
}

// DecodeDraft is Decode for frames of the draft dialect (package draft). The timestamp may be
// missing, a missing payload is {}, and an unknown priority is ignored.
func DecodeDraft(frame []byte) (Envelope, error) { return decode(frame, MaxDepth, true) }

// DecodeDraftFromRuntime is DecodeDraft for frames of a runtime; see DecodeFromRuntime.
func DecodeDraftFromRuntime(frame []byte) (Envelope, error) { return decode(frame, 2*MaxDepth, true) }

// checkDraft checks an envelope of the draft dialect, and sets what it may leave out.
func (e *Envelope) checkDraft() error {
	if e.Payload == nil {
		e.Payload = Raw("{}")
	}
	if !e.Priority.Valid() {
		e.Priority = PriorityNormal
	}
	return e.checkMembers()
}

func decode(frame []byte, depth int, draft bool) (env Envelope, err error) {
	env, err = decodeAlias(frame, depth, draft)
	env.Payload, env.Extensions = bytes.Clone(env.Payload), bytes.Clone(env.Extensions)
	return env, err
}

// decodeAlias is decode. The payload and the extensions alias frame.
func decodeAlias(frame []byte, depth int, draft bool) (env Envelope, err error) {
	s := scanners.Get().(*scanner)
	s.reset(frame, depth)
	err = env.read(s)
	s.src = nil
	scanners.Put(s)
	switch {
	case err == nil && draft:
		err = env.checkDraft()
	case err == nil:
		err = env.check()
	}
	if err != nil {
		return Envelope{}, encodingError(err, env.ID, frame)
	}
	return env, nil
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// encodingError adds the id of the frame to an error.
func encodingError(err error, id MessageID, frame []byte) *EncodingError {
	e := &EncodingError{Reason: ReasonNotJSON, Message: err.Error()}
	if known, ok := err.(*EncodingError); ok {
		*e = *known
	}
	if id == "" {
		id = peekID(frame)
	}
	if ValidID(string(id)) {
		e.ID = id
	}
	e.Message = clip.Ellipsis(e.Message, maxMessage)
	return e
}

// maxMessage bounds the text of an error, which may quote the frame, in bytes.
const maxMessage = 512

func badMember(name, format string, args ...any) *EncodingError {
	return &EncodingError{ReasonEnvelope, fmt.Sprintf("envelope member %q ", name) + fmt.Sprintf(format, args...), ""}
}

// read sets e from a frame.
func (e *Envelope) read(s *scanner) error {
	o, err := s.open()
	var texts textMembers
	for err == nil {
		var name []byte
		var value Raw
		var more bool
		if name, value, more, err = s.member(&o); !more {
			break
		}
		switch member := textMemberOf(name); {
		case value[0] == 'n': // null is absent
		case member != noText:
			err = texts.add(member, s, name, value)
		default:
			err = e.readMember(name, value)
		}
	}
	texts.assign(e, s.text)
	if err == nil {
		err = s.end()
	}
	return err
}

// textMember is an envelope member with a short text.
type textMember uint8

const (
	textID textMember = iota
	textSession
	textJob
	textStream
	textSubscription
	textCorrelation
	textCausation
	textTrace
	textSpan
	textParentSpan
	textKey
	noText
)

func textMemberOf(name []byte) textMember {
	switch string(name) {
	case "id":
		return textID
	case "session_id":
		return textSession
	case "job_id":
		return textJob
	case "stream_id":
		return textStream
	case "subscription_id":
		return textSubscription
	case "correlation_id":
		return textCorrelation
	case "causation_id":
		return textCausation
	case "trace_id":
		return textTrace
	case "span_id":
		return textSpan
	case "parent_span_id":
		return textParentSpan
	case "idempotency_key":
		return textKey
	}
	return noText
}

func (e *Envelope) setText(member textMember, s string) {
	switch member {
	case textID:
		e.ID = MessageID(s)
	case textSession:
		e.SessionID = SessionID(s)
	case textJob:
		e.JobID = JobID(s)
	case textStream:
		e.StreamID = StreamID(s)
	case textSubscription:
		e.SubscriptionID = SubscriptionID(s)
	case textCorrelation:
		e.CorrelationID = MessageID(s)
	case textCausation:
		e.CausationID = MessageID(s)
	case textTrace:
		e.TraceID = s
	case textSpan:
		e.SpanID = s
	case textParentSpan:
		e.ParentSpanID = s
	case textKey:
		e.IdempotencyKey = s
	}
}

// textMembers collects the text members of an envelope in the buffer of a scanner. All members become
// substrings of one string, which saves allocations. The string is short, so a substring retains only
// a few hundred bytes.
type textMembers struct {
	member [noText]textMember
	end    [noText]int // end of the member in the buffer
	n      int
}

func (tm *textMembers) add(member textMember, s *scanner, name []byte, value Raw) error {
	if value[0] != '"' {
		return wrongKind(name, "a string", value)
	}
	start := len(s.text)
	s.text = appendUnquoted(s.text, value)
	if len(s.text)-start > MaxIDLen {
		s.text = s.text[:start]
		return badID(string(name), fmt.Sprintf("is longer than %d bytes", MaxIDLen))
	}
	tm.member[tm.n], tm.end[tm.n] = member, len(s.text)
	tm.n++
	return nil
}

func (tm *textMembers) assign(e *Envelope, all []byte) {
	s, start := string(all), 0
	for i, end := range tm.end[:tm.n] {
		e.setText(tm.member[i], s[start:end])
		start = end
	}
}

// readMember reads a member other than the text members.
func (e *Envelope) readMember(name []byte, value Raw) error {
	switch string(name) {
	case "payload":
		return readObject(&e.Payload, name, value)
	case "extensions":
		return readObject(&e.Extensions, name, value)
	case "event_seq":
		return e.readSeq(value)
	case "arcp", "type", "timestamp", "priority", "source", "target":
	default:
		return nil // unknown members are ignored
	}
	if value[0] != '"' {
		return wrongKind(name, "a string", value)
	}
	var buf [64]byte
	text := appendUnquoted(buf[:0], value)
	switch string(name) {
	case "arcp":
		e.ARCP = internVersion(text)
	case "type":
		e.Type = internType(text)
	case "priority":
		e.Priority = internPriority(text)
	case "timestamp":
		return e.readTime(text)
	case "source":
		e.Source = string(text)
	case "target":
		e.Target = string(text)
	}
	return nil
}

func readObject(to *Raw, name []byte, value Raw) error {
	if value[0] != '{' {
		return wrongKind(name, "an object", value)
	}
	*to = value
	return nil
}

func (e *Envelope) readSeq(value Raw) error {
	seq, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return badMember("event_seq", "must be a whole number from 0 to %d", uint64(math.MaxUint64))
	}
	e.EventSeq = seq
	return nil
}

const timestampHelp = `RFC 3339, for example "2026-01-02T15:04:05Z"`

func (e *Envelope) readTime(text []byte) error {
	if err := e.Timestamp.UnmarshalText(text); err != nil {
		return badMember("timestamp", "must be a time as in %s", timestampHelp)
	}
	e.Timestamp = e.Timestamp.UTC()
	return nil
}

// internVersion avoids an allocation for the common versions.
func internVersion(text []byte) string {
	switch string(text) {
	case "1.1":
		return "1.1"
	case "1.0":
		return "1.0"
	case "1":
		return "1"
	}
	return string(text)
}

func internType(text []byte) Type {
	if s := catalogIndex[Type(text)]; s != nil {
		return s.Type
	}
	return Type(text)
}

func internPriority(text []byte) Priority {
	switch string(text) {
	case string(PriorityLow):
		return PriorityLow
	case string(PriorityNormal):
		return PriorityNormal
	case string(PriorityHigh):
		return PriorityHigh
	case string(PriorityCritical):
		return PriorityCritical
	}
	return Priority(text)
}

func wrongKind(name []byte, want string, value Raw) error {
	return badMember(string(name), "must be %s, not %s", want, kindName(value.Kind()))
}

// check applies the rules of §2.1 that JSON types do not express.
func (e *Envelope) check() error {
	err := e.checkMembers()
	if err == nil && e.Timestamp.IsZero() {
		err = badMember("timestamp", "is required: %s", timestampHelp)
	}
	return err
}

// checkMembers is check without the timestamp.
func (e *Envelope) checkMembers() error {
	switch {
	case e.ARCP == "":
		return badMember("arcp", "is required: the protocol version, for example %q", Version)
	case e.ID == "":
		return badMember("id", "is required")
	case e.Type == "":
		return badMember("type", "is required")
	case len(e.Type) > MaxIDLen:
		return badMember("type", "is longer than %d bytes", MaxIDLen)
	case e.Payload == nil:
		return badMember("payload", "is required: an object, {} when it has no members")
	case !e.Priority.Valid():
		return &EncodingError{ReasonPriority, `envelope member "priority" must be low, normal, high or critical`, ""}
	}
	return e.checkIDs()
}

// checkIDs checks identifiers. Traces and keys belong to the sender and may be any text without
// control characters.
func (e *Envelope) checkIDs() error {
	for _, id := range [...]struct{ name, value string }{
		{"id", string(e.ID)}, {"session_id", string(e.SessionID)}, {"job_id", string(e.JobID)},
		{"stream_id", string(e.StreamID)}, {"subscription_id", string(e.SubscriptionID)},
		{"correlation_id", string(e.CorrelationID)}, {"causation_id", string(e.CausationID)},
	} {
		if id.value != "" && !ValidID(id.value) {
			return badID(id.name, fmt.Sprintf("must be 1 to %d visible ASCII characters", MaxIDLen))
		}
	}
	for _, text := range [...]struct{ name, value string }{
		{"trace_id", e.TraceID}, {"span_id", e.SpanID}, {"parent_span_id", e.ParentSpanID},
		{"idempotency_key", e.IdempotencyKey},
	} {
		if strings.ContainsFunc(text.value, unicode.IsControl) {
			return badID(text.name, "must not contain control characters")
		}
	}
	return nil
}

func badID(name, text string) error {
	e := badMember(name, "%s", text)
	e.Reason = ReasonBadID
	return e
}
