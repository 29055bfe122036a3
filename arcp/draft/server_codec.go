package draft

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// MaxFrame bounds a frame to a client, in bytes. Go and Python close the connection when a
// frame is larger than 1 MiB.
const MaxFrame = 1_000_000

// ServerCodec is the codec of one connection: the profile of the client, the requests that wait for
// an answer and the jobs that the client has a handle of. Decode may be called by one goroutine
// and the other methods by another.
type ServerCodec struct {
	profile Profile
	facts   *facts
	offered []string                   // features of the hello; nil: not known
	auth    arcp.Auth                  // credentials of the hello
	newID   func(prefix string) string // mints identifiers

	decoded bool // the first frame was decoded; owned by Decode

	pending pending

	// Owned by the Append methods.
	id        arcp.SessionID
	head      []byte                       // of every event frame; see setID
	described *arcp.SessionAcceptedPayload // what session.resumed does not say; nil: not known
	lastSeq   uint64                       // of the last event that was appended
}

// NewServerCodec returns the codec for the client that has sent a first frame. The frame is then
// passed to Decode. It is an error if the frame opens or resumes no session. A hello that cannot be
// decoded, and a mistake in its payload, are errors of Decode.
func NewServerCodec(first []byte) (*ServerCodec, error) {
	env, err := arcp.DecodeDraft(first)
	if err != nil && isBadHello(first) {
		s := &ServerCodec{newID: arcp.NewID}
		s.SetProfile(Universal)
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if m := Lookup(Type(env.Type)); m == nil || m.Phase != arcp.InOpening {
		return nil, &Refusal{
			Request: env.ID,
			Type:    Type(env.Type),
			Err:     arcp.Errorf(arcp.CodeInvalidRequest, "%s: the first message must be %s", env.Type, SessionHello),
		}
	}
	s := &ServerCodec{newID: arcp.NewID}
	s.SetProfile(Recognise(&env))
	if p, err := readHello(&env); err == nil && Type(env.Type) == SessionHello {
		s.offered, _ = featuresOf(p.Capabilities.Features) // Decode reports the error
		s.auth = p.auth()
	}
	return s, nil
}

// Auth returns the credentials of the session.hello. A hello that resumes a session may have some
// besides the resume token. ok is false if there are none. The token is a secret.
func (s *ServerCodec) Auth() (credentials arcp.Auth, ok bool) {
	return s.auth, s.auth.Scheme != "" && s.auth.Scheme != schemeNone
}

// Profile returns the profile of the client.
func (s *ServerCodec) Profile() Profile { return s.profile }

// SetProfile replaces the recognised profile, for example by the profile of the session that is
// resumed. It must precede the first call of an Append method.
func (s *ServerCodec) SetProfile(p Profile) { s.profile, s.facts = p, p.facts() }

// CorrelatesEnds reports whether the end of a job has the correlation id of the submit for the client.
// The other clients find the job of an event by its id only.
func (s *ServerCodec) CorrelatesEnds() bool { return s.facts.endAnswers }

// Describe sets what the answer to a resume contains besides the members of
// arcp.SessionResumedPayload: the runtime, the capabilities, the resume window and the heartbeat
// interval.
func (s *ServerCodec) Describe(p arcp.SessionAcceptedPayload) { s.described = &p }

// AddJobs records that the client has handles of jobs from earlier connections of its session: jobs
// that it has submitted, and jobs that it follows. It must precede the first answer.
func (s *ServerCodec) AddJobs(submitted, followed []arcp.JobID) {
	for _, id := range submitted {
		s.pending.hold(id, handleSubmitted)
	}
	for _, id := range followed {
		s.pending.hold(id, handleFollowed)
	}
}

// SessionID returns the identifier of the session; empty: there is none yet.
func (s *ServerCodec) SessionID() arcp.SessionID { return s.id }

func (s *ServerCodec) setID(id arcp.SessionID) {
	if s.id == id && s.head != nil {
		return
	}
	s.id = id
	s.head = arcp.AppendString([]byte(`{"arcp":"`+arcp.Version+`","session_id":`), string(id))
	s.head = append(s.head, `,"event_seq":`...)
}

// AppendEvent appends the frame of a numbered event, after the welcome. submit is the message of this
// session that has submitted the job; empty: there is none. The error is a
// *TooLargeError, or says that the event has no frame; dst is then unchanged.
func (s *ServerCodec) AppendEvent(dst []byte, seq uint64, submit arcp.MessageID, e *Event) ([]byte, error) {
	start := len(dst)
	dst, wraps := s.begin(dst, seq, submit, e.ID, e.JobID, e.Time, e.Type.Terminal())
	dst, err := appendBody(dst, e, s.facts, true)
	if err != nil {
		return dst[:start], err
	}
	if wraps {
		dst = append(dst, "}}"...)
	}
	s.sent(seq, e.JobID, e.Type.Terminal())
	return dst, nil
}

// AppendEventFrame is AppendEvent for an event that EventBody has encoded in the Form of the session.
func (s *ServerCodec) AppendEventFrame(dst []byte, seq uint64, submit arcp.MessageID, b *Body) []byte {
	dst, wraps := s.begin(dst, seq, submit, b.ID, b.JobID, b.Time, b.Terminal)
	dst = append(dst, b.JSON...)
	if wraps {
		dst = append(dst, "}}"...)
	}
	s.sent(seq, b.JobID, b.Terminal)
	return dst
}

// begin appends the members of a frame before the Body of an event. For the PHP library it first
// begins the subscribe.event that has the frame of a followed job as its payload.event. wraps says
// that the Body must be followed by the ends of both objects.
func (s *ServerCodec) begin(dst []byte, seq uint64, submit, id arcp.MessageID, job arcp.JobID, at time.Time, terminal bool) (_ []byte, wraps bool) {
	if s.facts.wrapsFollowed && s.pending.follows(job) {
		o := object{dst: s.appendHead(dst, seq)}
		o.text("id", string(id))
		o.text("type", string(SubscribeEvent))
		o.time("timestamp", at)
		o.text("job_id", string(job))
		o.name("payload")
		dst, wraps = append(o.dst, `{"event":`...), true
	}
	dst = s.appendHead(dst, seq)
	if terminal && s.facts.endAnswers && submit != "" {
		dst = append(arcp.AppendString(append(dst, `"correlation_id":`...), string(submit)), ',')
	}
	return dst, wraps
}

func (s *ServerCodec) appendHead(dst []byte, seq uint64) []byte {
	return append(strconv.AppendUint(append(dst, s.head...), seq, 10), ',')
}

// sent records that an event was appended.
func (s *ServerCodec) sent(seq uint64, job arcp.JobID, terminal bool) {
	s.lastSeq = seq
	if terminal {
		s.pending.end(job)
	}
}

// AppendAnswer appends the frames of a message of the runtime that is not an event of a job: 0,
// 1 or several. The client's connection ends after the frames of a session.rejected,
// session.unauthenticated or session.evicted. The error of a page of jobs that is too large is a
// *TooLargeError. The request then still waits for an answer: a nack with its id fails it.
func (s *ServerCodec) AppendAnswer(frames [][]byte, now time.Time, env *arcp.Envelope) ([][]byte, error) {
	write, ok := answers[env.Type]
	if !ok {
		return frames, nil
	}
	a := answer{s: s, now: now, env: env, frames: frames}
	a.request, a.known = s.pending.take(env.CorrelationID)
	if a.request.id == "" {
		a.request.id = env.CorrelationID
	}
	if err := write(&a); err != nil {
		if a.request.kind != requestOther {
			s.pending.add(a.request)
		}
		return frames, err
	}
	return a.frames, nil
}

// requestKind is the kind of a request. It selects the form of a failure.
type requestKind uint8

const (
	requestOther requestKind = iota // has no answer, or one that names the request itself
	requestOpen
	requestResume
	requestSubmit
	requestList
	requestSubscribe
	requestCancel
	requestUnsubscribe
	requestClose
	requestUnknown // a frame that was not understood
)

// request is a message of the client that may be answered.
type request struct {
	kind   requestKind
	id     arcp.MessageID
	trace  string     // that the client can correlate by; empty: none
	job    arcp.JobID // of a subscription or a cancel
	reason string     // of a cancel
	agent  string     // of a submit
}

// maxPending bounds the requests of a session that wait for an answer. The oldest is dropped: its
// answer then has the members of the envelope only.
const maxPending = 256

// pending holds the requests that wait for an answer and the jobs that the client has a handle
// of.
type pending struct {
	mu       sync.Mutex
	requests []request // the oldest first
	dropped  bool      // a request was dropped
	jobs     map[arcp.JobID]handle
}

// handle says why a client sees a job.
type handle uint8

const (
	handleSubmitted handle = 1 << iota
	handleFollowed
)

func (p *pending) add(r request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requests) == maxPending {
		p.remove(0)
		p.dropped = true
	}
	p.requests = append(p.requests, r)
}

// take removes a request. known reports whether it can have been made on this connection.
func (p *pending) take(id arcp.MessageID) (r request, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.requests { // a first frame without an identifier is a request, too
		if p.requests[i].id == id {
			r = p.requests[i]
			p.remove(i)
			return r, true
		}
	}
	return request{}, p.dropped && id != ""
}

// remove removes a request. The oldest, which is answered first, costs no copy.
func (p *pending) remove(i int) {
	copy(p.requests[1:i+1], p.requests[:i])
	p.requests[0] = request{}
	p.requests = p.requests[1:]
}

// hold records that the client has a handle of a job.
func (p *pending) hold(job arcp.JobID, h handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jobs == nil {
		p.jobs = make(map[arcp.JobID]handle)
	}
	p.jobs[job] |= h
}

// leave records that the client does not follow a job any more.
func (p *pending) leave(job arcp.JobID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, ok := p.jobs[job]; ok {
		if h &^= handleFollowed; h == 0 {
			delete(p.jobs, job)
		} else {
			p.jobs[job] = h
		}
	}
}

// end records that a job has ended.
func (p *pending) end(job arcp.JobID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.jobs, job)
}

// follows reports whether the client has subscribed to a job.
func (p *pending) follows(job arcp.JobID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs[job]&handleFollowed != 0
}

// has reports whether the client has a handle of a job.
func (p *pending) has(job arcp.JobID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs[job] != 0
}

// none reports whether the client has no handle and waits for no answer.
func (p *pending) none() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.jobs) == 0 && !slices.ContainsFunc(p.requests, func(r request) bool {
		return r.kind == requestSubmit || r.kind == requestList || r.kind == requestSubscribe
	})
}
