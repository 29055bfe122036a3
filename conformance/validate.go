package conformance

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// validator examines every frame of one connection as the strictest client does. Such a client
// decodes into closed types and refuses unknown members. The validator is pure; recordSent tells it
// the frames of the client.
type validator struct {
	version  string               // member arcp of the client's session.open; empty before
	offered  arcp.Capabilities    // capabilities in the client's session.open
	secrets  []string             // texts that the server must not send
	lenient  bool                 // applies only the essential rules
	sentID   func(id string) bool // reports whether any connection of the check used the id
	rec      *record              // state of the session over all its connections
	session  arcp.SessionID       // empty until session.accepted
	caps     arcp.Capabilities    // negotiated capabilities
	nextSeq  uint64               // expected event_seq; 0 after an attach: unknown
	ids      map[[2]string]bool   // id of each frame, with the correlation_id of events
	jobs     map[jobStream]*jobView
	accepted map[arcp.JobID]bool   // jobs submitted on this connection
	ended    map[arcp.JobID]bool   // jobs whose final event was received
	traces   map[arcp.JobID]string // trace_id of each job
}

// jobStream identifies the events of a job in answer to one submit. A repeated submit receives the
// same events again.
type jobStream struct {
	job  arcp.JobID
	corr arcp.MessageID
}

// jobView is the state of a job as received on one connection.
type jobView struct {
	begun, ended bool
	chunks       uint64
}

func newValidator(secrets []string, sentID func(string) bool) *validator {
	return &validator{secrets: secrets, sentID: sentID, rec: newRecord(), nextSeq: 1,
		ids: map[[2]string]bool{}, jobs: map[jobStream]*jobView{}, accepted: map[arcp.JobID]bool{},
		ended: map[arcp.JobID]bool{}, traces: map[arcp.JobID]string{}}
}

// rule is one property of a frame. The validator reports the first violated rule.
type rule struct {
	name  string
	check func(v *validator, f *received) error
}

var rules = []rule{
	{"known type", (*validator).knownType},
	{"negotiated type", (*validator).negotiatedType},
	{"envelope", (*validator).envelope},
	{"no secret is sent", (*validator).noSecret},
	{"identifiers", (*validator).identifiers},
	{"payload decodes", (*validator).payloadDecodes},
	{"required members", (*validator).requiredMembers},
	{"no null", (*validator).noNull},
	{"closed values", (*validator).closedValues},
	{"envelope members of the type", (*validator).scope},
	{"session_id", (*validator).sessionID},
	{"correlation", (*validator).correlation},
	{"once", (*validator).once},
	{"numbered or not", (*validator).numbering},
	{"event_seq without gaps", (*validator).sequence},
	{"order of a job's events", (*validator).jobOrder},
	{"trace of a job", (*validator).trace},
	{"an event never changes", (*validator).unchanged},
	{"content of a subscribe.event", (*validator).forwarded},
}

// essential is the number of rules that apply in lenient mode.
const essential = 1

// frame validates one frame. The error names the violated rule.
func (v *validator) frame(text []byte) (*received, error) {
	f, err := parseFrame(text)
	if err != nil {
		return f, err
	}
	list := rules
	if v.lenient {
		list = rules[:essential]
	}
	v.applyHandshake(f)
	for _, r := range list {
		if err := r.check(v, f); err != nil {
			return f, fmt.Errorf("rule %q: %w", r.name, err)
		}
	}
	return f, nil
}

func parseFrame(text []byte) (*received, error) {
	env, err := arcp.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("not an envelope: %w", err)
	}
	f := &received{Envelope: env, Text: text}
	return f, arcp.Unmarshal(text, &f.members)
}

// applyHandshake stores the session, capabilities and position from the answer to the handshake.
func (v *validator) applyHandshake(f *received) {
	switch f.Type {
	case arcp.SessionAccepted:
		if p, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&f.Envelope); err == nil {
			v.session, v.caps, v.rec.token = p.SessionID, p.Capabilities, p.ResumeToken
			v.rec.negotiated(p.SessionID, v.offered, p.Capabilities)
		}
	case arcp.SessionResumed:
		if p, err := arcp.DecodePayload[arcp.SessionResumedPayload](&f.Envelope); err == nil {
			v.session, v.rec.token = p.SessionID, p.ResumeToken
			v.rec.negotiated(p.SessionID, v.offered, v.caps)
			v.setPosition(p.ReplayedFrom)
		}
	}
}

// attach continues a session that had other connections. The position is unknown until setPosition
// or the first event.
func (v *validator) attach(rec *record) {
	v.rec, v.offered, v.caps, v.nextSeq = rec, rec.offered, rec.caps, 0
}

// setPosition sets the number of the last event. The job states are those after that event.
func (v *validator) setPosition(seq uint64) {
	v.nextSeq = seq + 1
	v.jobs, v.accepted = map[jobStream]*jobView{}, map[arcp.JobID]bool{}
	v.ended, v.traces = map[arcp.JobID]bool{}, map[arcp.JobID]string{}
	for _, f := range v.rec.upTo(seq) {
		_, _ = v.jobOrder(f), v.trace(f) // validated when received
	}
}

// knownType checks that the type is in the catalog and may be sent by a server.
func (v *validator) knownType(f *received) error {
	spec := arcp.Lookup(f.Type)
	switch {
	case spec == nil:
		return fmt.Errorf("type %q is not in the catalogue", f.Type)
	case spec.From&arcp.FromRuntime == 0:
		return fmt.Errorf("only clients send type %q", f.Type)
	}
	return nil
}

// workerOnly are types that a server sends only to sessions that run tools.
var workerOnly = []arcp.Type{arcp.ToolInvoke, arcp.Cancel, arcp.Interrupt, arcp.HumanInputResponse, arcp.HumanChoiceResponse,
	arcp.PermissionGrant, arcp.PermissionDeny}

// negotiatedType checks that a type with a capability is sent only to sessions that negotiated the
// capability.
func (v *validator) negotiatedType(f *received) error {
	spec := arcp.Lookup(f.Type)
	if need := spec.Need; need != "" && !(v.offered.Has(need) && v.caps.Has(need)) {
		return fmt.Errorf("%s needs capability %q, which was not negotiated", f.Type, need)
	}
	denied := f.Type == arcp.PermissionDeny && v.rec.own[string(f.CorrelationID)] // the answer to a request of this session
	if slices.Contains(workerOnly, f.Type) && !denied && !v.offered.Has(arcp.FeatureExecutes) {
		return fmt.Errorf("%s is sent to a session without the capability executes", f.Type)
	}
	return nil
}

var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$`)

// envelope checks that arcp is the version of the client, timestamp is RFC 3339 in UTC, and
// event_seq is a positive integer.
func (v *validator) envelope(f *received) error {
	if v.version != "" && f.ARCP != v.version {
		return fmt.Errorf("arcp is %q, want the version %q of session.open", f.ARCP, v.version)
	}
	var stamp string
	if err := arcp.Unmarshal(f.members["timestamp"], &stamp); err != nil || !rfc3339.MatchString(stamp) {
		return fmt.Errorf("timestamp %s is not RFC 3339 in UTC with T and Z", f.members["timestamp"])
	}
	if seq, ok := f.members["event_seq"]; ok && (len(seq) == 0 || strings.Trim(string(seq), "0123456789") != "" || seq[0] == '0') {
		return fmt.Errorf("event_seq %s is not a positive integer", seq)
	}
	return nil
}

func (v *validator) noSecret(f *received) error {
	for _, s := range v.secrets {
		if s != "" && strings.Contains(string(f.Text), s) {
			return fmt.Errorf("%s contains a token of the client", f.Type)
		}
	}
	return nil
}

// identifiers checks the prefix of each identifier. A correlation_id may also be any id that this
// client sent.
func (v *validator) identifiers(f *received) error {
	for _, id := range [...]struct{ name, value, prefix string }{
		{"id", string(f.ID), arcp.MessagePrefix},
		{"session_id", string(f.SessionID), arcp.SessionPrefix},
		{"job_id", string(f.JobID), arcp.JobPrefix},
		{"stream_id", string(f.StreamID), arcp.StreamPrefix},
		{"subscription_id", string(f.SubscriptionID), arcp.SubscriptionPrefix},
		{"causation_id", string(f.CausationID), arcp.MessagePrefix},
	} {
		if id.value != "" && !arcp.HasPrefix(id.value, id.prefix) {
			return fmt.Errorf("%s %q must begin with %q", id.name, id.value, id.prefix)
		}
	}
	if corr := string(f.CorrelationID); corr != "" && !arcp.HasPrefix(corr, arcp.MessagePrefix) && !v.rec.own[corr] {
		return fmt.Errorf("correlation_id %q must begin with %q", corr, arcp.MessagePrefix)
	}
	return nil
}

func (v *validator) payloadDecodes(f *received) error {
	return arcp.Unmarshal(f.Payload, arcp.Lookup(f.Type).NewPayload())
}

// requiredMembers checks that the payload has each member that its Go struct always writes.
func (v *validator) requiredMembers(f *received) error {
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

// noNull checks that no member is null. Exceptions are payload.next_cursor of session.jobs and
// members with the content of tools and callers.
func (v *validator) noNull(f *received) error {
	for name, value := range f.members {
		if name == "extensions" {
			continue
		}
		if path := findNull(value, name); path != "" && !(f.Type == arcp.SessionJobs && path == "payload.next_cursor") {
			return fmt.Errorf("%s is null", path)
		}
	}
	return nil
}

// closedValues checks that codes and enumerated members have documented values.
func (v *validator) closedValues(f *received) error {
	var p map[string]arcp.Raw
	if err := arcp.Unmarshal(f.Payload, &p); err != nil {
		return err
	}
	text := func(name string) (s string, ok bool) { return s, arcp.Unmarshal(p[name], &s) == nil && p[name] != nil }
	if code, ok := text("code"); ok && (!arcp.Code(code).Known() || arcp.Code(code).Canonical() != arcp.Code(code) || code == string(arcp.CodeOK)) {
		return fmt.Errorf("code %q is not a code of RFC 0001 §18.2; send a specific code in details.code", code)
	}
	for _, e := range enums[f.Type] {
		if s, ok := text(e.member); ok && !slices.Contains(e.values, s) {
			return fmt.Errorf("%s is %q, want one of %s", e.member, s, strings.Join(e.values, ", "))
		}
	}
	if f.Type == arcp.SessionJobs {
		return jobStatuses(f)
	}
	if f.Type == arcp.JobProgress {
		if p, err := arcp.DecodePayload[arcp.JobProgressPayload](&f.Envelope); err != nil || p.Current < 0 {
			return fmt.Errorf("current must be a non-negative number")
		}
	}
	return nil
}

func jobStatuses(f *received) error {
	p, err := arcp.DecodePayload[arcp.SessionJobsPayload](&f.Envelope)
	if err != nil {
		return err
	}
	for _, j := range p.Jobs {
		if !slices.Contains(jobStates, j.Status) || !j.JobID.Valid() {
			return fmt.Errorf("job %q has status %q", j.JobID, j.Status)
		}
	}
	return nil
}

type enum struct {
	member string
	values []string
}

var (
	jobStates = func() []string {
		var s []string
		for _, state := range arcp.JobStates {
			s = append(s, string(state))
		}
		return s
	}()
	enums = map[arcp.Type][]enum{
		arcp.JobHeartbeat:   {{"state", jobStates}},
		arcp.JobSubscribed:  {{"current_status", jobStates}},
		arcp.JobResultChunk: {{"encoding", []string{"utf8", "base64"}}},
		arcp.Log: {{"level", []string{arcp.LevelTrace, arcp.LevelDebug, arcp.LevelInfo, arcp.LevelWarn,
			arcp.LevelError, arcp.LevelCritical}}},
		arcp.StreamOpen: {{"kind", []string{"text", "binary", "event", "log", "metric", "thought"}}},
	}
)

// scope checks for the envelope members that the catalog requires. Other rules check members that
// depend on the state of the session or job.
func (v *validator) scope(f *received) error {
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
			return fmt.Errorf("%s needs %s", f.Type, name)
		}
	}
	return v.sameIDs(f)
}

// sameIDs checks that an id in both envelope and payload is the same.
func (v *validator) sameIDs(f *received) error {
	var p struct {
		SessionID      arcp.SessionID      `json:"session_id"`
		JobID          arcp.JobID          `json:"job_id"`
		SubscriptionID arcp.SubscriptionID `json:"subscription_id"`
	}
	if f.Type == arcp.AgentHandoff || arcp.Unmarshal(f.Payload, &p) != nil {
		return nil
	}
	switch {
	case p.SessionID != "" && p.SessionID != f.SessionID:
		return fmt.Errorf("payload.session_id %q, envelope %q", p.SessionID, f.SessionID)
	case p.JobID != "" && p.JobID != f.JobID:
		return fmt.Errorf("payload.job_id %q, envelope %q", p.JobID, f.JobID)
	case p.SubscriptionID != "" && p.SubscriptionID != f.SubscriptionID:
		return fmt.Errorf("payload.subscription_id %q, envelope %q", p.SubscriptionID, f.SubscriptionID)
	}
	return nil
}

// sessionID checks that each frame after the handshake names the session of the connection.
func (v *validator) sessionID(f *received) error {
	switch {
	case v.session == "" && (f.Type == arcp.SessionRejected || f.Type == arcp.SessionUnauthenticated || f.Type == arcp.SessionChallenge):
		return nil
	case v.session == "":
		return fmt.Errorf("%s is sent before the session is accepted", f.Type)
	case f.SessionID != v.session:
		return fmt.Errorf("session_id is %q, want %q", f.SessionID, v.session)
	case v.session != v.rec.session:
		return fmt.Errorf("session_id is %q, want the resumed session %q", v.session, v.rec.session)
	}
	return nil
}

// correlation checks that correlation_id names a message of this client. human.input.cancelled
// names an earlier question instead.
func (v *validator) correlation(f *received) error {
	corr := f.CorrelationID
	if f.Type == arcp.ToolInvoke || f.Type == arcp.Interrupt {
		v.rec.assigned[f.ID] = true
	}
	switch {
	case f.Type == arcp.HumanInputCancelled && !v.rec.asked[corr]:
		return fmt.Errorf("correlation_id %q names no question sent to this session", corr)
	case f.Type != arcp.HumanInputCancelled && corr != "" && !v.sentID(string(corr)) && !v.rec.assigned[corr]:
		return fmt.Errorf("correlation_id %q names no message of this client", corr)
	}
	return nil
}

// once checks that a message is sent once on each connection. A repeated submit receives the same
// events again, correlated to the repetition.
func (v *validator) once(f *received) error {
	key := [2]string{string(f.ID), ""}
	if f.EventSeq > 0 {
		key[1] = string(f.CorrelationID)
	}
	if v.rec.resent[f.CorrelationID] {
		key[1] += " " + strconv.FormatUint(f.EventSeq, 10)
	}
	if v.ids[key] {
		return fmt.Errorf("id %q was sent before", f.ID)
	}
	v.ids[key] = true
	return nil
}

// numbering checks that job events have an event_seq and other frames have none. Some types can be
// both.
func (v *validator) numbering(f *received) error {
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

// followed reports whether f is an event of a job that another session submitted.
func (v *validator) followed(f *received) bool { return f.JobID != "" && f.EventSeq != 0 }

func (v *validator) sequence(f *received) error {
	if f.EventSeq == 0 {
		return nil
	}
	if v.nextSeq == 0 {
		v.setPosition(f.EventSeq - 1)
	}
	if f.EventSeq != v.nextSeq {
		return fmt.Errorf("event_seq is %d, want %d", f.EventSeq, v.nextSeq)
	}
	v.nextSeq = f.EventSeq + 1
	return nil
}

// jobOrder checks the order of a job's events: job.accepted first, exactly one final event last,
// and the correlation_id of the submit.
func (v *validator) jobOrder(f *received) error {
	if f.Type == arcp.JobHeartbeat && v.ended[f.JobID] {
		return fmt.Errorf("job.heartbeat follows the end of job %s", f.JobID)
	}
	if f.JobID == "" || f.EventSeq == 0 {
		return nil
	}
	if slices.Contains(answering, f.Type) {
		if v.ended[f.JobID] {
			return fmt.Errorf("%s follows the end of job %s", f.Type, f.JobID)
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
	switch {
	case view.ended:
		return fmt.Errorf("%s follows the end of job %s", f.Type, f.JobID)
	case f.Type == arcp.JobAccepted && view.begun:
		return fmt.Errorf("job %s is accepted twice", f.JobID)
	case v.accepted[f.JobID] && !view.begun && f.Type != arcp.JobAccepted:
		return fmt.Errorf("%s of job %s is not correlated to its submit", f.Type, f.JobID)
	}
	view.begun = true
	view.ended = f.Type.Terminal()
	v.ended[f.JobID] = v.ended[f.JobID] || view.ended
	return view.countChunk(f)
}

// answering are types of job events whose correlation_id may name another message than the submit.
var answering = []arcp.Type{arcp.HumanInputCancelled, arcp.LeaseGranted, arcp.LeaseExtended, arcp.LeaseRevoked}

func (v *validator) view(f *received) *jobView {
	key := jobStream{f.JobID, f.CorrelationID}
	if v.jobs[key] == nil {
		v.jobs[key] = &jobView{}
	}
	return v.jobs[key]
}

// countChunk checks that the chunks of a result are numbered from 0.
func (jv *jobView) countChunk(f *received) error {
	if f.Type != arcp.JobResultChunk {
		return nil
	}
	p, err := arcp.DecodePayload[arcp.JobResultChunkPayload](&f.Envelope)
	if err != nil {
		return err
	}
	if p.ChunkSeq != jv.chunks {
		return fmt.Errorf("chunk_seq is %d, want %d", p.ChunkSeq, jv.chunks)
	}
	jv.chunks++
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

// unchanged checks that an event replayed on a later connection is unchanged.
func (v *validator) unchanged(f *received) error {
	if f.EventSeq == 0 {
		return nil
	}
	if before := v.rec.events[f.EventSeq]; before != nil {
		return sameEvent(f, before, "arcp")
	}
	v.rec.events[f.EventSeq] = f
	v.rec.asked[f.ID] = v.rec.asked[f.ID] || slices.Contains(questions, f.Type)
	return nil
}

// questions are the types that ask people.
var questions = []arcp.Type{arcp.PermissionRequest, arcp.HumanInputRequest, arcp.HumanChoiceRequest}

// sameEvent checks that two frames have the same members, except for some.
func sameEvent(f, before *received, except ...string) error {
	for _, list := range []map[string]arcp.Raw{before.members, f.members} {
		for name := range list {
			if got, old := f.members[name], before.members[name]; !slices.Contains(except, name) && string(got) != string(old) {
				return fmt.Errorf("%s of event %d is %s, want %s as first sent", name, before.EventSeq, orNone(got), orNone(old))
			}
		}
	}
	return nil
}

func orNone(raw arcp.Raw) string {
	if raw == nil {
		return "absent"
	}
	return clip.Text(string(raw), 200)
}

// envelopeRules also apply to an envelope inside a subscribe.event.
var envelopeRules = []rule{
	{"known type", (*validator).knownType},
	{"envelope", (*validator).envelope},
	{"payload decodes", (*validator).payloadDecodes},
	{"required members", (*validator).requiredMembers},
	{"no null", (*validator).noNull},
	{"closed values", (*validator).closedValues},
}

// forwarded checks the envelope inside a subscribe.event. It is an event of a job, a host event or
// an event about the subscription.
func (v *validator) forwarded(f *received) error {
	if f.Type != arcp.SubscribeEvent {
		return nil
	}
	in, err := f.forwarded()
	if err != nil {
		return err
	}
	for _, r := range envelopeRules {
		if err := r.check(v, in); err != nil {
			return fmt.Errorf("inside: rule %q: %w", r.name, err)
		}
	}
	switch {
	case in.SubscriptionID != "":
		if in.Type != arcp.EventEmit || in.SubscriptionID != f.SubscriptionID || in.EventSeq != 0 {
			return fmt.Errorf("%s is not an event about subscription %s", in, f.SubscriptionID)
		}
	case in.isHost():
		if in.SessionID != "" || in.EventSeq != 0 || in.CorrelationID != "" {
			return fmt.Errorf("%s has no job_id, want a host event without session_id, event_seq and correlation_id", in)
		}
	case arcp.Lookup(in.Type).Delivery != arcp.Sequenced || in.EventSeq == 0 || in.JobID == "":
		return fmt.Errorf("%s is not a job event", in)
	case in.SessionID == "" && in.CorrelationID != "": // a clean-up job has neither session nor submit
		return fmt.Errorf("%s has no session_id", in)
	}
	return nil
}

// isHost reports whether f is a host event. A host event has no job, unlike the same event from
// host.subscribe.
func (r *received) isHost() bool {
	if r.Type != arcp.EventEmit || r.JobID != "" {
		return false
	}
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](&r.Envelope)
	return err == nil && p.Name == arcp.EventHost
}

// forwarded returns the envelope inside a subscribe.event.
func (r *received) forwarded() (*received, error) {
	p, err := arcp.DecodePayload[arcp.SubscribeEventPayload](&r.Envelope)
	if err != nil {
		return nil, err
	}
	in, err := parseFrame(p.Event)
	if err != nil {
		return nil, fmt.Errorf("inside: %w", err)
	}
	return in, nil
}
