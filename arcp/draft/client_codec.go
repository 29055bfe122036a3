package draft

import (
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// ClientCodec is the codec of one connection of a client. Append turns a message of package arcp into a
// frame of the draft dialect. Decode turns a frame of the runtime into the equivalent message.
//
// These differences remain after a message has passed through both halves of the codec:
//
//   - priority, causation, source, target, deadlines of envelopes and extensions are lost, and a
//     trace_id that is not 32 hexadecimal digits.
//   - session.close loses forget, session.accepted the trust level and the lease of the session.
//   - A state of a job becomes the first state of its status word: queued becomes accepted. A filter
//     selects all states of the word.
//   - The levels trace and critical of a log become debug and error.
//   - job.progress in percent becomes progress out of 100.
//   - human.choice.request becomes human.input.request, workflow.complete and tool.result become
//     job.completed, tool.error becomes job.failed, a stream.chunk the event thought, a log or a metric.
//   - The value of a job.completed whose result is an artifact is the description of the artifact.
//   - The refusals of requests are nacks, also those of a cancel.
//   - Times have milliseconds, and members that the libraries do not read are lost.
//
// One goroutine may call Append and another one Decode.
type ClientCodec struct {
	pending pending

	mu    sync.Mutex
	jobs  map[arcp.JobID]arcp.MessageID // submits of the jobs that have not ended
	pings map[string]arcp.MessageID     // pings of the client by nonce
	from  uint64                        // position of the last resume

	// Owned by Decode.
	opened bool // session.welcome was received
}

// Bounds of the memory of a ClientCodec.
const (
	maxJobs  = 1 << 16
	maxPings = 64
)

// NewClientCodec returns the codec of a connection.
func NewClientCodec() *ClientCodec {
	return &ClientCodec{jobs: make(map[arcp.JobID]arcp.MessageID), pings: make(map[string]arcp.MessageID)}
}

// UnsupportedError says that the draft dialect cannot express a message.
type UnsupportedError struct {
	Feature string // the message, or the message with a member
}

func (e *UnsupportedError) Error() string { return "the draft dialect has no " + e.Feature }

// Check returns an *UnsupportedError if the dialect cannot express a message of a client.
func Check(env *arcp.Envelope) error {
	_, err := newRequestEncoder(env)
	return err
}

// Append appends the frame of a message of the client. The error is an *UnsupportedError or an error
// of the payload; dst is then unchanged.
func (c *ClientCodec) Append(dst []byte, env *arcp.Envelope) ([]byte, error) {
	e, err := newRequestEncoder(env)
	if err != nil {
		return dst, err
	}
	payload, err := arcp.Marshal(e.payload)
	if err != nil {
		return dst, err
	}
	c.sent(e)
	start := len(dst)
	o := begin(dst)
	o.text("arcp", arcp.Version)
	o.text("id", string(env.ID))
	o.text("type", string(e.to))
	o.optional("session_id", string(env.SessionID))
	o.time("timestamp", env.Timestamp)
	o.optional("job_id", string(e.request.job))
	o.optional("trace_id", e.request.trace)
	o.raw("payload", payload)
	dst = o.end()
	oneLine(dst[start:])
	return dst, nil
}

// sent records a message that may be answered.
func (c *ClientCodec) sent(e *requestEncoder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.nonce != "":
		if len(c.pings) == maxPings {
			clear(c.pings)
		}
		c.pings[e.nonce] = e.env.ID
	case e.request.kind != requestOther && e.request.kind != requestUnsubscribe:
		if e.request.kind == requestResume {
			c.from = e.from
		}
		c.pending.add(e.request)
	}
}

func (c *ClientCodec) resumeFrom() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.from
}

// requestEncoder is a message of a client that is being encoded.
type requestEncoder struct {
	env     *arcp.Envelope
	request request
	to      Type
	payload any
	nonce   string // of a ping that is answered with pong
	from    uint64 // position of a resume
}

// requests has the encoders of the messages that a client may send. A Message decodes the same.
var requests = map[arcp.Type]struct {
	to     Type
	encode func(e *requestEncoder) error
}{
	arcp.SessionOpen:     {SessionHello, (*requestEncoder).open},
	arcp.SessionResume:   {SessionHello, (*requestEncoder).resume},
	arcp.SessionClose:    {SessionClose, (*requestEncoder).close},
	arcp.SessionPing:     {SessionPing, (*requestEncoder).sessionPing},
	arcp.SessionPong:     {SessionPong, (*requestEncoder).pong},
	arcp.Ping:            {SessionPing, (*requestEncoder).ping},
	arcp.SessionAck:      {SessionAck, (*requestEncoder).ack},
	arcp.SessionListJobs: {SessionListJobs, (*requestEncoder).listJobs},
	arcp.ToolInvoke:      {JobSubmit, (*requestEncoder).submit},
	arcp.Cancel:          {JobCancel, (*requestEncoder).cancel},
	arcp.JobSubscribe:    {JobSubscribe, (*requestEncoder).subscribe},
	arcp.JobUnsubscribe:  {JobUnsubscribe, (*requestEncoder).unsubscribe},
}

func newRequestEncoder(env *arcp.Envelope) (*requestEncoder, error) {
	row, ok := requests[env.Type]
	if !ok {
		return nil, &UnsupportedError{string(env.Type)}
	}
	e := &requestEncoder{env: env, to: row.to, request: request{kind: Lookup(row.to).request, id: env.ID, trace: traceOrNone(env.TraceID)}}
	if err := row.encode(e); err != nil {
		return nil, err
	}
	return e, nil
}

// without returns an error if the message has a member that the dialect cannot express.
func (e *requestEncoder) without(member string, has bool) error {
	if !has {
		return nil
	}
	return &UnsupportedError{string(e.env.Type) + " with " + member}
}

// firstError returns the first error.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// encodeAs decodes the payload of a message and sets the payload of its frame.
func encodeAs[P any](e *requestEncoder, convert func(p *P) (payload any, err error)) error {
	p, err := arcp.DecodePayload[P](e.env)
	if err != nil {
		return err
	}
	e.payload, err = convert(&p)
	return err
}

// clientFeatures returns the features that a client offers. Features that change the frames of the runtime are
// offered if the capabilities have them.
func clientFeatures(c *arcp.Capabilities) []string {
	list := []string{}
	for _, f := range Features {
		switch f {
		case arcp.FeatureHeartbeat, arcp.FeatureAck, arcp.FeatureProvisionedCredentials:
			if !c.Has(f) {
				continue
			}
		}
		list = append(list, string(f))
	}
	return list
}

func (e *requestEncoder) open() error {
	if err := e.without("session_id", e.env.SessionID != ""); err != nil {
		return err
	}
	return encodeAs(e, func(p *arcp.SessionOpenPayload) (any, error) {
		features, err := arcp.Marshal(clientFeatures(&p.Capabilities))
		if err != nil {
			return nil, err
		}
		scheme := p.Auth.Scheme
		if scheme == schemeNone {
			scheme = "anonymous"
		}
		return HelloPayload{
			// Both name and kind: see the profile OwnClient.
			Client: Client{
				Name:        p.Client.Kind,
				Kind:        p.Client.Kind,
				Version:     p.Client.Version,
				Fingerprint: p.Client.Fingerprint,
				Principal:   p.Client.Principal,
			},
			Auth:         HelloAuth{Scheme: scheme, Token: p.Auth.Token},
			Capabilities: Offer{Encodings: arcp.Raw(`["json"]`), Features: features},
		}, e.without("last_event_seq", p.LastEventSeq != nil)
	})
}

func (e *requestEncoder) resume() error {
	e.request.kind = requestResume
	return encodeAs(e, func(p *arcp.SessionResumePayload) (any, error) {
		e.from = p.LastEventSeq
		return HelloPayload{Client: Client{
			Name:    "arcp",
			Kind:    "arcp",
			Version: arcp.Version,
		}, Resume: &ResumePayload{SessionID: e.env.SessionID, ResumeToken: p.ResumeToken, LastEventSeq: p.LastEventSeq}}, nil
	})
}

func (e *requestEncoder) close() error {
	return encodeAs(e, func(p *arcp.SessionClosePayload) (any, error) {
		return ClosePayload{p.Reason}, e.without("open_jobs "+p.OpenJobs, p.OpenJobs != "" && p.OpenJobs != "detach")
	})
}

func (e *requestEncoder) sessionPing() error {
	return encodeAs(e, func(p *arcp.SessionPingPayload) (any, error) { return PingPayload{p.Nonce, Time{p.SentAt}}, nil })
}

// ping needs a nonce: some runtimes answer without a correlation_id.
func (e *requestEncoder) ping() error {
	return encodeAs(e, func(p *arcp.PingPayload) (any, error) {
		e.nonce = p.Nonce
		return PingPayload{p.Nonce, Time{e.env.Timestamp}}, e.without("an empty nonce", p.Nonce == "")
	})
}

func (e *requestEncoder) pong() error {
	return encodeAs(e, func(p *arcp.SessionPongPayload) (any, error) {
		return PongPayload{p.PingNonce, Time{p.ReceivedAt}}, nil
	})
}

func (e *requestEncoder) ack() error {
	return encodeAs(e, func(p *arcp.SessionAckPayload) (any, error) { return AckPayload(*p), nil })
}

func (e *requestEncoder) listJobs() error {
	return encodeAs(e, func(p *arcp.SessionListJobsPayload) (any, error) {
		out := ListJobsPayload{Cursor: p.Cursor}
		if p.Limit != nil {
			out.Limit = new(int64(*p.Limit))
		}
		f := p.Filter
		if f == nil {
			return out, nil
		}
		out.Filter = &Filter{Agent: f.Agent, CreatedAfter: f.CreatedAfter, CreatedBefore: f.CreatedBefore}
		if len(f.Status) > 0 {
			var words []string
			for _, state := range f.Status {
				words = appendWords(words, state)
			}
			raw, err := arcp.Marshal(words)
			if err != nil {
				return nil, err
			}
			out.Filter.Status = raw
		}
		return out, firstError(e.without("filter/session_id", f.SessionID != ""), e.without("filter/principal", f.Principal != ""))
	})
}

// submit copies the members of submitMembers. Other members must have their default.
func (e *requestEncoder) submit() error {
	if err := e.without("a parent job", e.env.JobID != ""); err != nil {
		return err
	}
	var err error
	o := begin(make([]byte, 0, len(e.env.Payload)+64))
	hasKey := e.env.IdempotencyKey != ""
	if hasKey {
		o.text("idempotency_key", e.env.IdempotencyKey)
	}
	arcp.EachMember(e.env.Payload, func(name []byte, value arcp.Raw) bool {
		for _, m := range submitMembers {
			if m.to != string(name) {
				continue
			}
			if m.to != "idempotency_key" || !hasKey {
				o.raw(m.from, value)
			}
			if m.from == "agent" {
				e.request.agent = textOf(value)
			}
			return true
		}
		err = e.without(string(name), !isDefault(value))
		return err == nil
	})
	e.payload = arcp.Raw(o.end())
	return err
}

// isDefault reports whether a member of a submit has no effect.
func isDefault(value arcp.Raw) bool {
	switch string(value) {
	case "null", "false", `""`, "[]", `"continue"`:
		return true
	}
	return false
}

func (e *requestEncoder) cancel() error {
	return encodeAs(e, func(p *arcp.CancelPayload) (any, error) {
		e.request.job, e.request.reason = arcp.JobID(p.TargetID), p.Reason
		return CancelPayload{e.request.job, p.Reason},
			firstError(e.without("target "+p.Target, p.Target != arcp.TargetJob), e.without("deadline_ms", p.DeadlineMS != nil))
	})
}

// subscribe asks for the history if the message has a position.
func (e *requestEncoder) subscribe() error {
	return encodeAs(e, func(p *arcp.JobSubscribePayload) (any, error) {
		e.request.job = p.JobID
		return SubscribePayload{p.JobID, p.FromEventSeq, p.History || p.FromEventSeq != nil}, nil
	})
}

func (e *requestEncoder) unsubscribe() error {
	return encodeAs(e, func(p *arcp.JobUnsubscribePayload) (any, error) {
		e.request.job = p.JobID
		return UnsubscribePayload(*p), nil
	})
}

// takeKind removes the oldest request of a kind, of a job unless that is empty.
func (p *pending) takeKind(kind requestKind, job arcp.JobID) (r request, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.requests {
		if r = p.requests[i]; r.kind == kind && (job == "" || r.job == job) {
			p.requests = slices.Delete(p.requests, i, i+1)
			return r, true
		}
	}
	return request{}, false
}

// appendWords appends the status words that select a state. The runtime refuses an unknown state.
func appendWords(words []string, state string) []string {
	known := false
	for i := range statusWords {
		if row := &statusWords[i]; slices.Contains(row.states, arcp.JobState(state)) {
			known = true
			if !slices.Contains(words, row.word) {
				words = append(words, row.word)
			}
		}
	}
	if !known {
		words = append(words, state)
	}
	return words
}

// stateOf returns the first state of a status word. Another word stays as it is.
func stateOf(word string) string {
	for i := range statusWords {
		if statusWords[i].word == word {
			return string(statusWords[i].states[0])
		}
	}
	return word
}

// errorOf returns a failure in the terms of package arcp. It is the reverse of failureOf.
func errorOf(f *Failure) arcp.Error {
	code, known := arcp.ParseCode(string(f.Code))
	if !known {
		for i := range mappedCodes {
			if mappedCodes[i].to == f.Code {
				code = mappedCodes[i].from
				break
			}
		}
	}
	e := arcp.Error{Code: code, Message: f.Message, Retryable: f.Retryable, Details: f.Details}
	if own := arcpCode(f.Details); own.Known() {
		e.Code, e.Details = own, withoutMember(f.Details, "arcp_code")
	}
	return e
}

// arcpCode returns the code that withArcpCode has added to details.
func arcpCode(details arcp.Raw) (code arcp.Code) {
	if details.Kind() == '{' {
		arcp.EachMember(details, func(name []byte, value arcp.Raw) bool {
			if string(name) == "arcp_code" {
				code = arcp.Code(textOf(value))
			}
			return code == ""
		})
	}
	return code
}

// withoutMember removes a member of an object. An empty object becomes nil.
func withoutMember(raw arcp.Raw, member string) arcp.Raw {
	o := begin(nil)
	arcp.EachMember(raw, func(name []byte, value arcp.Raw) bool {
		if string(name) != member {
			o.quoted(string(name), value)
		}
		return true
	})
	if !o.some {
		return nil
	}
	return o.end()
}

// reasonOf returns the reason of a refused cancel that has the code.
func reasonOf(code arcp.Code) string {
	switch code {
	case arcp.CodeJobNotFound, arcp.CodeNotFound:
		return "not_found"
	case arcp.CodePermissionDenied:
		return "permission_denied"
	case arcp.CodeFailedPrecondition:
		return "already_terminal"
	}
	return "unavailable"
}
