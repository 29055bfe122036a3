package conformance

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/internal/clip"
)

// validator examines every frame of one connection with the rules of frame_rules.go. The validator
// is pure; recordSent tells it the frames of the client.
type validator struct {
	rules    []rule
	version  string                         // member arcp of the client's session.open; empty before
	offered  arcp.Capabilities              // capabilities in the client's session.open
	secrets  []string                       // texts that the server must not send
	lenient  bool                           // applies no rule
	sentID   func(id string) bool           // reports whether any connection of the check used the id
	rec      *record                        // state of the session over all its connections
	session  arcp.SessionID                 // empty until session.accepted
	caps     arcp.Capabilities              // negotiated capabilities
	nextSeq  uint64                         // expected event_seq; 0 after an attach: unknown
	ids      map[[2]string]bool             // id of each frame, with the correlation_id of events
	messages map[arcp.MessageID]sentMessage // the first frame with each id
	jobs     map[jobStream]*jobView
	accepted map[arcp.JobID]bool   // jobs submitted on this connection
	ended    map[arcp.JobID]bool   // jobs whose final event was received
	traces   map[arcp.JobID]string // trace_id of each job
	order    error                 // what jobEnds found wrong with the order of the frame
	first    error                 // what sequence found wrong with the first number
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
	end          arcp.MessageID // of the final event
	chunks       uint64
}

func newValidator(secrets []string, sentID func(string) bool) *validator {
	return &validator{rules: rules, secrets: secrets, sentID: sentID, rec: newRecord(), nextSeq: 1,
		ids: map[[2]string]bool{}, messages: map[arcp.MessageID]sentMessage{}, jobs: map[jobStream]*jobView{}, accepted: map[arcp.JobID]bool{},
		ended: map[arcp.JobID]bool{}, traces: map[arcp.JobID]string{}}
}

// violation is a rule that a frame violates.
type violation struct {
	rule *rule
	text string // what the frame has instead
}

// frame applies all rules to a frame. The frame is nil if it has no type.
func (v *validator) frame(text []byte) (f *received, broken []violation) {
	f, err := parseFrame(text)
	if err != nil {
		return nil, []violation{{&v.rules[0], err.Error()}}
	}
	v.applyHandshake(f)
	if v.lenient {
		return f, nil
	}
	f.on = v
	before := v.rec.events[f.EventSeq]
	f.repeated = f.EventSeq != 0 && before != nil && before.on != v
	known := arcp.Lookup(f.Type) != nil
	for i := range v.rules {
		r := &v.rules[i]
		if !known && !r.unknown {
			continue
		}
		if err := r.check(v, f); err != nil {
			broken = append(broken, violation{r, err.Error()})
		}
	}
	return f, broken
}

// parseFrame decodes a frame, loosely if it is no valid envelope. The error of a frame is one of a
// frame without a type.
func parseFrame(text []byte) (*received, error) {
	env, err := arcp.Decode(text)
	f := &received{Text: text, strict: err}
	if err != nil {
		if env, err = script.DecodeLoosely(text); err != nil {
			return nil, err
		}
	}
	f.Envelope = env
	return f, json.Unmarshal(text, &f.members)
}

// applyHandshake stores the session, capabilities and position from the answer to the handshake.
func (v *validator) applyHandshake(f *received) {
	switch f.Type {
	case arcp.SessionAccepted:
		p := f.accepted()
		v.session, v.caps, v.rec.token = p.SessionID, p.Capabilities, p.ResumeToken
		v.rec.negotiated(p.SessionID, v.offered, p.Capabilities)
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
		_, _ = v.jobEnds(f), v.trace(f) // validated when received
	}
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

// jobStates are the states of a job.
var jobStates = func() []string {
	var s []string
	for _, state := range arcp.JobStates {
		s = append(s, string(state))
	}
	return s
}()

// listedStates are the states of a job in messages of draft 1.1, which a server of RFC 0001 may fill with the
// states of either document.
var listedStates = append(slices.Clone(jobStates), "pending", "success", "error", "timed_out")

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

// uniqueID checks that a frame with the id of an earlier one is the same message, which may be delivered twice
// (RFC §6.4). The other members of a copy may differ, but for the request that an answer names.
func (v *validator) uniqueID(f *received) error {
	m := sentMessage{typ: f.Type, job: f.JobID, payload: sha256.Sum256(f.Payload)}
	if f.JobID == "" { // a repeated submit is answered with the events of the first one
		m.answers = f.CorrelationID
	}
	first, known := v.messages[f.ID]
	if !known {
		v.messages[f.ID] = m
	} else if m != first {
		return fmt.Errorf("id %q is of %s and of another %s", f.ID, first.typ, f.Type)
	}
	return nil
}

// sentMessage is what two frames with the same id must have in common.
type sentMessage struct {
	typ     arcp.Type
	job     arcp.JobID
	answers arcp.MessageID    // the request, unless it is an event of a job
	payload [sha256.Size]byte // its digest
}

// once checks that a message is sent once on each connection. A repeated submit receives the same
// events again, correlated to the repetition.
func (v *validator) once(f *received) error {
	if spec := arcp.Lookup(f.Type); spec != nil && spec.Delivery == arcp.Sequenced && f.EventSeq == 0 {
		return nil // an event without a number may be a replay
	}
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

// followed reports whether f is an event of a job that another session submitted.
func (v *validator) followed(f *received) bool { return f.JobID != "" && f.EventSeq != 0 }

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

// unchanged checks that an event replayed on a later connection is unchanged. A number that is used twice on one
// connection breaks the rule numbers.
func (v *validator) unchanged(f *received) (err error) {
	if f.EventSeq == 0 {
		return nil
	}
	if f.repeated {
		err = sameEvent(f, v.rec.events[f.EventSeq], "arcp")
	}
	v.rec.events[f.EventSeq] = f
	v.rec.asked[f.ID] = v.rec.asked[f.ID] || slices.Contains(questions, f.Type)
	return err
}

// questions are the types that ask people.
var questions = []arcp.Type{arcp.PermissionRequest, arcp.HumanInputRequest, arcp.HumanChoiceRequest}

// sameEvent checks that two frames have the same members, except for some.
func sameEvent(f, before *received, except ...string) error {
	for _, list := range []map[string]arcp.Raw{before.members, f.members} {
		for name := range list {
			if got, old := f.members[name], before.members[name]; !slices.Contains(except, name) && string(got) != string(old) {
				return fmt.Errorf("%s of event %d is %s, want %s as sent before", name, before.EventSeq, orNone(got), orNone(old))
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
	if in.strict != nil {
		return fmt.Errorf("inside: %w", in.strict)
	}
	for i := range v.rules {
		if r := &v.rules[i]; r.inside && (r.unknown || arcp.Lookup(in.Type) != nil) {
			if err := r.check(v, in); err != nil {
				return fmt.Errorf("inside: %s: %w", r.id, err)
			}
		}
	}
	if arcp.Lookup(in.Type) == nil {
		return nil // an extension
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
