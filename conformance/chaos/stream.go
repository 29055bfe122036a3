package chaos

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Stream records the frames that one session received over all its connections. It is pure and
// belongs to one goroutine at a time.
type Stream struct {
	Observer    string // name in findings
	Principal   string
	Session     arcp.SessionID
	Dialect     arcp.Dialect
	Checkpoints bool // the session receives checkpoints
	Streams     bool // the session receives streams

	Submits   map[arcp.MessageID]*Submit
	Jobs      map[arcp.JobID]*View
	Children  map[arcp.JobID]*Child // of jobs of the session
	Follows   map[arcp.JobID]*Follow
	Cancelled map[arcp.JobID]bool     // requested cancellations; true: accepted
	Foreign   map[arcp.MessageID]bool // commands about jobs of other principals; the runtime must refuse them
	Findings  []Finding

	others   []string // prefixes of the markers and trace ids of other principals
	frames   []uint64 // digest of each event's frame, by event_seq - 1
	next     uint64   // expected event_seq of the next event
	byTrace  map[string]*Submit
	accepted map[arcp.JobID]*Submit // draft dialect: the first submit that was answered with the job

	artifacts []arcp.ArtifactObject // that were announced, the oldest first
}

// Submit is a submit of the session.
type Submit struct {
	Task
	ID    arcp.MessageID
	Trace string     // trace id
	Sent  int        // number of connections that sent it
	Job   arcp.JobID // empty: not answered yet

	// In the draft dialect, where job.accepted is no event and events do not name their submit.
	accepts int  // number of job.accepted
	open    bool // no final event was received after the last job.accepted
}

// Follow is a subscription to a job of another session, with all its history.
type Follow struct {
	ID        arcp.MessageID
	Sent      int // number of connections that sent it
	Confirmed bool
}

// View is one session's knowledge of a job.
type View struct {
	Job     arcp.JobID
	Trace   string     // trace id of the submit
	Events  []Event    // without repetitions, in the order of their ids
	End     *Event     // the final event
	Parent  arcp.JobID // job that started this one; empty: a submit did
	Answers map[arcp.MessageID]*Answers

	expected *expectation // nil: the session submitted neither the job nor its parent
}

// Answers counts the job.accepted and final events in answer to one submit.
type Answers struct{ Accepts, Ends int }

// Event is an event of a job.
type Event struct {
	ID     [16]byte
	Type   arcp.Type
	Seq    uint64 // first event_seq in the session
	Origin uint64 // event_seq in the submitting session; 0: not forwarded
	Body   uint64 // digest of the content that all receivers of a dialect share
	Shared uint64 // digest of the content that all receivers share
	Copies int    // number of times received, with different numbers
	Time   time.Time

	dialect arcp.Dialect
}

// same reports whether two receivers received the same event.
func (e *Event) same(other *Event) bool {
	if e.dialect == other.dialect {
		return e.Body == other.Body
	}
	return e.Shared == other.Shared
}

// Submitted reports whether the session submitted the job.
func (v *View) Submitted() bool { return v.expected != nil }

// repeated returns an event that was received more often than the final event, or nil.
func (v *View) repeated() *Event {
	for i := range v.Events {
		if e := &v.Events[i]; v.End != nil && e.Copies > v.End.Copies {
			return e
		}
	}
	return nil
}

func (v *View) repeats() string {
	e := v.repeated()
	return fmt.Sprintf("%s: %s, event %d, was received %d times and the final event %d times",
		v.Job, e.Type, e.Seq, e.Copies, v.End.Copies)
}

// NewStream returns the stream of a session that was just opened. others are the names of the other
// principals.
func NewStream(observer, principal string, id arcp.SessionID, others []string) *Stream {
	s := &Stream{Observer: observer, Principal: principal, Session: id, next: 1,
		Submits: make(map[arcp.MessageID]*Submit), Jobs: make(map[arcp.JobID]*View),
		byTrace: make(map[string]*Submit), accepted: make(map[arcp.JobID]*Submit), Children: make(map[arcp.JobID]*Child),
		Follows: make(map[arcp.JobID]*Follow), Cancelled: make(map[arcp.JobID]bool), Foreign: make(map[arcp.MessageID]bool)}
	for _, o := range others {
		s.others = append(s.others, markerPrefix(o), tracePrefix(o))
	}
	return s
}

func (s *Stream) find(rule Rule, format string, args ...any) {
	s.Findings = append(s.Findings, Finding{rule, s.Observer, fmt.Sprintf(format, args...)})
}

// Last returns the highest received event_seq.
func (s *Stream) Last() uint64 { return uint64(len(s.frames)) }

// Position returns the last event_seq on the current connection.
func (s *Stream) Position() uint64 { return s.next - 1 }

// Attach begins a connection that resumes after event_seq after.
func (s *Stream) Attach(after uint64) { s.next = after + 1 }

// AddSubmit adds a submit that is not sent yet.
func (s *Stream) AddSubmit(submit *Submit) {
	s.Submits[submit.ID], s.byTrace[submit.Trace] = submit, submit
}

// sees reports whether the session receives events of a type.
func (s *Stream) sees(t arcp.Type) bool {
	switch t {
	case arcp.JobAccepted:
		return s.Dialect == arcp.DialectRFC
	case arcp.JobCheckpoint:
		return s.Checkpoints
	case arcp.StreamOpen, arcp.StreamChunk, arcp.StreamClose, arcp.StreamError:
		return s.Streams
	}
	return true
}

// RecordSent records a sent command, once for each connection.
func (s *Stream) RecordSent(id arcp.MessageID) {
	if submit := s.Submits[id]; submit != nil {
		submit.Sent++
		return
	}
	for _, f := range s.Follows {
		if f.ID == id {
			f.Sent++
		}
	}
}

// Receive records and checks the next message of the connection and its frame.
func (s *Stream) Receive(frame []byte, env *arcp.Envelope) {
	s.private(frame, env)
	switch {
	case env.EventSeq == 0:
		s.answer(env)
	case s.number(frame, env):
		s.event(env)
	}
}

// private finds data of another principal in a frame.
func (s *Stream) private(frame []byte, env *arcp.Envelope) {
	if env.SessionID != s.Session && (s.Dialect == arcp.DialectRFC || env.SessionID != "") { // some libraries need errors without session_id
		s.find(RuleForeign, "a frame has the session_id %q: %s", env.SessionID, frame)
	}
	for _, o := range s.others {
		if bytes.Contains(frame, []byte(o)) {
			s.find(RuleForeign, "a frame contains %s: %s", o, frame)
		}
	}
}

// seed is the seed of all digests of the process.
var seed = maphash.MakeSeed()

// number checks an event_seq. It reports whether the event is new.
func (s *Stream) number(frame []byte, env *arcp.Envelope) bool {
	if env.EventSeq != s.next {
		s.find(RuleGap, "event_seq is %d, want %d: %s", env.EventSeq, s.next, frame)
	}
	s.next = env.EventSeq + 1
	digest := maphash.Bytes(seed, frame)
	if i := env.EventSeq - 1; i < s.Last() {
		if s.frames[i] != digest {
			s.find(RuleChanged, "event %d was replayed with changes: %s", env.EventSeq, frame)
		}
		return false
	}
	if env.EventSeq == s.Last()+1 { // a larger number was reported as a gap
		s.frames = append(s.frames, digest)
	}
	return true
}

// event records an event with a new number.
func (s *Stream) event(env *arcp.Envelope) {
	child := s.child(env)
	var submit *Submit
	if child == nil {
		submit = s.submitOf(env)
	}
	v := s.view(env, submit, child)
	if v == nil {
		return
	}
	e := Event{Type: env.Type, Seq: env.EventSeq, Body: body(env), Shared: shared(env), Origin: origin(env), Copies: 1, Time: env.Timestamp, dialect: s.Dialect}
	e.ID, _ = arcp.ParseIDBody(strings.TrimPrefix(string(env.ID), arcp.MessagePrefix)) // an invalid id is zero and out of order
	if env.Type == arcp.ArtifactRef {
		if a, err := announcedArtifact(env); err == nil { // otherwise the expectation finds it
			s.artifacts = append(s.artifacts, a)
		}
	}
	i, known := slices.BinarySearchFunc(v.Events, e.ID, func(e Event, id [16]byte) int { return bytes.Compare(e.ID[:], id[:]) })
	if known {
		s.duplicate(v, &v.Events[i], &e, env, submit)
	} else {
		s.first(v, e, env, submit)
	}
	s.count(v, env, submit)
}

// submitOf returns the submit of the session that an event answers, or nil. In the draft dialect an
// event names only its job: the submit has the trace id of the job or, if it repeats an idempotency
// key, was answered with the job.
func (s *Stream) submitOf(env *arcp.Envelope) *Submit {
	if s.Dialect == arcp.DialectRFC {
		return s.Submits[env.CorrelationID]
	}
	if submit := s.byTrace[env.TraceID]; submit != nil {
		return submit
	}
	return s.accepted[env.JobID]
}

// mayBeRepetition reports whether an event of an unknown job may be the outcome of a submit that
// repeats an idempotency key and whose job.accepted was lost. Compare checks the job later.
func (s *Stream) mayBeRepetition(env *arcp.Envelope) bool {
	if s.Dialect == arcp.DialectRFC || !env.Type.Terminal() {
		return false
	}
	for _, submit := range s.Submits {
		if submit.Key != "" && submit.Sent > 0 && submit.Job == "" {
			return true
		}
	}
	return false
}

// view returns the view of the job that an event belongs to. The session must have submitted or
// followed the job.
func (s *Stream) view(env *arcp.Envelope, submit *Submit, child *Child) *View {
	own := submit != nil
	_, follows := s.Follows[env.JobID]
	if !own && child == nil && !follows && !s.mayBeRepetition(env) {
		s.find(RuleForeign, "event %d belongs to %s, which the session neither submitted nor follows", env.EventSeq, env.JobID)
		return nil
	}
	if own && submit.Job == "" {
		submit.Job = env.JobID
	} else if own && submit.Job != env.JobID {
		s.find(RuleKey, "the submit %s has the jobs %s and %s", submit.ID, submit.Job, env.JobID)
	}
	v := s.Jobs[env.JobID]
	if v == nil {
		v = &View{Job: env.JobID, Trace: env.TraceID, Answers: make(map[arcp.MessageID]*Answers)}
		s.Jobs[env.JobID] = v
	}
	if own && env.TraceID == submit.Trace && v.expected == nil {
		v.expected = newExpectation(submit.Task, s)
	}
	if child != nil && v.expected == nil {
		v.expected, v.Parent = newExpectation(child.Task, s), child.Parent
	}
	if v.Trace != env.TraceID {
		s.find(RuleChanged, "%s has the trace %q and %q", v.Job, v.Trace, env.TraceID)
	}
	return v
}

// first records an event that is new to the session.
func (s *Stream) first(v *View, e Event, env *arcp.Envelope, submit *Submit) {
	if n := len(v.Events); n > 0 && bytes.Compare(e.ID[:], v.Events[n-1].ID[:]) < 0 {
		s.find(RuleOrder, "%s: %s %s was received after the later %s", v.Job, e.Type, env.ID, v.Events[n-1].Type)
		return
	}
	if v.End != nil {
		s.find(RuleEnd, "%s: %s was received after the final %s", v.Job, e.Type, v.End.Type)
	}
	v.Events = append(v.Events, e)
	if e.Type.Terminal() {
		v.End = &v.Events[len(v.Events)-1]
	}
	if v.Parent != "" {
		s.childEvent(v, env)
	}
	if v.expected != nil && (submit != nil || v.Parent != "") {
		if violation := v.expected.check(env); violation != "" {
			s.find(RuleOrder, "%s, event %d: %s", v.Job, env.EventSeq, violation)
		}
		s.announced(v, env)
	}
}

// duplicate checks an event that already has another number. That is allowed for the answers to a
// repeated submit, and for the history of an ended job that is followed again. count and Compare
// check how often.
func (s *Stream) duplicate(v *View, was, e *Event, env *arcp.Envelope, submit *Submit) {
	if was.Body != e.Body || was.Type != e.Type {
		s.find(RuleChanged, "%s: %s was a %s with another payload: %s", v.Job, env.ID, was.Type, env.Payload)
	}
	was.Copies++
	if v.Parent != "" || submit != nil && e.Type != arcp.JobAccepted && !e.Type.Terminal() {
		s.find(RuleTwice, "%s: %s %s has the numbers %d and %d", v.Job, e.Type, env.ID, was.Seq, e.Seq)
	}
}

// count counts the answers to a submit.
func (s *Stream) count(v *View, env *arcp.Envelope, submit *Submit) {
	request := env.CorrelationID
	if s.Dialect == arcp.DialectDraft {
		request = "" // an outcome answers all submits of the job
	}
	a := v.Answers[request]
	if a == nil {
		a = new(Answers)
		v.Answers[request] = a
	}
	switch {
	case env.Type == arcp.JobAccepted:
		a.Accepts++
	case env.Type.Terminal():
		a.Ends++
	default:
		return
	}
	allowed := 0
	f := s.Follows[v.Job]
	switch {
	case v.Parent != "":
		allowed = 1
	case f != nil && (submit == nil || s.Dialect == arcp.DialectDraft):
		allowed = f.Sent
	case s.Dialect == arcp.DialectDraft:
		allowed = s.outcomes(v)
	case submit != nil:
		allowed = submit.Sent
	}
	if a.Accepts > allowed || a.Ends > allowed {
		s.find(RuleTwice, "%s: accepted %d times and ended %d times for %s, which was sent on %d connections",
			v.Job, a.Accepts, a.Ends, cmp.Or(request, "its submits"), allowed)
	}
}

// outcomes returns how many final events of a job the session may receive in the draft dialect, and
// records that its submits have received one.
func (s *Stream) outcomes(v *View) (allowed int) {
	for _, submit := range s.Submits {
		unanswered := submit.Job == "" && submit.Key != ""
		if submit.Job == v.Job || unanswered {
			allowed += submit.Sent
		}
		if submit.Job == v.Job {
			submit.open = false
		}
	}
	return allowed
}

// accept records a job.accepted of the draft dialect, which has no number.
func (s *Stream) accept(env *arcp.Envelope) {
	submit := s.Submits[env.CorrelationID]
	if s.Dialect == arcp.DialectRFC || submit == nil {
		s.find(RuleAnswer, "a job.accepted without a submit: %s", env.Append(nil))
		return
	}
	if submit.Job != "" && submit.Job != env.JobID {
		s.find(RuleKey, "the submit %s has the jobs %s and %s", submit.ID, submit.Job, env.JobID)
	}
	submit.Job, submit.open = env.JobID, true
	if submit.accepts++; submit.accepts > submit.Sent {
		s.find(RuleTwice, "%s: accepted %d times for %s, which was sent on %d connections", env.JobID, submit.accepts, submit.ID, submit.Sent)
	}
	if s.accepted[env.JobID] == nil {
		s.accepted[env.JobID] = submit
	}
}

// answer handles a frame without event_seq.
func (s *Stream) answer(env *arcp.Envelope) {
	switch env.Type {
	case arcp.JobAccepted:
		s.accept(env)
	case arcp.JobSubscribed:
		if f := s.Follows[env.JobID]; f != nil {
			f.Confirmed = true
		} else {
			s.find(RuleForeign, "the subscription to %s was accepted, a job of another principal", env.JobID)
		}
	case arcp.CancelAccepted:
		p, err := arcp.DecodePayload[arcp.CancelAcceptedPayload](env)
		if _, asked := s.Cancelled[arcp.JobID(p.TargetID)]; err != nil || !asked {
			s.find(RuleForeign, "the cancel of a job of another principal was accepted: %s", env.Payload)
			return
		}
		s.Cancelled[arcp.JobID(p.TargetID)] = true
	case arcp.CancelRefused:
		p, err := arcp.DecodePayload[arcp.CancelRefusedPayload](env)
		if err != nil || p.Reason != "already_terminal" && !s.Foreign[env.CorrelationID] {
			s.find(RuleLost, "a cancel was refused: %s", env.Payload)
		}
	case arcp.JobFailed, arcp.ToolError:
		s.find(RuleAnswer, "the submit %s was refused: %s", env.CorrelationID, env.Payload)
	case arcp.Nack:
		if !s.Foreign[env.CorrelationID] {
			s.find(RuleAnswer, "%s was refused: %s", env.CorrelationID, env.Payload)
		}
	case arcp.SessionEvicted:
		s.find(RuleLost, "the session was ended: %s", env.Payload)
	}
}

// body returns the digest of the content of an event that all receivers share.
func body(env *arcp.Envelope) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, part := range []string{string(env.ID), string(env.Type), string(env.JobID), env.TraceID, env.SpanID, string(env.Priority)} {
		maphash.WriteComparable(&h, part)
	}
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(env.Timestamp.UnixNano()))) // never fails
	_, _ = h.Write(env.Payload)
	return h.Sum64()
}

// shared returns the digest of the content of an event that the frames of both dialects have, with
// times in milliseconds.
func shared(env *arcp.Envelope) uint64 {
	var p struct {
		Message    string    `json:"message"`
		Attributes arcp.Raw  `json:"attributes"`
		Current    arcp.Raw  `json:"current"`
		Total      arcp.Raw  `json:"total"`
		Checkpoint string    `json:"checkpoint_id"`
		Value      arcp.Raw  `json:"value"`
		Code       arcp.Code `json:"code"`
		Reason     string    `json:"reason"`
	}
	_ = arcp.Unmarshal(env.Payload, &p) // what cannot be decoded is the same in both dialects
	var h maphash.Hash
	h.SetSeed(seed)
	for _, part := range []string{string(env.ID), string(env.JobID), env.TraceID, env.Timestamp.Truncate(time.Millisecond).UTC().String(), p.Message,
		string(p.Attributes), string(p.Current), string(p.Total), p.Checkpoint, string(p.Value), string(p.Code), p.Reason} {
		maphash.WriteComparable(&h, part)
	}
	return h.Sum64()
}

// origin returns the event_seq of a forwarded event in the submitting session; 0 if the event is
// not forwarded.
func origin(env *arcp.Envelope) uint64 {
	if len(env.Extensions) == 0 {
		return 0
	}
	var x struct {
		Origin struct {
			Seq uint64 `json:"event_seq"`
		} `json:"arcpx.arcp.origin.v1"`
	}
	if arcp.Unmarshal(env.Extensions, &x) != nil {
		return 0
	}
	return x.Origin.Seq
}

// Pending returns the work that the session still waits for, in a fixed order.
func (s *Stream) Pending() (list []string) {
	for id, submit := range s.Submits {
		v := s.Jobs[submit.Job]
		switch {
		case submit.Sent == 0:
		case v == nil && !submit.open, s.Dialect == arcp.DialectDraft && submit.accepts == 0:
			list = append(list, fmt.Sprintf("%s, a %s, was not answered", id, submit.Kind))
		case s.Dialect == arcp.DialectDraft && !submit.open && v.End != nil:
		case s.Dialect == arcp.DialectDraft:
			list = append(list, fmt.Sprintf("%s, a %s, has not ended for %s since it was accepted", submit.Job, submit.Kind, id))
		case v.Answers[id] == nil || v.Answers[id].Ends == 0:
			list = append(list, fmt.Sprintf("%s, a %s, has not ended for %s", v.Job, submit.Kind, id))
		}
	}
	for id, child := range s.Children {
		if v := s.Jobs[id]; v != nil && v.End == nil {
			list = append(list, fmt.Sprintf("%s, a %s of %s, has not ended", id, child.Kind, child.Parent))
		}
	}
	for id, f := range s.Follows {
		switch v := s.Jobs[id]; {
		case f.Confirmed && (v == nil || v.End == nil):
			list = append(list, fmt.Sprintf("the followed job %s has not ended", id))
		case v != nil && v.repeated() != nil: // followed again after its end: the whole history is repeated
			list = append(list, v.repeats())
		}
	}
	slices.SortFunc(list, cmp.Compare[string])
	return list
}
