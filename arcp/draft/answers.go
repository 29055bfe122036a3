package draft

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// TooLargeError says that a frame would be larger than MaxFrame. A result must be sent in
// chunks, a list in smaller pages.
type TooLargeError struct {
	Type arcp.Type
	Size int // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("draft: the frame of %s has %d bytes, at most %d are allowed", e.Type, e.Size, MaxFrame)
}

// answer is an envelope that is being encoded.
type answer struct {
	s       *ServerCodec
	now     time.Time
	env     *arcp.Envelope
	request request // with the correlation id of the envelope
	known   bool    // the request was made on this connection
	frames  Frames
}

// answers has the encoders of the messages that are not events of jobs. Others have no frame.
var answers = map[arcp.Type]func(*answer) error{
	arcp.SessionAccepted:        (*answer).accepted,
	arcp.SessionResumed:         (*answer).resumed,
	arcp.SessionChallenge:       (*answer).challenged,
	arcp.SessionRejected:        (*answer).failed,
	arcp.SessionUnauthenticated: (*answer).failed,
	arcp.SessionEvicted:         (*answer).evicted,
	arcp.SessionClose:           (*answer).closing,
	arcp.SessionClosed:          (*answer).closed,
	arcp.SessionPing:            (*answer).ping,
	arcp.SessionPong:            (*answer).pong,
	arcp.Ping:                   (*answer).ping,
	arcp.Pong:                   (*answer).pong,
	arcp.SessionJobs:            (*answer).jobs,
	arcp.JobAccepted:            (*answer).jobAccepted,
	arcp.JobSubscribed:          (*answer).subscribed,
	arcp.CancelAccepted:         (*answer).cancelAccepted,
	arcp.CancelRefused:          (*answer).cancelRefused,
	arcp.Nack:                   (*answer).failed,
	arcp.JobFailed:              (*answer).failed, // that refuses a submit
	arcp.ToolError:              (*answer).failed, // that refuses a submit
}

// frame is an outbound message without the members that all have.
type frame struct {
	t          Type
	job        arcp.JobID
	trace      string
	extensions arcp.Raw // nil: none
	noSession  bool     // TypeScript ignores a frame without session_id
	echo       bool     // the frame has the id of the request, whatever the profile
	unrelated  bool     // the frame has no correlation_id
	payload    any
}

// send appends a frame.
func (a *answer) send(f frame) error {
	o := a.begin(&f)
	var err error
	if o.dst, err = arcp.AppendJSON(o.dst, f.payload); err != nil {
		return err
	}
	return a.end(&o)
}

// begin appends the members of a frame before the value of its payload. The caller appends the value, and
// calls end.
func (a *answer) begin(f *frame) object {
	if a.s.id == "" && !f.noSession {
		a.s.setID(arcp.SessionID(a.s.newID(arcp.SessionPrefix)))
	}
	o := begin(a.frames.Data)
	o.text("arcp", arcp.Version)
	if (a.s.quirks.echoesRequestID || f.echo) && a.request.id != "" {
		o.text("id", string(a.request.id))
	} else {
		o.text("id", a.s.newID(arcp.MessagePrefix))
	}
	o.text("type", string(f.t))
	if !f.noSession {
		o.text("session_id", string(a.s.id))
	}
	o.time("timestamp", a.now)
	o.optional("job_id", string(f.job))
	o.optional("trace_id", traceOrNone(f.trace))
	if !f.unrelated {
		o.optional("correlation_id", string(a.request.id))
	}
	o.raw("extensions", f.extensions)
	o.name("payload")
	return o
}

// end ends a frame.
func (a *answer) end(o *object) error {
	start := 0
	if n := len(a.frames.Ends); n > 0 {
		start = a.frames.Ends[n-1]
	}
	data := o.end()
	if size := len(data) - start; size > MaxFrame {
		return &TooLargeError{a.env.Type, size}
	}
	oneLine(data[start:])
	a.frames.Data, a.frames.Ends = data, append(a.frames.Ends, len(data))
	return nil
}

func (a *answer) correlation() Correlation { return correlation(a.request.id) }

func (a *answer) accepted() error {
	p, ok := readAccepted(a.env.Payload)
	if !ok {
		return fmt.Errorf("draft: the payload of %s is not an object", a.env.Type)
	}
	return a.sendWelcome(&p)
}

// readAccepted decodes the payload of a session.accepted. The capabilities stay encoded. They are most
// of the payload; those of the session before, which are nearly always the same, are not read.
func readAccepted(raw arcp.Raw) (p arcp.SessionAcceptedPayload, ok bool) {
	const member = `"capabilities":` // the first one is the member: quotes within strings are escaped
	if before, after, found := bytes.Cut(raw, []byte(member)); found {
		if known := agreements.lastIn(after); len(known) > len("{}") {
			rest := slices.Concat(before, []byte(member+"{}"), after[len(known):])
			p, ok = readAccepted(rest)
			p.Capabilities.Encoded = known
			return p, ok
		}
	}
	ok = eachMember(raw, func(name []byte, value arcp.Raw) bool {
		switch string(name) {
		case "session_id":
			p.SessionID = arcp.SessionID(textOf(value))
		case "runtime":
			return eachMember(value, func(name []byte, value arcp.Raw) bool {
				switch string(name) {
				case "kind":
					p.Runtime.Kind = textOf(value)
				case "version":
					p.Runtime.Version = textOf(value)
				}
				return true
			})
		case "capabilities":
			p.Capabilities.Encoded = value
		case "resume_token":
			p.ResumeToken = textOf(value)
		case "resume_window_sec":
			p.ResumeWindowSec = intOf(value)
		case "heartbeat_interval_sec":
			p.HeartbeatIntervalSec = intOf(value)
		}
		return true
	})
	return p, ok
}

// intOf returns a JSON number as an integer; 0 if raw is something else.
func intOf(raw arcp.Raw) int64 {
	n, _ := strconv.ParseInt(string(raw), 10, 64)
	return n
}

func (a *answer) resumed() error {
	p, err := arcp.DecodePayload[arcp.SessionResumedPayload](a.env)
	if err != nil {
		return err
	}
	a.s.lastSeq = p.ReplayedFrom
	var d arcp.SessionAcceptedPayload
	if a.s.described != nil {
		d = *a.s.described
	}
	d.SessionID, d.ResumeToken = p.SessionID, p.ResumeToken
	return a.sendWelcome(&d)
}

// sendWelcome sends a WelcomePayload. It encodes the payload without reflection, and copies the
// inventory as it is.
func (a *answer) sendWelcome(p *arcp.SessionAcceptedPayload) error {
	a.s.setID(p.SessionID)
	agreed := a.agreement(&p.Capabilities)
	token := p.ResumeToken
	if token == "" { // TypeScript and F# require one; this one resumes nothing
		token = a.s.newID("rt_")
	}
	name, version := cmp.Or(p.Runtime.Kind, "arcp"), cmp.Or(p.Runtime.Version, "0")
	o := begin(make([]byte, 0, 1024+len(agreed.agents)))
	o.text("session_id", string(p.SessionID))
	o.name("runtime")
	runtime := begin(o.dst)
	runtime.text("name", name)
	runtime.text("version", version)
	o.dst = runtime.end()
	o.text("runtime_name", name)
	o.text("runtime_version", version)
	o.time("accepted_at", a.now)
	o.text("resume_token", token)
	o.uint("resume_window_sec", uint64(max(p.ResumeWindowSec, 1)))
	if p.HeartbeatIntervalSec > 0 && slices.Contains(agreed.features, string(arcp.FeatureHeartbeat)) {
		o.uint("heartbeat_interval_sec", uint64(p.HeartbeatIntervalSec))
	}
	o.name("capabilities")
	o.dst = agreed.append(o.dst)
	o.correlation(a.correlation())
	return a.send(frame{t: SessionWelcome, extensions: vendorExtensions(a.env.Extensions), payload: arcp.Raw(o.end())})
}

// agreement returns the features that the runtime agreed to and the client has offered, and the
// inventory.
func (a *answer) agreement(c *arcp.Capabilities) agreement {
	encoded := c.Encoded
	if encoded == nil {
		encoded = c.AppendJSON(nil)
	}
	g := agreements.of(encoded)
	if a.s.offered != nil {
		g.features = slices.DeleteFunc(slices.Clone(g.features), func(f string) bool { return !slices.Contains(a.s.offered, f) })
	}
	return g
}

// vendorExtensions returns extensions under the names that TypeScript accepts: x-vendor.arcp.NAME
// for arcpx.arcp.NAME. It omits others.
func vendorExtensions(raw arcp.Raw) arcp.Raw {
	if raw.Kind() != '{' {
		return nil
	}
	o := begin(nil)
	arcp.EachMember(raw, func(name []byte, value arcp.Raw) bool {
		if rest, ok := strings.CutPrefix(string(name), "arcpx."); ok {
			o.quoted("x-vendor."+rest, value)
		}
		return true
	})
	if !o.some {
		return nil
	}
	return o.end()
}

// challenged fails the handshake: the dialect has no challenge.
func (a *answer) challenged() error {
	e := arcp.Errorf(arcp.CodeUnauthenticated, "the credential must be proven, which this dialect cannot do")
	return a.handshakeFailure(failureOf(e, aboutAny))
}

func (a *answer) evicted() error {
	p, err := arcp.DecodePayload[arcp.SessionEvictedPayload](a.env)
	if err != nil {
		return err
	}
	f := failureOf(arcp.Errorf(p.Code, "%s", p.Reason), aboutAny)
	return a.send(frame{t: SessionError, payload: ErrorPayload{Failure: f, Correlation: a.correlation()}})
}

// closing announces that the runtime shuts down.
func (a *answer) closing() error {
	p, err := arcp.DecodePayload[arcp.SessionClosePayload](a.env)
	if err != nil {
		return err
	}
	return a.send(frame{t: SessionBye, payload: ClosePayload{p.Reason}})
}

func (a *answer) closed() error {
	p, err := arcp.DecodePayload[arcp.SessionClosedPayload](a.env)
	if err != nil {
		return err
	}
	return a.send(frame{t: SessionClosed, payload: ClosedPayload{p.Reason, a.correlation()}})
}

func (a *answer) ping() error {
	p, err := arcp.DecodePayload[arcp.PingPayload](a.env)
	if err != nil {
		return err
	}
	return a.send(frame{t: SessionPing, payload: PingPayload{cmp.Or(p.Nonce, a.s.newID("p_")), Time{a.now}}})
}

func (a *answer) pong() error {
	p, err := arcp.DecodePayload[struct {
		PingNonce string `json:"ping_nonce"`
		Nonce     string `json:"nonce"`
	}](a.env)
	if err != nil {
		return err
	}
	return a.send(frame{t: SessionPong, payload: PongPayload{cmp.Or(p.PingNonce, p.Nonce), Time{a.now}}})
}

func (a *answer) jobs() error {
	p, err := arcp.DecodePayload[arcp.SessionJobsPayload](a.env)
	if err != nil {
		return err
	}
	page := JobsPayload{
		Jobs:        make([]JobEntry, len(p.Jobs)),
		NextCursor:  p.NextCursor,
		Correlation: correlation(cmp.Or(a.request.id, p.RequestID)),
	}
	for i, j := range p.Jobs {
		created := Time{j.CreatedAt}
		page.Jobs[i] = JobEntry{JobID: j.JobID, Agent: j.Agent, Status: statusOf(j.Status), Lease: a.lease(j.Lease), ParentJobID: j.ParentJobID,
			CreatedAt: created, SubmittedAt: created, TraceID: traceOrNone(j.TraceID), LastEventSeq: j.LastEventSeq}
	}
	return a.send(frame{t: SessionJobs, payload: page})
}

// jobAccepted never sends an accept that the client did not ask for: most libraries give it to
// the oldest pending submit. TypeScript finds the submit by the trace id of the envelope. This is the
// trace id of the request. The trace id of the job may be another: an earlier submit with the same
// idempotency key has set it.
func (a *answer) jobAccepted() error {
	p, ok := readAcceptedJob(a.env.Payload)
	switch {
	case !ok:
		return fmt.Errorf("draft: the payload of %s is not an object", a.env.Type)
	case !a.known || a.request.id == "":
		return nil
	}
	job, trace := arcp.JobID(textOf(p.jobID)), traceOrNone(cmp.Or(a.env.TraceID, textOf(p.traceID)))
	a.s.pending.hold(job, handleSubmitted)
	o := a.begin(&frame{
		t:         JobAccepted,
		job:       job,
		trace:     cmp.Or(a.request.trace, trace),
		unrelated: a.s.quirks.correlatesEnd,
	})
	payload := begin(o.dst)
	payload.raw("job_id", p.jobID)
	payload.raw("agent", p.agent)
	payload.raw("lease", a.lease(p.lease))
	payload.constraints(constraintsOf(p.constraints))
	payload.raw("budget", a.budget(p.budget))
	payload.credentials(a.credentials(p.credentials))
	payload.raw("parent_job_id", p.parent)
	if len(p.acceptedAt) > 0 {
		payload.name("accepted_at")
		payload.dst = appendTimestamp(payload.dst, p.acceptedAt)
	} else {
		payload.time("accepted_at", a.now)
	}
	payload.optional("trace_id", trace)
	payload.correlation(a.correlation())
	o.dst = payload.end()
	return a.end(&o)
}

// acceptedJob is an arcp.JobAcceptedPayload. Most of its members stay encoded.
type acceptedJob struct {
	jobID, agent, lease, budget, parent, acceptedAt, traceID arcp.Raw

	constraints *arcp.LeaseConstraints
	credentials []arcp.Credential
}

// readAcceptedJob decodes a payload that the runtime wrote.
func readAcceptedJob(raw arcp.Raw) (p acceptedJob, ok bool) {
	ok = eachMember(raw, func(name []byte, value arcp.Raw) bool {
		switch string(name) {
		case "job_id":
			p.jobID = value
		case "agent":
			p.agent = value
		case "lease":
			p.lease = value
		case "lease_constraints":
			return arcp.Unmarshal(value, &p.constraints) == nil
		case "budget":
			p.budget = value
		case "credentials":
			return arcp.Unmarshal(value, &p.credentials) == nil
		case "parent_job_id":
			p.parent = value
		case "accepted_at":
			p.acceptedAt = value
		case "trace_id":
			p.traceID = value
		}
		return true
	})
	return p, ok
}

func (a *answer) subscribed() error {
	p, err := arcp.DecodePayload[arcp.JobSubscribedPayload](a.env)
	if err != nil {
		return err
	}
	trace := traceOrNone(cmp.Or(a.env.TraceID, p.TraceID))
	if p.Replayed || p.CurrentStatus != StatusTimedOut && !arcp.JobState(p.CurrentStatus).Terminal() {
		a.s.pending.hold(p.JobID, handleFollowed)
	}
	return a.send(frame{
		t:     JobSubscribed,
		job:   p.JobID,
		trace: trace,
		payload: SubscribedPayload{
			JobID:            p.JobID,
			CurrentStatus:    statusOf(p.CurrentStatus),
			Agent:            p.Agent,
			Lease:            a.lease(p.Lease),
			LeaseConstraints: constraintsOf(p.LeaseConstraints),
			Budget:           a.budget(p.Budget),
			Credentials:      a.credentials(p.Credentials),
			ParentJobID:      p.ParentJobID,
			TraceID:          trace,
			SubscribedFrom:   a.s.lastSeq,
			Replayed:         p.Replayed,
			Correlation:      a.correlation(),
		},
	})
}

func (a *answer) cancelAccepted() error {
	p, err := arcp.DecodePayload[arcp.CancelAcceptedPayload](a.env)
	if err != nil {
		return err
	}
	job := cmp.Or(arcp.JobID(p.TargetID), a.request.job, a.env.JobID)
	if job == "" {
		return nil
	}
	return a.send(frame{t: JobCancelled, job: job, trace: a.env.TraceID, payload: CancelledPayload{job, a.request.reason, a.correlation()}})
}

// cancelRefused ignores the cancel of a job that has ended: the libraries would fail other calls on an
// answer, and the terminal event of the job may be on the way.
func (a *answer) cancelRefused() error {
	p, err := arcp.DecodePayload[arcp.CancelRefusedPayload](a.env)
	ended := p.Reason == "already_terminal"
	if err != nil || ended && !a.s.quirks.answersEveryCancel {
		return err
	}
	code := p.Code
	switch {
	case code != "":
	case ended:
		code = arcp.CodeFailedPrecondition
	case p.Reason == "not_found":
		code = arcp.CodeJobNotFound
	case p.Reason == "permission_denied":
		code = arcp.CodePermissionDenied
	default:
		code = arcp.CodeInvalidRequest
	}
	e := arcp.Errorf(code, "%s", cmp.Or(p.Message, "cancel refused: "+p.Reason))
	e.Details = p.Details
	return a.s.quirks.cancel(a, failureOf(e, aboutJob))
}

// failed answers a request that was refused, in the form of the profile.
func (a *answer) failed() error {
	e, err := arcp.DecodePayload[arcp.Error](a.env)
	switch {
	case err != nil:
		return err
	case a.request.kind == requestResume:
		return a.handshakeFailure(failureOf(&e, aboutResume))
	case a.request.kind == requestOpen, a.env.Type == arcp.SessionRejected, a.env.Type == arcp.SessionUnauthenticated:
		return a.handshakeFailure(failureOf(&e, aboutAny))
	case !a.known:
		return nil
	}
	switch a.request.kind {
	case requestSubmit:
		return a.s.quirks.submit(a, failureOf(&e, aboutSubmit))
	case requestList:
		return a.s.quirks.list(a, failureOf(&e, aboutAny))
	case requestSubscribe:
		return a.s.quirks.subscribe(a, failureOf(&e, aboutJob))
	case requestCancel:
		return a.s.quirks.cancel(a, failureOf(&e, aboutJob))
	}
	return a.s.quirks.unknownType(a, failureOf(&e, aboutAny))
}

// lease returns a lease with the dotted names only: a lease of package arcp may have both
// spellings of a name and the end of the lease.
func (a *answer) lease(raw arcp.Raw) arcp.Raw {
	if a.s.quirks.omitsLease {
		return nil
	}
	return dotted(raw)
}

func dotted(raw arcp.Raw) arcp.Raw {
	o := begin(nil)
	if raw.Kind() == '{' {
		arcp.EachMember(raw, func(name []byte, value arcp.Raw) bool {
			if areTexts(value) && !aliases[string(name)] {
				o.quoted(string(name), value)
			}
			return true
		})
	}
	return o.end()
}

// areTexts reports whether raw is a list of texts that are not empty.
func areTexts(raw arcp.Raw) bool { return eachText(raw, func(arcp.Raw) {}) }

// eachText calls fn for each text of a list, and reports whether raw is a list of texts that are not
// empty.
func eachText(raw arcp.Raw, fn func(text arcp.Raw)) bool {
	if raw.Kind() != '[' {
		return false
	}
	for rest := raw[1 : len(raw)-1]; ; {
		rest = bytes.TrimLeft(rest, ", \t\r\n")
		if len(rest) == 0 {
			return true
		}
		end := textEnd(rest)
		if end <= len(`""`) {
			return false
		}
		fn(rest[:end])
		rest = rest[end:]
	}
}

// textEnd returns the length of the JSON string that begins valid JSON text; 0: another value begins.
func textEnd(raw []byte) int {
	if raw[0] != '"' {
		return 0
	}
	for i := 1; ; i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// aliases are the second spellings of the lease namespaces.
var aliases = func() map[string]bool {
	m := make(map[string]bool)
	for _, namespace := range arcp.Namespaces {
		if alias := strings.ReplaceAll(namespace, ".", "_"); alias != namespace {
			m[alias] = true
		}
	}
	return m
}()

func constraintsOf(c *arcp.LeaseConstraints) *LeaseConstraints {
	if c == nil || c.ExpiresAt.IsZero() {
		return nil
	}
	return &LeaseConstraints{Time{c.ExpiresAt}}
}

// budget returns the amounts by currency in the form of the profile.
func (a *answer) budget(raw arcp.Raw) arcp.Raw {
	if raw.Kind() != '{' || bytes.Equal(raw, []byte("{}")) {
		return nil
	}
	o := begin(nil)
	arcp.EachMember(raw, func(name []byte, value arcp.Raw) bool {
		text := string(bytes.Trim(value, `"`))
		switch {
		case a.s.quirks.budgetTexts:
			o.quoted(string(name), arcp.AppendString(nil, text))
		case arcp.Raw(text).Kind() == '0':
			o.quoted(string(name), arcp.Raw(text))
		}
		return true
	})
	return o.end()
}

// credentials returns the credentials that the profile can decode.
func (a *answer) credentials(list []arcp.Credential) []arcp.Credential {
	return slices.DeleteFunc(slices.Clone(list), func(c arcp.Credential) bool {
		return c.ID == "" || c.Value == "" || c.Endpoint == "" || a.s.quirks.bearerOnly && c.Scheme != "bearer"
	})
}

func timeOr(t, otherwise time.Time) time.Time {
	if t.IsZero() {
		return otherwise
	}
	return t
}
