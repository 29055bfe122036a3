package draft

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Refusal is the error of a frame that the runtime does not act on. AppendAnswer encodes its Nack
// as the profile demands, often as no frame at all.
type Refusal struct {
	Request arcp.MessageID // identifier of the frame; empty: it is not answered, unless it is the first
	Type    Type           // empty: not known
	Err     *arcp.Error    // why
	Cause   error          // an *arcp.EncodingError, or nil
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Cause }

// Nack returns the answer in the terms of package arcp.
func (r *Refusal) Nack() arcp.Envelope {
	env := arcp.Frame(arcp.Nack, *r.Err)
	env.CorrelationID = r.Request
	return env
}

// Decode returns the message of package arcp that is equivalent to a frame of the client. Its
// timestamp may be zero. The error is an *arcp.EncodingError or a *Refusal.
//
// Calls of Decode must not overlap each other. They may overlap calls of the other methods.
func (s *ServerCodec) Decode(frame []byte) (arcp.Envelope, error) {
	if s.first != nil {
		return s.decodeFirst()
	}
	env, err := arcp.DecodeDraft(frame)
	if err != nil {
		return arcp.Envelope{}, s.refuseFrame(frame, err)
	}
	m := Lookup(Type(env.Type))
	switch {
	case m == nil || m.decode == nil:
		return arcp.Envelope{}, s.refuseType(&env)
	case m.Phase == arcp.InOpening:
		return arcp.Envelope{}, s.ignore(&env, "the session is open")
	}
	return s.decodeRequest(&env, m, m.decode)
}

// decodeFirst returns the message of the frame that NewServerCodec was called with.
func (s *ServerCodec) decodeFirst() (arcp.Envelope, error) {
	first := s.first
	s.first = nil
	m := Lookup(Type(first.env.Type))
	switch {
	case m == nil:
		return arcp.Envelope{}, s.refuseHello(first.err)
	case m.Type == SessionHello:
		return s.decodeRequest(&first.env, m, func(env *arcp.Envelope, r *request) error {
			if first.err != nil {
				return first.err
			}
			return openSession(env, r, &first.hello)
		})
	}
	return s.decodeRequest(&first.env, m, m.decode)
}

// decodeRequest returns the message of a frame whose payload decode decodes.
func (s *ServerCodec) decodeRequest(env *arcp.Envelope, m *Message, decode func(*arcp.Envelope, *request) error) (arcp.Envelope, error) {
	r := request{kind: m.request, id: env.ID, trace: traceOrNone(env.TraceID), job: env.JobID}
	strip(env)
	if err := decode(env, &r); err != nil {
		s.pending.add(r)
		return arcp.Envelope{}, &Refusal{Request: r.id, Type: m.Type, Err: arcp.PayloadError(arcp.Type(m.Type), err)}
	}
	switch r.kind {
	case requestOther:
	case requestUnsubscribe:
		s.pending.leave(r.job)
	default:
		s.pending.add(r)
	}
	return *env, nil
}

// ReadAck decodes a plain acknowledgement of a session; see arcp.ReadDraftAck. It may be called as
// Decode.
func (s *ServerCodec) ReadAck(frame []byte, id arcp.SessionID) (seq uint64, ok bool) {
	return arcp.ReadDraftAck(frame, id)
}

// refuseHello returns the error of a first frame that cannot be decoded. It fails the handshake, also
// if the identifier of the frame cannot be read.
func (s *ServerCodec) refuseHello(err error) error {
	refused := &Refusal{
		Type:  SessionHello,
		Err:   arcp.Errorf(arcp.CodeInvalidRequest, "%s cannot be decoded: %s", SessionHello, err.Error()),
		Cause: err,
	}
	if bad, ok := err.(*arcp.EncodingError); ok {
		refused.Request, refused.Err.Message = bad.ID, string(SessionHello)+" cannot be decoded: "+bad.Message
	}
	s.pending.add(request{kind: requestOpen, id: refused.Request})
	return refused
}

// refuseFrame returns the error of a frame that is not an envelope. If the type can be read, the
// request fails like one that the runtime refuses.
func (s *ServerCodec) refuseFrame(frame []byte, err error) error {
	bad, ok := err.(*arcp.EncodingError)
	if !ok || bad.ID == "" {
		return err
	}
	r := request{kind: requestUnknown, id: bad.ID}
	var head struct {
		Type    Type   `json:"type"`
		TraceID string `json:"trace_id"`
	}
	if arcp.Unmarshal(frame, &head) == nil {
		if m := Lookup(head.Type); m != nil && m.request != requestOther {
			r.kind, r.trace = m.request, traceOrNone(head.TraceID)
		}
	}
	s.pending.add(r)
	return &Refusal{Request: bad.ID, Type: head.Type, Err: arcp.Errorf(arcp.CodeInvalidRequest, "%s", bad.Message), Cause: bad}
}

// refuseType returns the error of a frame with an unknown type. Vendor types and optional
// messages are never answered.
func (s *ServerCodec) refuseType(env *arcp.Envelope) error {
	if strings.HasPrefix(string(env.Type), "x-") || env.OptionalExtension() {
		return s.ignore(env, "unknown type")
	}
	s.pending.add(request{kind: requestUnknown, id: env.ID})
	return &Refusal{Request: env.ID, Type: Type(env.Type), Err: arcp.Errorf(arcp.CodeInvalidRequest, "unknown message type %q", env.Type)}
}

// ignore returns a refusal that is not answered.
func (s *ServerCodec) ignore(env *arcp.Envelope, why string) error {
	return &Refusal{Type: Type(env.Type), Err: arcp.Errorf(arcp.CodeInvalidRequest, "%s: %s", env.Type, why)}
}

// strip removes the members that mean something else in package arcp, or nothing to the
// runtime: a connection of the draft dialect has one session and executes no jobs.
func strip(env *arcp.Envelope) {
	env.SessionID, env.JobID, env.StreamID, env.SubscriptionID = "", "", "", ""
	env.CorrelationID, env.CausationID = "", ""
	env.SpanID, env.ParentSpanID, env.Source, env.Target = "", "", "", ""
	env.EventSeq, env.Priority, env.Extensions = 0, arcp.PriorityNormal, nil
}

// textOf returns the text of a JSON string; empty if raw is something else.
func textOf(raw arcp.Raw) string {
	if raw.Kind() != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var text string
	if arcp.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// maxReason bounds the reason that is repeated in job.cancelled, in bytes.
const maxReason = 1024

// encode replaces the type and the payload of an envelope.
func encode(env *arcp.Envelope, t arcp.Type, payload any) error {
	raw, err := arcp.Marshal(payload)
	if err != nil {
		return err
	}
	env.Type, env.Payload = t, raw
	return nil
}

// readHello decodes the payload of a session.hello.
func readHello(env *arcp.Envelope) (HelloPayload, error) {
	var p HelloPayload
	if p.decodeFast(env.Payload) {
		return p, nil
	}
	return arcp.DecodePayload[HelloPayload](env)
}

func decodeHello(env *arcp.Envelope, r *request) error {
	p, err := readHello(env)
	if err != nil {
		return err
	}
	return openSession(env, r, &p)
}

// openSession replaces a session.hello by the message that opens or resumes a session.
func openSession(env *arcp.Envelope, r *request, p *HelloPayload) error {
	switch {
	case p.Resume != nil:
		r.kind = requestResume
		return resume(env, p.Resume)
	case p.ResumeToken != "":
		r.kind = requestResume
		return resume(env, &ResumePayload{ResumeToken: p.ResumeToken, LastEventSeq: p.LastEventSeq})
	}
	features, err := featuresOf(p.Capabilities.Features)
	if err != nil {
		return err
	}
	return encode(env, arcp.SessionOpen, arcp.SessionOpenPayload{
		Auth: p.auth(),
		Client: arcp.ClientInfo{
			Kind:        cmp.Or(p.Client.Name, p.ClientName, p.Client.Kind, "unknown"),
			Version:     cmp.Or(p.Client.Version, p.ClientVersion, "0"),
			Fingerprint: p.Client.Fingerprint,
			Principal:   p.Client.Principal,
		},
		Capabilities: arcp.Capabilities{Features: features, Encodings: []string{"json"}},
	})
}

// schemeNone is the scheme of a client without credentials.
const schemeNone = "none"

// auth returns the credentials: none of any form is the scheme none.
func (h *HelloPayload) auth() arcp.Auth {
	scheme := strings.ToLower(cmp.Or(h.Auth.Scheme, h.Auth.Type))
	switch {
	case scheme == "" && h.Auth.Token != "":
		scheme = "bearer"
	case scheme == "" || scheme == "anonymous":
		scheme = schemeNone
	}
	return arcp.Auth{Scheme: scheme, Token: h.Auth.Token}
}

// featuresOf reads a list of names or, from PHP, an object of booleans.
func featuresOf(raw arcp.Raw) ([]string, error) {
	list := make([]string, 0, 16) // more than any library offers
	if raw.Kind() != '{' {
		if eachText(raw, func(text arcp.Raw) { list = append(list, textOf(text)) }) {
			return list, nil
		}
		list = list[:0]
		if len(raw) > 0 && raw.Kind() != 'n' {
			if err := arcp.Unmarshal(raw, &list); err != nil {
				return nil, arcp.Errorf(arcp.CodeInvalidRequest, "payload member \"capabilities/features\" must be a list of names or an object of booleans")
			}
		}
		return list, nil
	}
	arcp.EachMember(raw, func(name []byte, value arcp.Raw) bool {
		if string(value) == "true" {
			list = append(list, string(name))
		}
		return true
	})
	return list, nil
}

func decodeResume(env *arcp.Envelope, _ *request) error {
	p, err := arcp.DecodePayload[ResumePayload](env)
	if err != nil {
		return err
	}
	return resume(env, &p)
}

func resume(env *arcp.Envelope, p *ResumePayload) error {
	token := cmp.Or(p.ResumeToken, p.Token)
	if token == "" {
		return arcp.Errorf(arcp.CodeInvalidRequest, "payload member %q is required", "resume_token")
	}
	if p.SessionID != "" && !arcp.ValidID(string(p.SessionID)) {
		return arcp.Errorf(arcp.CodeInvalidRequest, "payload member %q is not an identifier", "session_id")
	}
	env.SessionID = p.SessionID
	return encode(env, arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: token, LastEventSeq: p.LastEventSeq})
}

func decodePing(env *arcp.Envelope, _ *request) error {
	p, err := arcp.DecodePayload[struct {
		Nonce string `json:"nonce"`
	}](env)
	if err != nil {
		return err
	}
	if p.Nonce == "" { // the libraries refuse a pong without one
		return arcp.Errorf(arcp.CodeInvalidRequest, "payload member %q is required", "nonce")
	}
	return encode(env, arcp.SessionPing, arcp.SessionPingPayload{Nonce: p.Nonce, SentAt: env.Timestamp})
}

// decodePong ignores received_at, which Go leaves zero.
func decodePong(env *arcp.Envelope, _ *request) error {
	p, err := arcp.DecodePayload[struct {
		PingNonce string `json:"ping_nonce"`
	}](env)
	if err != nil {
		return err
	}
	return encode(env, arcp.SessionPong, arcp.SessionPongPayload{PingNonce: p.PingNonce, ReceivedAt: env.Timestamp})
}

func decodeAck(env *arcp.Envelope, _ *request) error {
	p, err := arcp.DecodeComplete[AckPayload](env)
	if err != nil {
		return err
	}
	return encode(env, arcp.SessionAck, arcp.SessionAckPayload{LastProcessedSeq: p.LastProcessedSeq})
}

func decodeClose(env *arcp.Envelope, _ *request) error {
	p, err := arcp.DecodePayload[ClosePayload](env)
	if err != nil {
		return err
	}
	return encode(env, arcp.SessionClose, arcp.SessionClosePayload{Reason: p.Reason})
}

// maxLimit is the number of jobs that a limit of 0 or less asks for.
const maxLimit = 1000

func decodeListJobs(env *arcp.Envelope, _ *request) error {
	p, err := arcp.DecodePayload[ListJobsPayload](env)
	if err != nil {
		return err
	}
	out := arcp.SessionListJobsPayload{Cursor: p.Cursor}
	if p.Limit != nil {
		limit := *p.Limit
		if limit <= 0 {
			limit = maxLimit
		}
		out.Limit = new(uint32(min(limit, math.MaxUint32)))
	}
	if f := p.Filter; f != nil {
		out.Filter = &arcp.JobFilter{Agent: f.Agent, CreatedAfter: endOfMillisecond(f.CreatedAfter), CreatedBefore: f.CreatedBefore}
		if out.Filter.Status, err = statesOf(f.Status); err != nil {
			return err
		}
	}
	return encode(env, arcp.SessionListJobs, out)
}

// endOfMillisecond returns the end of a whole millisecond, and any other time unchanged. The times in
// frames are in milliseconds: a job created later in the millisecond is not after it for the client.
func endOfMillisecond(t time.Time) time.Time {
	if t.IsZero() || t.Nanosecond()%int(time.Millisecond) != 0 {
		return t
	}
	return t.Add(time.Millisecond - time.Microsecond)
}

// statusWords are the states of jobs that a status word selects. A failed job has one of two words,
// which a filter names instead of the state.
var statusWords = []struct {
	word   string
	states []arcp.JobState
}{
	{statusPending, []arcp.JobState{arcp.StateAccepted, arcp.StateQueued}},
	{statusRunning, []arcp.JobState{arcp.StateRunning, arcp.StateBlocked, arcp.StatePaused}},
	{statusSuccess, []arcp.JobState{arcp.StateCompleted}},
	{statusError, []arcp.JobState{arcp.StateFailed}},
	{statusCancelled, []arcp.JobState{arcp.StateCancelled}},
	{StatusTimedOut, []arcp.JobState{arcp.StateFailed}},
}

// statusOf returns the status word of a state. A word stays as it is.
func statusOf(state string) string {
	for i := range statusWords {
		if row := &statusWords[i]; row.word == state || slices.Contains(row.states, arcp.JobState(state)) {
			return row.word
		}
	}
	return statusRunning
}

func statesOf(raw arcp.Raw) ([]string, error) {
	var words []string
	switch raw.Kind() {
	case 0, 'n':
		return nil, nil
	case '"':
		words = make([]string, 1)
		if err := arcp.Unmarshal(raw, &words[0]); err != nil {
			return nil, err
		}
	default:
		if err := arcp.Unmarshal(raw, &words); err != nil {
			return nil, arcp.Errorf(arcp.CodeInvalidRequest, "payload member %q must be a list of status words", "filter/status")
		}
	}
	var states []string
	for _, word := range words {
		i := slices.IndexFunc(statusWords, func(row struct {
			word   string
			states []arcp.JobState
		}) bool {
			return row.word == word
		})
		if i < 0 {
			return nil, arcp.Errorf(arcp.CodeInvalidRequest, "payload member %q has the unknown status %q", "filter/status", word)
		}
		selected := statusWords[i].states
		if word == statusError || word == StatusTimedOut {
			selected = []arcp.JobState{arcp.JobState(word)}
		}
		for _, state := range selected {
			if !slices.Contains(states, string(state)) {
				states = append(states, string(state))
			}
		}
	}
	return states, nil
}

// submitMembers are the members of job.submit that are used, with their names in tool.invoke.
var submitMembers = [...]struct{ from, to string }{
	{"agent", "tool"},
	{"input", "arguments"},
	{"max_runtime_sec", "max_runtime_sec"},
	{"lease_request", "lease_request"},
	{"lease_constraints", "lease_constraints"},
	{"idempotency_key", "idempotency_key"},
}

// decodeSubmit copies the members as they were received. The parent of a job is ignored: a
// client of the draft dialect executes no jobs.
func decodeSubmit(env *arcp.Envelope, r *request) error {
	env.Type = arcp.ToolInvoke
	var values [len(submitMembers)]arcp.Raw
	arcp.EachMember(env.Payload, func(name []byte, value arcp.Raw) bool {
		for i := range submitMembers {
			if submitMembers[i].from == string(name) && value.Kind() != 'n' {
				values[i] = value
			}
		}
		return true
	})
	agent, lease, constraints := values[0], &values[3], &values[4]
	if agent.Kind() != '"' || len(agent) <= len(`""`) {
		return arcp.Errorf(arcp.CodeInvalidRequest, "payload member %q must be the name of an agent", "agent")
	}
	if err := normalLease(lease, constraints); err != nil {
		return err
	}
	o := begin(make([]byte, 0, len(env.Payload)+64))
	for i, value := range values {
		o.raw(submitMembers[i].to, value)
	}
	env.Payload = o.end()
	r.agent = textOf(agent)
	return nil
}

// normalLease removes what Ruby adds to a lease request: capabilities, which have names without
// patterns and grant nothing, and expires_at, which belongs to the constraints.
func normalLease(lease, constraints *arcp.Raw) error {
	if len(*lease) == 0 {
		return nil
	}
	if lease.Kind() != '{' {
		return arcp.Errorf(arcp.CodeInvalidRequest, "payload member %q must be an object", "lease_request")
	}
	if memberOf(*lease, "capabilities") == nil && memberOf(*lease, "expires_at") == nil {
		return nil
	}
	var expires arcp.Raw
	o := begin(nil)
	arcp.EachMember(*lease, func(name []byte, value arcp.Raw) bool {
		switch string(name) {
		case "expires_at":
			expires = value
		case "capabilities", "id", "issued_at":
		default:
			o.quoted(string(name), value)
		}
		return true
	})
	if len(expires) > 0 && expires.Kind() != 'n' {
		if len(*constraints) > 0 { // the runtime uses the earlier of both
			o.raw("expires_at", expires)
		} else {
			c := begin(nil)
			c.raw("expires_at", expires)
			*constraints = c.end()
		}
	}
	*lease = o.end()
	return nil
}

// setJob sets the job of a request, which the envelope, the payload or both name.
func (r *request) setJob(inPayload arcp.JobID) error {
	id := cmp.Or(r.job, inPayload)
	switch {
	case id == "":
		return arcp.Errorf(arcp.CodeInvalidRequest, "payload member %q is required", "job_id")
	case inPayload != "" && inPayload != id:
		return arcp.Errorf(arcp.CodeInvalidRequest, "the envelope and the payload name different jobs")
	case !arcp.ValidID(string(id)):
		return arcp.Errorf(arcp.CodeInvalidRequest, "payload member %q is not an identifier", "job_id")
	}
	r.job = id
	return nil
}

func decodeCancel(env *arcp.Envelope, r *request) error {
	p, err := arcp.DecodePayload[CancelPayload](env)
	if err != nil {
		return err
	}
	if err := r.setJob(p.JobID); err != nil {
		return err
	}
	if len(p.Reason) <= maxReason {
		r.reason = p.Reason
	}
	return encode(env, arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(r.job), Reason: p.Reason})
}

func decodeSubscribe(env *arcp.Envelope, r *request) error {
	p, err := arcp.DecodePayload[SubscribePayload](env)
	if err != nil {
		return err
	}
	if err := r.setJob(p.JobID); err != nil {
		return err
	}
	out := arcp.JobSubscribePayload{JobID: r.job, History: p.History}
	if p.History {
		out.FromEventSeq = p.FromEventSeq
	}
	return encode(env, arcp.JobSubscribe, out)
}

func decodeUnsubscribe(env *arcp.Envelope, r *request) error {
	p, err := arcp.DecodePayload[UnsubscribePayload](env)
	if err != nil {
		return err
	}
	if err := r.setJob(p.JobID); err != nil {
		return err
	}
	return encode(env, arcp.JobUnsubscribe, arcp.JobUnsubscribePayload{JobID: r.job})
}
