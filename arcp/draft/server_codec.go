package draft

import (
	"bytes"
	"cmp"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
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
	quirks  *quirks
	offered []string                   // features of the hello; nil: not known
	auth    arcp.Auth                  // credentials of the hello
	newID   func(prefix string) string // mints identifiers

	first *openingFrame // nil after the first Decode, which owns it

	pending pending

	// Owned by the Append methods.
	id        arcp.SessionID
	head      []byte                       // of every event frame; see setID
	described *arcp.SessionAcceptedPayload // what session.resumed does not say; nil: not known
	lastSeq   uint64                       // of the last event that was appended
}

// ErrOtherDialect says that a first frame opens no session of the draft dialect.
var ErrOtherDialect = errors.New("draft: the first frame opens no session of the draft dialect")

// NewServerCodec returns the codec for a client whose first frame opens a connection of the draft
// dialect: session.hello, also one that cannot be decoded; session.resume without a timestamp; or
// session.resume with a token that begins with ResumePrefix. The error of any other frame is
// ErrOtherDialect. The frame is then passed to Decode, which returns the mistakes in it.
func NewServerCodec(first []byte) (*ServerCodec, error) {
	if !bytes.Contains(first, []byte(SessionHello)) && !bytes.Contains(first, []byte(SessionResume)) && bytes.IndexByte(first, '\\') < 0 {
		return nil, ErrOtherDialect // as nearly all frames of the other dialect, without decoding them
	}
	env, err := arcp.DecodeDraft(first)
	s := &ServerCodec{newID: arcp.NewID, first: &openingFrame{env: env, err: err}}
	s.SetProfile(Universal)
	if err != nil {
		if !isBadHello(first) {
			return nil, ErrOtherDialect
		}
		return s, nil
	}
	switch Type(env.Type) {
	case SessionHello:
		p, err := readHello(&env)
		if err == nil {
			s.offered, _ = featuresOf(p.Capabilities.Features) // Decode reports the error
			s.auth = p.auth()
		}
		s.first.hello, s.first.err = p, err
	case SessionResume:
		if !env.Timestamp.IsZero() && !hasDraftToken(&env) {
			return nil, ErrOtherDialect
		}
	default:
		return nil, ErrOtherDialect
	}
	s.SetProfile(Recognise(&env))
	return s, nil
}

// openingFrame is the decoded first frame of a connection.
type openingFrame struct {
	env   arcp.Envelope
	hello HelloPayload // of a session.hello
	err   error        // of the envelope or, of a session.hello, of its payload
}

// isBadHello reports whether a frame that cannot be decoded was meant to be a session.hello.
func isBadHello(frame []byte) bool {
	return bytes.Contains(frame, []byte(`"`+SessionHello+`"`)) && !bytes.Contains(frame, []byte(`"`+arcp.SessionOpen+`"`))
}

// ResumePrefix is the start of the resume tokens of sessions of the dialect.
const ResumePrefix = "rtd_"

// hasDraftToken reports whether a session.resume has the token of a session of the dialect.
func hasDraftToken(env *arcp.Envelope) bool {
	p, err := arcp.DecodePayload[ResumePayload](env)
	return err == nil && strings.HasPrefix(cmp.Or(p.ResumeToken, p.Token), ResumePrefix)
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
func (s *ServerCodec) SetProfile(p Profile) { s.profile, s.quirks = p, p.quirks() }

// CorrelatesEnds reports whether the end of a job has the correlation id of the submit for the client.
// The other clients find the job of an event by its id only.
func (s *ServerCodec) CorrelatesEnds() bool { return s.quirks.correlatesEnd }

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
	dst, wraps := s.begin(dst, seq, submit, e)
	dst, err := appendBody(dst, e, s.quirks, true)
	if err != nil {
		return dst[:start], err
	}
	if wraps {
		dst = append(dst, "}}"...)
	}
	s.sent(seq, e)
	return dst, nil
}

// AppendEventFrame is AppendEvent for an event that EventBody has encoded in the Form of the session.
func (s *ServerCodec) AppendEventFrame(dst []byte, seq uint64, submit arcp.MessageID, b *Body) []byte {
	dst, wraps := s.begin(dst, seq, submit, b.event)
	dst = append(dst, b.JSON...)
	if wraps {
		dst = append(dst, "}}"...)
	}
	s.sent(seq, b.event)
	return dst
}

// begin appends the members of a frame before the Body of an event. For the PHP library it first
// begins the subscribe.event that has the frame of a followed job as its payload.event. wraps says
// that the Body must be followed by the ends of both objects.
func (s *ServerCodec) begin(dst []byte, seq uint64, submit arcp.MessageID, e *Event) (_ []byte, wraps bool) {
	if s.quirks.wrapsSubscribed && s.pending.follows(arcp.JobID(inner(e.JobID))) {
		o := object{dst: s.appendHead(dst, seq)}
		o.raw("id", e.ID)
		o.text("type", string(SubscribeEvent))
		o.raw("timestamp", appendTimestamp(nil, e.Timestamp))
		o.raw("job_id", e.JobID)
		o.name("payload")
		dst, wraps = append(o.dst, `{"event":`...), true
	}
	dst = s.appendHead(dst, seq)
	if s.quirks.correlatesEnd && submit != "" && e.Type.Terminal() {
		dst = append(arcp.AppendString(append(dst, `"correlation_id":`...), string(submit)), ',')
	}
	return dst, wraps
}

func (s *ServerCodec) appendHead(dst []byte, seq uint64) []byte {
	return append(strconv.AppendUint(append(dst, s.head...), seq, 10), ',')
}

// sent records that an event was appended.
func (s *ServerCodec) sent(seq uint64, e *Event) {
	s.lastSeq = seq
	if e.Type.Terminal() {
		s.pending.end(arcp.JobID(inner(e.JobID)))
	}
}

// Frames are encoded frames, one after the other.
type Frames struct {
	Data []byte
	Ends []int // end of each frame in Data
}

// All returns the frames in order. They share the memory of Data.
func (f *Frames) All() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		start := 0
		for _, end := range f.Ends {
			if !yield(f.Data[start:end:end]) {
				return
			}
			start = end
		}
	}
}

// AppendAnswer appends the frames of a message of the runtime that is not an event of a job: 0,
// 1 or several. The client's connection ends after the frames of a session.rejected,
// session.unauthenticated or session.evicted. The error of a page of jobs that is too large is a
// *TooLargeError. The request then still waits for an answer: a nack with its id fails it.
// With an error nothing is appended.
func (s *ServerCodec) AppendAnswer(frames *Frames, now time.Time, env *arcp.Envelope) error {
	write, ok := answers[env.Type]
	if !ok {
		return nil
	}
	a := answerPool.Get().(*answer)
	*a = answer{s: s, now: now, env: env, frames: *frames}
	a.request, a.known = s.pending.take(env.CorrelationID)
	if a.request.id == "" {
		a.request.id = env.CorrelationID
	}
	err := write(a)
	if err == nil {
		*frames = a.frames
	} else if a.request.kind != requestOther {
		s.pending.add(a.request)
	}
	*a = answer{}
	answerPool.Put(a)
	return err
}

var answerPool = sync.Pool{New: func() any { return new(answer) }}

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
		p.requests = slices.Delete(p.requests, 0, 1)
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
			p.requests = slices.Delete(p.requests, i, i+1)
			return r, true
		}
	}
	return request{}, p.dropped && id != ""
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
