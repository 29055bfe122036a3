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

// validator judges every frame one connection receives as the strictest
// client would that decodes into closed types and stops at the first thing it
// does not know. It is pure: it is told what the client sent.
type validator struct {
	version  string               // arcp of the client's session.open; empty before
	offered  arcp.Capabilities    // of the client's session.open
	secrets  []string             // must never come back
	lenient  bool                 // only what cannot be decoded counts
	sentID   func(id string) bool // was the id used on any connection of the check?
	rec      *record              // of the session, over all its connections
	session  arcp.SessionID       // empty until accepted
	caps     arcp.Capabilities    // negotiated
	nextSeq  uint64               // 0: not known, after attaching again
	ids      map[[2]string]bool   // id of every frame, with the correlation_id of events
	jobs     map[jobStream]*jobView
	accepted map[arcp.JobID]bool   // jobs this connection submitted
	ended    map[arcp.JobID]bool   // jobs whose end was seen
	traces   map[arcp.JobID]string // trace_id of each job
}

// jobStream tells apart a job's events and their repetition to a client that
// submitted it again under the same key.
type jobStream struct {
	job  arcp.JobID
	corr arcp.MessageID
}

// jobView is what one connection has seen of a job.
type jobView struct {
	begun, ended bool
	chunks       uint64
}

func newValidator(secrets []string, sentID func(string) bool) *validator {
	return &validator{secrets: secrets, sentID: sentID, rec: newRecord(), nextSeq: 1,
		ids: map[[2]string]bool{}, jobs: map[jobStream]*jobView{}, accepted: map[arcp.JobID]bool{},
		ended: map[arcp.JobID]bool{}, traces: map[arcp.JobID]string{}}
}

// rule is one property of a frame. The first broken one is reported.
type rule struct {
	name  string
	check func(v *validator, f *Frame) error
}

var rules = []rule{
	{"known type", (*validator).knownType},
	{"negotiated type", (*validator).negotiatedType},
	{"envelope", (*validator).envelope},
	{"no secret comes back", (*validator).noSecret},
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
	{"what a subscription brings", (*validator).forwarded},
}

// essential are the rules without which a frame cannot even be read.
const essential = 1

// frame judges one frame. The error names the rule it breaks.
func (v *validator) frame(text []byte) (*Frame, error) {
	f, err := parseFrame(text)
	if err != nil {
		return f, err
	}
	list := rules
	if v.lenient {
		list = rules[:essential]
	}
	v.adopt(f)
	for _, r := range list {
		if err := r.check(v, f); err != nil {
			return f, fmt.Errorf("rule %q: %w", r.name, err)
		}
	}
	return f, nil
}

func parseFrame(text []byte) (*Frame, error) {
	env, err := arcp.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("not an envelope: %w", err)
	}
	f := &Frame{Envelope: env, Text: text}
	return f, arcp.Unmarshal(text, &f.members)
}

// adopt learns from the answer to the handshake which session this is.
func (v *validator) adopt(f *Frame) {
	switch f.Type {
	case arcp.SessionAccepted:
		if p, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&f.Envelope); err == nil {
			v.session, v.caps, v.rec.token = p.SessionID, p.Capabilities, p.ResumeToken
			v.rec.begin(p.SessionID, v.offered, p.Capabilities)
		}
	case arcp.SessionResumed:
		if p, err := arcp.DecodePayload[arcp.SessionResumedPayload](&f.Envelope); err == nil {
			v.session, v.rec.token = p.SessionID, p.ResumeToken
			v.rec.begin(p.SessionID, v.offered, v.caps)
			v.at(p.ReplayedFrom)
		}
	}
}

// attach makes the validator one of a session that had connections before. The
// position is not known until at is called or an event tells it.
func (v *validator) attach(rec *record) {
	v.rec, v.offered, v.caps, v.nextSeq = rec, rec.offered, rec.caps, 0
}

// at sets the position: what is known of the jobs is what the session had been
// told by then.
func (v *validator) at(seq uint64) {
	v.nextSeq = seq + 1
	v.jobs, v.accepted = map[jobStream]*jobView{}, map[arcp.JobID]bool{}
	v.ended, v.traces = map[arcp.JobID]bool{}, map[arcp.JobID]string{}
	for _, f := range v.rec.upTo(seq) {
		_, _ = v.jobOrder(f), v.trace(f) // judged when it came
	}
}

// knownType: only types of the catalogue that a server may send.
func (v *validator) knownType(f *Frame) error {
	spec := arcp.Lookup(f.Type)
	switch {
	case spec == nil:
		return fmt.Errorf("type %q is not in the catalogue", f.Type)
	case spec.From&arcp.FromRuntime == 0:
		return fmt.Errorf("type %q is sent by clients only", f.Type)
	}
	return nil
}

// workerOnly are types a server sends to sessions that run tools for it.
var workerOnly = []arcp.Type{arcp.ToolInvoke, arcp.Cancel, arcp.Interrupt, arcp.HumanInputResponse, arcp.HumanChoiceResponse,
	arcp.PermissionGrant, arcp.PermissionDeny}

// negotiatedType: types a strict client may not know are sent only to those
// that asked for the capability behind them.
func (v *validator) negotiatedType(f *Frame) error {
	spec := arcp.Lookup(f.Type)
	if need := spec.Need; need != "" && !(v.offered.Has(need) && v.caps.Has(need)) {
		return fmt.Errorf("%s needs capability %q, which was not negotiated", f.Type, need)
	}
	denied := f.Type == arcp.PermissionDeny && v.rec.own[string(f.CorrelationID)] // the session asked for something itself
	if slices.Contains(workerOnly, f.Type) && !denied && !v.offered.Has(arcp.FeatureExecutes) {
		return fmt.Errorf("%s goes only to sessions that execute tools", f.Type)
	}
	return nil
}

var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$`)

// envelope: the protocol version is the client's own, the time is RFC 3339 in
// UTC, and event_seq is a plain integer.
func (v *validator) envelope(f *Frame) error {
	if v.version != "" && f.ARCP != v.version {
		return fmt.Errorf("arcp is %q, the client opened with %q", f.ARCP, v.version)
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

func (v *validator) noSecret(f *Frame) error {
	for _, s := range v.secrets {
		if s != "" && strings.Contains(string(f.Text), s) {
			return fmt.Errorf("a token sent by the client comes back in %s", f.Type)
		}
	}
	return nil
}

// identifiers: every typed identifier has its prefix; a correlation may also
// be an id of this client's own making, but not of another's.
func (v *validator) identifiers(f *Frame) error {
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

func (v *validator) payloadDecodes(f *Frame) error {
	return arcp.Unmarshal(f.Payload, arcp.Lookup(f.Type).NewPayload())
}

// requiredMembers: what a strict decoder insists on. The payload structs tell:
// a member that is always written is always required.
func (v *validator) requiredMembers(f *Frame) error {
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

// noNull: an optional member without a value is left out. Only a list's
// next_cursor says its end with null, and values that belong to tools and
// their callers are theirs.
func (v *validator) noNull(f *Frame) error {
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

// closedValues: codes and enumerated members have one of their documented
// values.
func (v *validator) closedValues(f *Frame) error {
	var p map[string]arcp.Raw
	if err := arcp.Unmarshal(f.Payload, &p); err != nil {
		return err
	}
	text := func(name string) (s string, ok bool) { return s, arcp.Unmarshal(p[name], &s) == nil && p[name] != nil }
	if code, ok := text("code"); ok && (!arcp.Code(code).Known() || arcp.Code(code).Canonical() != arcp.Code(code) || code == string(arcp.CodeOK)) {
		return fmt.Errorf("code %q is not a code of RFC 0001 §18.2; a specific one goes into details.code", code)
	}
	for _, e := range enums[f.Type] {
		if s, ok := text(e.member); ok && !slices.Contains(e.values, s) {
			return fmt.Errorf("%s %q is none of %s", e.member, s, strings.Join(e.values, ", "))
		}
	}
	if f.Type == arcp.SessionJobs {
		return jobStatuses(f)
	}
	if f.Type == arcp.JobProgress {
		if p, err := arcp.DecodePayload[arcp.JobProgressPayload](&f.Envelope); err != nil || p.Current < 0 {
			return fmt.Errorf("current must be a number that is not negative")
		}
	}
	return nil
}

func jobStatuses(f *Frame) error {
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

// scope: the envelope members the catalogue asks of the type. Members that
// depend on the state of the session or job are judged by other rules.
func (v *validator) scope(f *Frame) error {
	have := map[string]bool{"session_id": true, "job_id": f.JobID != "", "stream_id": f.StreamID != "",
		"subscription_id": f.SubscriptionID != "", "correlation_id": f.CorrelationID != ""}
	if f.Type == arcp.JobFailed && f.EventSeq == 0 {
		have["job_id"] = true // refuses a submit: there is no job
	}
	if f.JobID != "" && f.EventSeq != 0 && !v.accepted[f.JobID] && f.Type != arcp.HumanInputCancelled {
		have["correlation_id"] = true // the event of a job another session submitted
	}
	for _, name := range arcp.Lookup(f.Type).Scope.Members() {
		if !have[name] {
			return fmt.Errorf("%s needs %s", f.Type, name)
		}
	}
	return v.sameIDs(f)
}

// sameIDs: an id that is in the envelope and in the payload is the same.
func (v *validator) sameIDs(f *Frame) error {
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

// sessionID: once there is a session every frame names it, and no other.
func (v *validator) sessionID(f *Frame) error {
	switch {
	case v.session == "" && (f.Type == arcp.SessionRejected || f.Type == arcp.SessionUnauthenticated || f.Type == arcp.SessionChallenge):
		return nil
	case v.session == "":
		return fmt.Errorf("%s comes before the session is accepted", f.Type)
	case f.SessionID != v.session:
		return fmt.Errorf("session_id %q, this is session %q", f.SessionID, v.session)
	case v.session != v.rec.session:
		return fmt.Errorf("this is session %q, the connection took over %q", v.session, v.rec.session)
	}
	return nil
}

// correlation: a frame is correlated to a message this client sent; the
// withdrawal of a question to the question, which came before.
func (v *validator) correlation(f *Frame) error {
	corr := f.CorrelationID
	if f.Type == arcp.ToolInvoke || f.Type == arcp.Interrupt {
		v.rec.assigned[f.ID] = true
	}
	switch {
	case f.Type == arcp.HumanInputCancelled && !v.rec.asked[corr]:
		return fmt.Errorf("correlation_id %q is of no question that was asked here", corr)
	case f.Type != arcp.HumanInputCancelled && corr != "" && !v.sentID(string(corr)) && !v.rec.assigned[corr]:
		return fmt.Errorf("correlation_id %q is of no message that was sent", corr)
	}
	return nil
}

// once: a message comes once to one connection; only a repeated submit is
// answered with the same events again, correlated to the repetition.
func (v *validator) once(f *Frame) error {
	key := [2]string{string(f.ID), ""}
	if f.EventSeq > 0 {
		key[1] = string(f.CorrelationID)
	}
	if v.rec.resent[f.CorrelationID] {
		key[1] += " " + strconv.FormatUint(f.EventSeq, 10)
	}
	if v.ids[key] {
		return fmt.Errorf("id %q came before", f.ID)
	}
	v.ids[key] = true
	return nil
}

// numbering: events of jobs have an event_seq, everything else has none. Some
// types are both.
func (v *validator) numbering(f *Frame) error {
	want := arcp.Lookup(f.Type).Delivery == arcp.Sequenced
	switch f.Type {
	case arcp.JobFailed:
		want = v.accepted[f.JobID] || v.followed(f)
	case arcp.ArtifactRef, arcp.EventEmit:
		want = f.JobID != ""
	case arcp.ToolError:
		want = f.EventSeq != 0 // also refuses a direct submit
	}
	if v.rec.calls[f.CorrelationID] { // a worker's, for its job
		want = false
	}
	switch {
	case want && f.EventSeq == 0:
		return fmt.Errorf("%s is an event and needs an event_seq", f.Type)
	case !want && f.EventSeq != 0:
		return fmt.Errorf("%s must not have an event_seq", f.Type)
	}
	return nil
}

// followed reports a job another session submitted: its events are numbered
// here although its acceptance was not seen.
func (v *validator) followed(f *Frame) bool { return f.JobID != "" && f.EventSeq != 0 }

func (v *validator) sequence(f *Frame) error {
	if f.EventSeq == 0 {
		return nil
	}
	if v.nextSeq == 0 {
		v.at(f.EventSeq - 1)
	}
	if f.EventSeq != v.nextSeq {
		return fmt.Errorf("event_seq is %d, want %d", f.EventSeq, v.nextSeq)
	}
	v.nextSeq = f.EventSeq + 1
	return nil
}

// jobOrder: a job's events begin with job.accepted, carry its correlation and
// end with exactly one terminal event.
func (v *validator) jobOrder(f *Frame) error {
	if f.Type == arcp.JobHeartbeat && v.ended[f.JobID] {
		return fmt.Errorf("a heartbeat comes after the end of job %s", f.JobID)
	}
	if f.JobID == "" || f.EventSeq == 0 {
		return nil
	}
	if slices.Contains(answering, f.Type) {
		if v.ended[f.JobID] {
			return fmt.Errorf("%s comes after the end of job %s", f.Type, f.JobID)
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
		return fmt.Errorf("%s comes after the end of job %s", f.Type, f.JobID)
	case f.Type == arcp.JobAccepted && view.begun:
		return fmt.Errorf("job %s is accepted twice", f.JobID)
	case v.accepted[f.JobID] && !view.begun && f.Type != arcp.JobAccepted:
		return fmt.Errorf("%s of job %s is not correlated to its submit", f.Type, f.JobID)
	}
	view.begun = true
	view.ended = f.Type.Terminal()
	v.ended[f.JobID] = v.ended[f.JobID] || view.ended
	return view.chunk(f)
}

// answering are events of jobs that may be correlated to something else than
// the submit: what they answer.
var answering = []arcp.Type{arcp.HumanInputCancelled, arcp.LeaseGranted, arcp.LeaseExtended, arcp.LeaseRevoked}

func (v *validator) view(f *Frame) *jobView {
	key := jobStream{f.JobID, f.CorrelationID}
	if v.jobs[key] == nil {
		v.jobs[key] = &jobView{}
	}
	return v.jobs[key]
}

// chunk: the parts of a result are counted from 0.
func (w *jobView) chunk(f *Frame) error {
	if f.Type != arcp.JobResultChunk {
		return nil
	}
	p, err := arcp.DecodePayload[arcp.JobResultChunkPayload](&f.Envelope)
	if err != nil {
		return err
	}
	if p.ChunkSeq != w.chunks {
		return fmt.Errorf("chunk_seq is %d, want %d", p.ChunkSeq, w.chunks)
	}
	w.chunks++
	return nil
}

// trace: every event of a job has the same trace_id.
func (v *validator) trace(f *Frame) error {
	if f.JobID == "" || f.EventSeq == 0 {
		return nil
	}
	known, ok := v.traces[f.JobID]
	if !ok {
		known = f.TraceID
		v.traces[f.JobID] = known
	}
	if f.TraceID == "" || f.TraceID != known {
		return fmt.Errorf("trace_id is %q, the job's is %q", f.TraceID, known)
	}
	return nil
}

// unchanged: what is sent again on a later connection is what was sent before.
func (v *validator) unchanged(f *Frame) error {
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

// questions are what people are asked.
var questions = []arcp.Type{arcp.PermissionRequest, arcp.HumanInputRequest, arcp.HumanChoiceRequest}

// sameEvent wants two frames to have the same members, but for some.
func sameEvent(f, before *Frame, but ...string) error {
	for _, list := range []map[string]arcp.Raw{before.members, f.members} {
		for name := range list {
			if got, old := f.members[name], before.members[name]; !slices.Contains(but, name) && string(got) != string(old) {
				return fmt.Errorf("%s of event %d is %s, it was %s", name, before.EventSeq, orNone(got), orNone(old))
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

// envelopeRules hold for an envelope inside another one too.
var envelopeRules = []rule{
	{"known type", (*validator).knownType},
	{"envelope", (*validator).envelope},
	{"payload decodes", (*validator).payloadDecodes},
	{"required members", (*validator).requiredMembers},
	{"no null", (*validator).noNull},
	{"closed values", (*validator).closedValues},
}

// forwarded: a subscription brings whole envelopes: events of jobs as their own
// sessions get them, events of the host, or a word about the subscription, and
// nothing else.
func (v *validator) forwarded(f *Frame) error {
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
			return fmt.Errorf("%s is not a word about subscription %s", in, f.SubscriptionID)
		}
	case in.isHost():
		if in.SessionID != "" || in.EventSeq != 0 || in.CorrelationID != "" {
			return fmt.Errorf("%s is of no job, but of a session", in)
		}
	case arcp.Lookup(in.Type).Delivery != arcp.Sequenced || in.EventSeq == 0 || in.JobID == "":
		return fmt.Errorf("%s is not the event of a job", in)
	case in.SessionID == "" && in.CorrelationID != "": // a job that no session has submitted, a clean-up, answers nothing
		return fmt.Errorf("%s does not say whose session it is of", in)
	}
	return nil
}

// isHost reports whether an envelope inside a subscribe.event is an event of the
// host: that is of no job. The same of a job of host.subscribe is an event of that.
func (f *Frame) isHost() bool {
	if f.Type != arcp.EventEmit || f.JobID != "" {
		return false
	}
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](&f.Envelope)
	return err == nil && p.Name == arcp.EventHost
}

// forwarded is the envelope inside a subscribe.event.
func (f *Frame) forwarded() (*Frame, error) {
	p, err := arcp.DecodePayload[arcp.SubscribeEventPayload](&f.Envelope)
	if err != nil {
		return nil, err
	}
	in, err := parseFrame(p.Event)
	if err != nil {
		return nil, fmt.Errorf("inside: %w", err)
	}
	return in, nil
}
