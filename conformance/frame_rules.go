package conformance

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// rule is a property of every frame of the server. It is a check of the group frames.
type rule struct {
	id      string // behind frames.
	title   string
	section string
	level   Level
	unknown bool // also of types that are not in the catalog
	inside  bool // also of the event inside a subscribe.event
	draft   bool // of the draft dialect, where package strict and draftConn apply the rules
	check   func(v *validator, f *received) error
}

// rules are the rules of frames in the RFC's dialect.
var rules = []rule{
	{id: "envelope", title: "a frame is a JSON object with arcp, id, type, timestamp and the object payload", section: "RFC §6.1.1", level: Must, unknown: true, inside: true, check: alone(envelopeRule)},
	{id: "timestamp", title: "timestamp is RFC 3339", section: "RFC §6.1.1", level: Must, unknown: true, inside: true, check: alone(timestampRule)},
	{id: "type", title: "a type is one of the protocol, or has a namespace", section: "RFC §6.2", level: Must, unknown: true, inside: true, check: alone(knownTypeRule)},
	{id: "ids-unique", title: "two messages do not have the same id", section: "RFC §6.1.1", level: Must, unknown: true, check: (*validator).uniqueID},
	{id: "before-session", title: "nothing but the handshake is sent before a session is accepted", section: "RFC §8.1", level: Must, unknown: true, check: (*validator).handshake},
	{id: "session", title: "a frame has the session_id of its session", section: "RFC §6.1.1", level: Must, unknown: true, check: (*validator).sessionID},
	{id: "scope", title: "an event has the job_id, stream_id or subscription_id of its type", section: "RFC §6.1.1", level: Must, check: (*validator).scope},
	{id: "answers", title: "an answer has the correlation_id of the command", section: "RFC §6.3", level: Must, check: (*validator).answers},
	{id: "errors", title: "an error has a code and a message", section: "RFC §18.1", level: Must, inside: true, check: alone(errorsRule)},
	{id: "codes", title: "a code is one of the protocol, or has a namespace", section: "RFC §18.2", level: Must, inside: true, check: alone(codesRule)},
	{id: "stated-members", title: "a payload has the members that its section states", section: "RFC §11-§15", level: Must, inside: true, check: alone(statedRule)},
	{id: "one-end", title: "a job ends once", section: "RFC §10.2", level: Must, check: (*validator).jobEnds},
	{id: "replay", title: "an event that is sent again does not change", section: "RFC §19", level: Must, unknown: true, check: (*validator).unchanged},
	{id: "numbers", title: "the event_seq of a session has no gaps", section: "ARCP 1.1 §8.3", level: Must, check: (*validator).sequence},
	{id: "priority", title: "priority is low, normal, high or critical", section: "RFC §6.1.1", level: Must, unknown: true, inside: true, check: alone(priorityRule)},
	{id: "states", title: "the state of a job is one of the protocol", section: "RFC §10.2", level: Must, inside: true, check: alone(statesRule)},
	{id: "log-levels", title: "the level of a log is one of the protocol", section: "RFC §17.2", level: Must, inside: true, check: alone(logLevelsRule)},

	{id: "stream-kinds", title: "the kind of a stream is one of the protocol", section: "RFC §11.1", level: House, inside: true, check: alone(streamKindsRule)},
	{id: "sent-once", title: "a message is sent once on each connection", section: "SPEC §5.3", level: House, unknown: true, check: (*validator).once},
	{id: "direction", title: "a type comes from a side that sends it", section: "SPEC §3", level: House, inside: true, check: alone(directionRule)},
	{id: "decodes", title: "a frame decodes strictly", section: "SPEC §2.1", level: House, unknown: true, inside: true, check: alone(func(f *received) error { return f.strict })},
	{id: "negotiated", title: "a type of a capability is sent after the capability was negotiated", section: "SPEC §3.10", level: House, check: (*validator).negotiatedType},
	{id: "version", title: "arcp is that of session.open", section: "SPEC §2.1", level: House, unknown: true, inside: true, check: (*validator).spokenVersion},
	{id: "utc", title: "timestamp is UTC with T and Z", section: "SPEC §2.1", level: House, unknown: true, inside: true, check: alone(utcRule)},
	{id: "secrets", title: "a frame has no token of a client", section: "SPEC §5.12", level: House, unknown: true, check: (*validator).noSecret},
	{id: "prefixes", title: "an identifier has its prefix", section: "SPEC §2.2", level: House, unknown: true, check: (*validator).identifiers},
	{id: "payloads", title: "the members of a payload have the types of the catalog", section: "SPEC §3", level: House, inside: true, check: (*validator).payloadDecodes},
	{id: "required-members", title: "a payload has every required member of the catalog", section: "SPEC §3", level: House, inside: true, check: alone(requiredMembersRule)},
	{id: "nulls", title: "no member is null", section: "SPEC §2.1", level: House, unknown: true, inside: true, check: (*validator).noNull},
	{id: "values", title: "enumerated members have values of the catalog", section: "SPEC §3", level: House, inside: true, check: alone(closedValuesRule)},
	{id: "correlated", title: "each type has the correlation_id that the catalog demands", section: "SPEC §3", level: House, check: (*validator).correlated},
	{id: "same-ids", title: "an id in envelope and payload is the same", section: "SPEC §2.2", level: House, check: (*validator).sameIDs},
	{id: "correlation", title: "correlation_id names a message of the client", section: "SPEC §2.1", level: House, unknown: true, check: (*validator).correlation},
	{id: "numbered", title: "events of jobs have an event_seq, and other frames have none", section: "SPEC §5.3", level: House, check: (*validator).numbering},
	{id: "first-number", title: "the first event of a session is 1", section: "SPEC §5.3", level: House, check: func(v *validator, _ *received) error { return v.first }},
	{id: "order", title: "the events of a job begin with job.accepted, and none follows its end", section: "SPEC §5.3", level: House, check: func(v *validator, _ *received) error { return v.order }},
	{id: "trace", title: "the events of a job have one trace_id", section: "SPEC §5.11", level: House, check: (*validator).trace},
	{id: "forwarded", title: "the event of a subscribe.event is an event of a job or of the host", section: "SPEC §5.9", level: House, check: (*validator).forwarded},
}

// alone makes a rule of a frame a rule of a validator.
func alone(check func(f *received) error) func(*validator, *received) error {
	return func(_ *validator, f *received) error { return check(f) }
}

// framesGroup is the group of the checks of rules.
const framesGroup = "frames"

// frameChecks returns the checks of rules. Their results are findings of all checks together.
func frameChecks() []Check {
	var list []Check
	for i := range rules {
		r := &rules[i]
		list = append(list, Check{ID: r.checkID(), Title: r.title, Section: r.section, Level: r.level, Dialect: arcp.DialectRFC, frames: true})
	}
	return list
}

func envelopeRule(f *received) error {
	for _, name := range []string{"arcp", "id", "type", "timestamp"} {
		var s string
		if raw := f.members[name]; raw == nil || arcp.Unmarshal(raw, &s) != nil || s == "" {
			return fmt.Errorf("%s is %s, want a string", name, orNone(raw))
		}
	}
	if raw := f.members["payload"]; raw.Kind() != '{' {
		return fmt.Errorf("payload is %s, want an object", orNone(raw))
	}
	return nil
}

// stamp returns the member timestamp; "" if it is no string.
func (f *received) stamp() (s string) {
	_ = arcp.Unmarshal(f.members["timestamp"], &s) // the rule envelope is about other values
	return s
}

func timestampRule(f *received) error {
	s := f.stamp()
	if _, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s)); s != "" && err != nil {
		return fmt.Errorf("timestamp %q is not RFC 3339", s)
	}
	return nil
}

var zulu = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$`)

func utcRule(f *received) error {
	if s := f.stamp(); !zulu.MatchString(s) {
		return fmt.Errorf("timestamp %q is not RFC 3339 in UTC with T and Z", s)
	}
	return nil
}

func (v *validator) spokenVersion(f *received) error {
	if v.version != "" && f.ARCP != v.version {
		return fmt.Errorf("arcp is %q, want the version %q of session.open", f.ARCP, v.version)
	}
	return nil
}

func knownTypeRule(f *received) error {
	if arcp.Lookup(f.Type) == nil && !namespaced(string(f.Type)) {
		return fmt.Errorf("type %q is not of the protocol and has no namespace", f.Type)
	}
	return nil
}

// namespaced reports whether a type has the form arcpx.VENDOR.NAME.vN or a reverse domain name.
func namespaced(name string) bool {
	first, _, dotted := strings.Cut(name, ".")
	return dotted && !slices.ContainsFunc(arcp.Catalog, func(s arcp.Spec) bool {
		core, _, _ := strings.Cut(string(s.Type), ".")
		return core == first
	}) && strings.Count(name, ".") >= 2
}

func directionRule(f *received) error {
	if arcp.Lookup(f.Type).From&arcp.FromRuntime == 0 {
		return fmt.Errorf("only clients send type %q", f.Type)
	}
	return nil
}

// handshakeTypes are what a server sends before a session is accepted.
var handshakeTypes = []arcp.Type{arcp.SessionRejected, arcp.SessionUnauthenticated, arcp.SessionChallenge, arcp.SessionAccepted, arcp.SessionResumed}

// handshake checks that other types come after the session was accepted.
func (v *validator) handshake(f *received) error {
	if v.session == "" && !slices.Contains(handshakeTypes, f.Type) {
		return fmt.Errorf("%s is sent before the session is accepted", f.Type)
	}
	return nil
}

// sessionID checks that each frame after the handshake names the session of the connection.
func (v *validator) sessionID(f *received) error {
	switch {
	case v.session == "" || slices.Contains(handshakeTypes[:3], f.Type):
		return nil
	case f.SessionID == "" && slices.Contains(handshakeTypes, f.Type):
		return nil // the session exists after this frame
	case f.SessionID != v.session:
		return fmt.Errorf("session_id is %q, want %q", f.SessionID, v.session)
	case v.rec.session != "" && v.session != v.rec.session:
		return fmt.Errorf("session_id is %q, want the resumed session %q", v.session, v.rec.session)
	}
	return nil
}

// needed returns the envelope members that the type and the state of the job demand and the frame
// lacks.
func (v *validator) needed(f *received) (missing []string) {
	have := map[string]bool{"session_id": true, "job_id": f.JobID != "", "stream_id": f.StreamID != "",
		"subscription_id": f.SubscriptionID != "", "correlation_id": f.CorrelationID != ""}
	if f.Type == arcp.JobFailed && f.EventSeq == 0 {
		have["job_id"] = true // refuses a submit: no job exists
	}
	if f.JobID != "" && f.EventSeq != 0 && !v.accepted[f.JobID] && f.Type != arcp.HumanInputCancelled {
		have["correlation_id"] = true // an event of a job of another session
	}
	for _, name := range arcp.Lookup(f.Type).Scope.Members() {
		if !have[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

// scope checks job_id of job events, stream_id of stream events and subscription_id of
// subscribe.event.
func (v *validator) scope(f *received) error {
	missing := v.needed(f)
	if f.Type == arcp.JobFailed && !v.begun(f.CorrelationID) {
		return nil // refuses a submit: no job exists
	}
	for name, applies := range map[string]bool{
		"job_id":          strings.HasPrefix(string(f.Type), "job.") && arcp.Lookup(f.Type).Delivery == arcp.Sequenced || f.Type == arcp.JobHeartbeat,
		"stream_id":       strings.HasPrefix(string(f.Type), "stream."),
		"subscription_id": f.Type == arcp.SubscribeEvent,
	} {
		if applies && slices.Contains(missing, name) {
			return fmt.Errorf("%s has no %s", f.Type, name)
		}
	}
	return nil
}

// begun reports whether an event of a job was received in answer to a submit.
func (v *validator) begun(submit arcp.MessageID) bool {
	for stream, view := range v.jobs {
		if stream.corr == submit && view.begun {
			return true
		}
	}
	return false
}

// answerTypes are types that answer a command.
var answerTypes = []arcp.Type{arcp.Ack, arcp.Nack, arcp.CancelAccepted, arcp.CancelRefused, arcp.SubscribeAccepted}

func (v *validator) answers(f *received) error {
	if slices.Contains(answerTypes, f.Type) && f.CorrelationID == "" {
		return fmt.Errorf("%s has no correlation_id", f.Type)
	}
	return nil
}

func (v *validator) correlated(f *received) error {
	if missing := v.needed(f); len(missing) > 0 {
		return fmt.Errorf("%s needs %s", f.Type, strings.Join(missing, ", "))
	}
	return nil
}

// errorTypes are types whose payload is an error.
var errorTypes = []arcp.Type{arcp.Nack, arcp.JobFailed, arcp.ToolError, arcp.SessionRejected, arcp.StreamError}

func errorsRule(f *received) error {
	if !slices.Contains(errorTypes, f.Type) {
		return nil
	}
	for _, name := range []string{"code", "message"} {
		if f.text(name) == "" {
			return fmt.Errorf("%s has no %s", f.Type, name)
		}
	}
	return nil
}

// text returns a member of the payload; "" if it is no string.
func (f *received) text(name string) (s string) {
	var p map[string]arcp.Raw
	if arcp.Unmarshal(f.Payload, &p) == nil && p[name] != nil {
		_ = arcp.Unmarshal(p[name], &s) // any other value is no text
	}
	return s
}

func codesRule(f *received) error {
	code := f.text("code")
	if code != "" && !arcp.Code(code).Known() && code != "RATE_LIMITED" && !strings.ContainsAny(code, ".:/") {
		return fmt.Errorf("code %q is not a code of RFC 0001 §18.2 and has no namespace", code)
	}
	return nil
}

// statedMembers are the members that a section of the RFC demands, by type.
var statedMembers = map[arcp.Type][]string{
	arcp.StreamOpen:         {"kind"},
	arcp.HumanInputRequest:  {"expires_at"},
	arcp.HumanChoiceRequest: {"expires_at"},
	arcp.SubscribeEvent:     {"event"},
}

func statedRule(f *received) error {
	for _, name := range statedMembers[f.Type] {
		if !hasMember(f.Payload, name) {
			return fmt.Errorf("%s has no payload.%s", f.Type, name)
		}
	}
	return nil
}

func priorityRule(f *received) error {
	raw := f.members["priority"]
	if raw != nil && !slices.Contains([]string{`"low"`, `"normal"`, `"high"`, `"critical"`, `null`}, string(raw)) {
		return fmt.Errorf("priority is %s", raw)
	}
	return nil
}

// oneOf checks an enumerated member of the payload.
func (f *received) oneOf(member string, values []string) error {
	if s := f.text(member); s != "" && !slices.Contains(values, s) {
		return fmt.Errorf("%s is %q, want one of %s", member, s, strings.Join(values, ", "))
	}
	return nil
}

func statesRule(f *received) error {
	switch f.Type {
	case arcp.JobHeartbeat:
		return f.oneOf("state", jobStates)
	case arcp.JobSubscribed:
		return f.oneOf("current_status", listedStates)
	case arcp.SessionJobs:
		return jobStatuses(f)
	}
	return nil
}

func jobStatuses(f *received) error {
	var p struct {
		Jobs []struct {
			JobID  string `json:"job_id"`
			Status string `json:"status"`
		} `json:"jobs"`
	}
	if arcp.Unmarshal(f.Payload, &p) != nil {
		return nil // the rule payloads is about it
	}
	for _, j := range p.Jobs {
		if !slices.Contains(listedStates, j.Status) {
			return fmt.Errorf("job %q has status %q", j.JobID, j.Status)
		}
	}
	return nil
}

func logLevelsRule(f *received) error {
	if f.Type != arcp.Log {
		return nil
	}
	return f.oneOf("level", arcp.LogLevels)
}

func streamKindsRule(f *received) error {
	if f.Type != arcp.StreamOpen {
		return nil
	}
	return f.oneOf("kind", []string{"text", "binary", "event", "log", "metric", "thought"})
}

// requiredMembersRule checks that the payload has each member that its Go struct always writes.
func requiredMembersRule(f *received) error {
	typ := reflect.TypeOf(arcp.Lookup(f.Type).NewPayload()).Elem()
	missing := missingMembers(typ, f.Payload, "payload")
	if f.Type == arcp.StreamChunk && !hasMember(f.Payload, "data") {
		missing = append(missing, "payload.data")
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks %s", f.Type, strings.Join(missing, ", "))
	}
	return nil
}

// closedValuesRule checks values that the RFC does not enumerate.
func closedValuesRule(f *received) error {
	if code := f.text("code"); code != "" && (!arcp.Code(code).Known() || arcp.Code(code).Canonical() != arcp.Code(code) || code == string(arcp.CodeOK)) {
		return fmt.Errorf("code %q is not a code of RFC 0001 §18.2; send a specific code in details.code", code)
	}
	switch f.Type {
	case arcp.JobResultChunk:
		return f.oneOf("encoding", []string{"utf8", "base64"})
	case arcp.JobProgress:
		if p, err := arcp.DecodePayload[arcp.JobProgressPayload](&f.Envelope); err != nil || p.Current < 0 {
			return fmt.Errorf("current must be a non-negative number")
		}
	}
	return nil
}

// numbering checks that job events have an event_seq and other frames have none. Some types can be
// both.
func (v *validator) numbering(f *received) error {
	if seq, ok := f.members["event_seq"]; ok && (len(seq) == 0 || strings.Trim(string(seq), "0123456789") != "" || seq[0] == '0') {
		return fmt.Errorf("event_seq %s is not a positive integer", seq)
	}
	want := arcp.Lookup(f.Type).Delivery == arcp.Sequenced
	switch f.Type {
	case arcp.JobFailed:
		want = v.accepted[f.JobID] || v.followed(f)
	case arcp.ArtifactRef, arcp.EventEmit:
		want = f.JobID != ""
	case arcp.ToolError:
		want = f.EventSeq != 0 // may also refuse a direct submit
	case arcp.StreamError:
		want = !v.rec.streams[f.StreamID]
	case arcp.StreamOpen:
		want = f.EventSeq != 0 || f.CorrelationID == "" // may also answer resume
	}
	if v.rec.calls[f.CorrelationID] { // an answer to a call of a worker is not numbered
		want = false
	}
	switch {
	case want && f.EventSeq == 0:
		return fmt.Errorf("%s is a job event and needs an event_seq", f.Type)
	case !want && f.EventSeq != 0:
		return fmt.Errorf("%s must not have an event_seq", f.Type)
	}
	return nil
}

// sequence checks that event_seq has no gaps. The first number of a session is another rule.
func (v *validator) sequence(f *received) error {
	v.first = nil
	if f.EventSeq == 0 {
		return nil
	}
	if v.nextSeq == 0 {
		v.setPosition(f.EventSeq - 1)
	}
	want := v.nextSeq
	v.nextSeq = f.EventSeq + 1
	switch {
	case f.EventSeq == want:
	case want == 1:
		v.first = fmt.Errorf("event_seq is %d, want 1", f.EventSeq)
	default:
		return fmt.Errorf("event_seq is %d, want %d", f.EventSeq, want)
	}
	return nil
}

// jobEnds checks that a job has one final event. It stores in v.order what is wrong with the order
// of other events: job.accepted is the first, each has the correlation_id of the submit, and none
// follows the end.
func (v *validator) jobEnds(f *received) error {
	v.order = nil
	if f.JobID == "" || f.EventSeq == 0 {
		if f.Type == arcp.JobHeartbeat && v.ended[f.JobID] {
			v.order = fmt.Errorf("job.heartbeat follows the end of job %s", f.JobID)
		}
		return nil
	}
	if slices.Contains(answering, f.Type) {
		if v.ended[f.JobID] {
			v.order = fmt.Errorf("%s follows the end of job %s", f.Type, f.JobID)
		}
		return nil
	}
	if f.Type == arcp.JobAccepted && v.rec.own[string(f.CorrelationID)] {
		v.accepted[f.JobID] = true
	}
	view := v.view(f)
	if f.Type == arcp.JobAccepted && v.rec.resent[f.CorrelationID] {
		*view = jobView{}
	}
	return v.advance(view, f)
}

// advance moves a job to the state after an event.
func (v *validator) advance(view *jobView, f *received) error {
	before := *view
	view.begun = true
	if f.Type.Terminal() && !before.ended {
		view.ended, view.end = true, f.ID
	}
	v.ended[f.JobID] = v.ended[f.JobID] || view.ended
	switch {
	case before.ended && f.Type.Terminal() && f.ID != before.end: // the same message may be delivered twice (RFC §6.4)
		return fmt.Errorf("%s follows the end of job %s", f.Type, f.JobID)
	case before.ended:
		v.order = fmt.Errorf("%s follows the end of job %s", f.Type, f.JobID)
	case f.Type == arcp.JobAccepted && before.begun:
		v.order = fmt.Errorf("job %s is accepted twice", f.JobID)
	case v.accepted[f.JobID] && !before.begun && f.Type != arcp.JobAccepted:
		v.order = fmt.Errorf("%s of job %s is not correlated to its submit", f.Type, f.JobID)
	default:
		v.order = view.countChunk(f)
	}
	return nil
}

// trace checks that all events of a job have the same trace_id.
func (v *validator) trace(f *received) error {
	if f.JobID == "" || f.EventSeq == 0 {
		return nil
	}
	known, ok := v.traces[f.JobID]
	if !ok {
		known = f.TraceID
		v.traces[f.JobID] = known
	}
	if f.TraceID == "" || f.TraceID != known {
		return fmt.Errorf("trace_id is %q, want %q as in earlier events of the job", f.TraceID, known)
	}
	return nil
}
