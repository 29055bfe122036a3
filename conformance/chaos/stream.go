package chaos

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Stream records the frames that one session received over all its connections. It is pure and
// belongs to one goroutine at a time.
type Stream struct {
	Observer    string // for findings
	Principal   string
	Session     arcp.SessionID
	Checkpoints bool // negotiated: the session receives them

	Submits   map[arcp.MessageID]*Submit
	Jobs      map[arcp.JobID]*View
	Follows   map[arcp.JobID]*Follow
	Cancelled map[arcp.JobID]bool     // cancels sent; true: accepted
	Prowls    map[arcp.MessageID]bool // commands about jobs of others, which have to be refused
	Findings  []Finding

	others []string // prefixes of the marks of other principals
	frames []uint64 // digest of each event's frame, by event_seq - 1
	next   uint64   // the event_seq that this connection has to bring
}

// Submit is a submit of the session.
type Submit struct {
	Task
	ID   arcp.MessageID
	Sent int        // connections it was sent on
	Job  arcp.JobID // that it was answered with; empty: not answered yet
}

// Follow is a subscription to a job of another session, with all its history.
type Follow struct {
	ID        arcp.MessageID
	Sent      int // connections it was sent on
	Confirmed bool
}

// View is one session's knowledge of a job.
type View struct {
	Job     arcp.JobID
	Trace   string  // the mark of the submitter
	Events  []Event // each once, as they came first, which is the order of their ids
	End     *Event  // the terminal one
	Answers map[arcp.MessageID]*Answers

	story *story
}

// Answers counts how often a submit was answered with the events that begin and
// end its job.
type Answers struct{ Accepts, Ends int }

// Event is an event of a job.
type Event struct {
	ID     [16]byte
	Type   arcp.Type
	Seq    uint64 // the first one it had in the session
	Origin uint64 // its number in the submitting session, if it is forwarded
	Body   uint64 // digest of the part that is equal for all receivers
	Copies int    // how often it came, under different numbers
}

// Followed reports that the session follows the job and not only its outcome.
func (v *View) Followed() bool { return v.story != nil }

// repeated returns an event that came more often than the end of its job.
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
	return fmt.Sprintf("%s: %s, event %d, came %d times and the end %d times: it was followed already",
		v.Job, e.Type, e.Seq, e.Copies, v.End.Copies)
}

// NewStream returns the stream of a session that was just opened. others are the other
// principals.
func NewStream(who, principal string, id arcp.SessionID, others []string) *Stream {
	s := &Stream{Observer: who, Principal: principal, Session: id, next: 1,
		Submits: make(map[arcp.MessageID]*Submit), Jobs: make(map[arcp.JobID]*View),
		Follows: make(map[arcp.JobID]*Follow), Cancelled: make(map[arcp.JobID]bool), Prowls: make(map[arcp.MessageID]bool)}
	for _, o := range others {
		s.others = append(s.others, markOf(o))
	}
	return s
}

func (s *Stream) find(rule Rule, format string, args ...any) {
	s.Findings = append(s.Findings, Finding{rule, s.Observer, fmt.Sprintf(format, args...)})
}

// Last is the highest event_seq there was.
func (s *Stream) Last() uint64 { return uint64(len(s.frames)) }

// Position is the event_seq that the connection has got to.
func (s *Stream) Position() uint64 { return s.next - 1 }

// Attach begins a connection that continues after a number.
func (s *Stream) Attach(after uint64) { s.next = after + 1 }

// Send records an outgoing command, once for each connection: a repetition on the same
// connection is dropped.
func (s *Stream) Send(id arcp.MessageID) {
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

// See records the next frame of the connection.
func (s *Stream) See(frame []byte) arcp.Envelope {
	env, err := arcp.Decode(frame)
	if err != nil {
		s.find(RuleAnswer, "a frame of the runtime is none: %s: %v", frame, err)
		return env
	}
	s.private(frame, &env)
	switch {
	case env.EventSeq == 0:
		s.answer(&env)
	case s.number(frame, &env):
		s.event(&env)
	}
	return env
}

// private finds data of another principal in a frame.
func (s *Stream) private(frame []byte, env *arcp.Envelope) {
	if env.SessionID != s.Session {
		s.find(RuleForeign, "a frame is of the session %q: %s", env.SessionID, frame)
	}
	for _, o := range s.others {
		if bytes.Contains(frame, []byte(o)) {
			s.find(RuleForeign, "a frame says %s: %s", o, frame)
		}
	}
}

// digests have one seed for the process: they are compared with each other only.
var seed = maphash.MakeSeed()

// number judges an event_seq; it reports whether the event is a new one.
func (s *Stream) number(frame []byte, env *arcp.Envelope) bool {
	if env.EventSeq != s.next {
		s.find(RuleGap, "event_seq %d comes where %d belongs: %s", env.EventSeq, s.next, frame)
	}
	s.next = env.EventSeq + 1
	digest := maphash.Bytes(seed, frame)
	if i := env.EventSeq - 1; i < s.Last() {
		if s.frames[i] != digest {
			s.find(RuleChanged, "event %d is not what it was before: %s", env.EventSeq, frame)
		}
		return false
	}
	if env.EventSeq == s.Last()+1 { // beyond it a gap was found
		s.frames = append(s.frames, digest)
	}
	return true
}

// event enters an event that was not sent under its number before.
func (s *Stream) event(env *arcp.Envelope) {
	v := s.view(env)
	if v == nil {
		return
	}
	e := Event{Type: env.Type, Seq: env.EventSeq, Body: body(env), Origin: origin(env), Copies: 1}
	e.ID, _ = arcp.ParseIDBody(strings.TrimPrefix(string(env.ID), arcp.MessagePrefix)) // zero is out of order
	i, known := slices.BinarySearchFunc(v.Events, e.ID, func(e Event, id [16]byte) int { return bytes.Compare(e.ID[:], id[:]) })
	if known {
		s.duplicate(v, &v.Events[i], &e, env)
	} else {
		s.first(v, e, env)
	}
	s.count(v, env)
}

// view finds the view that an event belongs to: a submit of the session, or a job it follows.
func (s *Stream) view(env *arcp.Envelope) *View {
	submit, own := s.Submits[env.CorrelationID]
	_, follows := s.Follows[env.JobID]
	if !own && !follows {
		s.find(RuleForeign, "event %d is of %s, which the session neither submitted nor follows", env.EventSeq, env.JobID)
		return nil
	}
	if own && submit.Job == "" {
		submit.Job = env.JobID
	} else if own && submit.Job != env.JobID {
		s.find(RuleKey, "%s was answered with %s and with %s", submit.ID, submit.Job, env.JobID)
	}
	v := s.Jobs[env.JobID]
	if v == nil {
		v = &View{Job: env.JobID, Trace: env.TraceID, Answers: make(map[arcp.MessageID]*Answers)}
		s.Jobs[env.JobID] = v
	}
	if own && env.TraceID == string(submit.ID) && v.story == nil {
		v.story = newStory(submit.Task, s.Checkpoints)
	}
	if v.Trace != env.TraceID {
		s.find(RuleChanged, "%s has the trace %q and %q", v.Job, v.Trace, env.TraceID)
	}
	return v
}

// first enters an event that is new to the session.
func (s *Stream) first(v *View, e Event, env *arcp.Envelope) {
	if n := len(v.Events); n > 0 && bytes.Compare(e.ID[:], v.Events[n-1].ID[:]) < 0 {
		s.find(RuleStory, "%s: %s %s comes late, behind %s", v.Job, e.Type, env.ID, v.Events[n-1].Type)
		return
	}
	if v.End != nil {
		s.find(RuleEnd, "%s: %s comes after %s", v.Job, e.Type, v.End.Type)
	}
	v.Events = append(v.Events, e)
	if e.Type.Terminal() {
		v.End = &v.Events[len(v.Events)-1]
	}
	if _, own := s.Submits[env.CorrelationID]; own && v.story != nil {
		if wrong := v.story.tell(env); wrong != "" {
			s.find(RuleStory, "%s, event %d: %s", v.Job, env.EventSeq, wrong)
		}
	}
}

// duplicate judges an event that has another number already. That is right for the
// answers of a submit that was sent again, and for the whole history of a job
// that was asked for again when it had ended; count and Judge know how often.
func (s *Stream) duplicate(v *View, was, e *Event, env *arcp.Envelope) {
	if was.Body != e.Body || was.Type != e.Type {
		s.find(RuleChanged, "%s: %s was %s with other contents: %s", v.Job, env.ID, was.Type, env.Payload)
	}
	was.Copies++
	_, own := s.Submits[env.CorrelationID]
	if own && e.Type != arcp.JobAccepted && !e.Type.Terminal() {
		s.find(RuleTwice, "%s: %s %s has the numbers %d and %d", v.Job, e.Type, env.ID, was.Seq, e.Seq)
	}
}

// count counts the answers of a submit.
func (s *Stream) count(v *View, env *arcp.Envelope) {
	a := v.Answers[env.CorrelationID]
	if a == nil {
		a = new(Answers)
		v.Answers[env.CorrelationID] = a
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
	if submit, own := s.Submits[env.CorrelationID]; own {
		allowed = submit.Sent
	} else if f := s.Follows[v.Job]; f != nil {
		allowed = f.Sent
	}
	if a.Accepts > allowed || a.Ends > allowed {
		s.find(RuleTwice, "%s: accepted %d times and ended %d times for %s, which was asked for on %d connections",
			v.Job, a.Accepts, a.Ends, env.CorrelationID, allowed)
	}
}

// answer handles frames without a number.
func (s *Stream) answer(env *arcp.Envelope) {
	switch env.Type {
	case arcp.JobSubscribed:
		if f := s.Follows[env.JobID]; f != nil {
			f.Confirmed = true
		} else {
			s.find(RuleForeign, "%s was subscribed to, which is not its own", env.JobID)
		}
	case arcp.CancelAccepted:
		p, err := arcp.DecodePayload[arcp.CancelAcceptedPayload](env)
		if _, asked := s.Cancelled[arcp.JobID(p.TargetID)]; err != nil || !asked {
			s.find(RuleForeign, "a cancel was accepted that is not for its own: %s", env.Payload)
			return
		}
		s.Cancelled[arcp.JobID(p.TargetID)] = true
	case arcp.CancelRefused:
		p, err := arcp.DecodePayload[arcp.CancelRefusedPayload](env)
		if err != nil || p.Reason != "already_terminal" && !s.Prowls[env.CorrelationID] {
			s.find(RuleLost, "a cancel was refused: %s", env.Payload)
		}
	case arcp.JobFailed, arcp.ToolError:
		s.find(RuleAnswer, "the submit %s was refused: %s", env.CorrelationID, env.Payload)
	case arcp.Nack:
		if !s.Prowls[env.CorrelationID] {
			s.find(RuleAnswer, "%s was refused: %s", env.CorrelationID, env.Payload)
		}
	case arcp.SessionEvicted:
		s.find(RuleLost, "the session was ended: %s", env.Payload)
	}
}

// body returns the digest of the part of an event that is equal for all receivers.
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

// origin returns the number of a forwarded event in the submitting session; 0: it is not
// forwarded.
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

// Open lists the work that the session still waits for, in a fixed order.
func (s *Stream) Open() (open []string) {
	for id, submit := range s.Submits {
		v := s.Jobs[submit.Job]
		switch {
		case submit.Sent == 0:
		case v == nil:
			open = append(open, fmt.Sprintf("%s, a %s, was not answered", id, submit.Kind))
		case v.Answers[id] == nil || v.Answers[id].Ends == 0:
			open = append(open, fmt.Sprintf("%s, a %s, has not ended for %s", v.Job, submit.Kind, id))
		}
	}
	for id, f := range s.Follows {
		switch v := s.Jobs[id]; {
		case f.Confirmed && (v == nil || v.End == nil):
			open = append(open, fmt.Sprintf("%s, which is followed, has not ended", id))
		case v != nil && v.repeated() != nil: // it was followed again after its end: all events are repeated
			open = append(open, v.repeats())
		}
	}
	slices.SortFunc(open, cmp.Compare[string])
	return open
}
