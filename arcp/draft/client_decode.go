package draft

import (
	"cmp"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
)

// clientFrame is a frame of the runtime that is being decoded.
type clientFrame struct {
	c       *ClientCodec
	env     *arcp.Envelope
	request request // that the frame names; its id may be empty
}

// received has the decoders of the frames that a runtime may send. They replace the type and the
// payload of the envelope.
var received = map[Type]func(f *clientFrame) error{
	SessionWelcome: (*clientFrame).sessionWelcome,
	SessionError:   (*clientFrame).sessionError,
	SessionPing:    (*clientFrame).ping,
	SessionPong:    (*clientFrame).pong,
	SessionJobs:    (*clientFrame).jobs,
	SessionBye:     (*clientFrame).bye,
	SessionClosed:  (*clientFrame).closed,
	JobAccepted:    (*clientFrame).accepted,
	JobEvent:       (*clientFrame).event,
	JobResult:      (*clientFrame).result,
	JobError:       (*clientFrame).jobError,
	JobCancelled:   (*clientFrame).cancelled,
	JobSubscribed:  (*clientFrame).subscribed,
	Nack:           (*clientFrame).nack,
}

// Decode returns the message of package arcp that is equivalent to a frame of the runtime. ok is
// false for frames without an equivalent, such as frames of an unknown type. An answer has the
// correlation_id of its request. The timestamp may be zero. The error is an *arcp.EncodingError or an
// error of the payload.
func (c *ClientCodec) Decode(frame []byte) (env arcp.Envelope, ok bool, err error) {
	env, err = arcp.DecodeDraftFromRuntime(frame)
	if err != nil {
		return env, false, err
	}
	t := Type(env.Type)
	decode := received[t]
	if decode == nil || !c.opened && t != SessionWelcome && t != SessionError {
		return env, false, nil
	}
	f := clientFrame{c: c, env: &env}
	if err := f.correlate(); err != nil {
		return env, false, fmt.Errorf("%s: %w", t, err)
	}
	if err := decode(&f); err != nil {
		return env, false, fmt.Errorf("%s: %w", t, err)
	}
	for _, id := range []string{string(env.SessionID), string(env.JobID), string(env.CorrelationID)} { // of the payload
		if id != "" && !arcp.ValidID(id) {
			return env, false, fmt.Errorf("%s: the payload has an invalid identifier", t)
		}
	}
	return env, true, nil
}

// correlate finds the request of a frame: the correlation_id of the envelope, or else a member of the
// payload. It sets the correlation_id.
func (f *clientFrame) correlate() error {
	p, err := arcp.DecodePayload[Correlation](f.env)
	if err != nil {
		return err
	}
	f.env.CorrelationID = cmp.Or(f.env.CorrelationID, p.RequestID, p.ReplyTo)
	f.request, _ = f.c.pending.take(f.env.CorrelationID)
	return nil
}

// answer makes the frame the answer to the oldest request of a kind, unless the frame names its
// request.
func (f *clientFrame) answer(kind requestKind, job arcp.JobID) {
	if f.env.CorrelationID != "" {
		return
	}
	if r, ok := f.c.pending.takeKind(kind, job); ok {
		f.request, f.env.CorrelationID = r, r.id
	}
}

// decodeAs decodes the payload of a frame and sets the type and the payload of the message.
func decodeAs[P any](f *clientFrame, to arcp.Type, convert func(p *P) any) error {
	p, err := arcp.DecodePayload[P](f.env)
	if err != nil {
		return err
	}
	return encode(f.env, to, convert(&p))
}

func (f *clientFrame) sessionWelcome() error {
	f.answer(requestResume, "")
	f.answer(requestOpen, "")
	p, err := arcp.DecodePayload[WelcomePayload](f.env)
	if err != nil {
		return err
	}
	f.c.opened = true
	f.env.SessionID = p.SessionID
	if f.request.kind == requestResume {
		return encode(f.env, arcp.SessionResumed, arcp.SessionResumedPayload{
			SessionID:    p.SessionID,
			ResumeToken:  p.ResumeToken,
			ReplayedFrom: f.c.resumeFrom(),
		})
	}
	agents := make([]arcp.Agent, len(p.Capabilities.Agents))
	for i, a := range p.Capabilities.Agents {
		agents[i] = arcp.Agent{Name: a.Name, Versions: a.Versions, Default: a.Default}
	}
	return encode(f.env, arcp.SessionAccepted, arcp.SessionAcceptedPayload{
		SessionID: p.SessionID, ResumeToken: p.ResumeToken, ResumeWindowSec: p.ResumeWindowSec, HeartbeatIntervalSec: p.HeartbeatIntervalSec,
		Runtime:      arcp.RuntimeInfo{Kind: cmp.Or(p.Runtime.Name, p.RuntimeName), Version: cmp.Or(p.Runtime.Version, p.RuntimeVersion)},
		Capabilities: arcp.Capabilities{Features: p.Capabilities.Features, Encodings: p.Capabilities.Encodings, Agents: agents},
	})
}

// sessionError refuses the request that it names. Without a request it ends the session.
func (f *clientFrame) sessionError() error {
	if !f.c.opened {
		f.answer(requestResume, "")
		f.answer(requestOpen, "")
		return f.refuse(arcp.SessionRejected)
	}
	if f.env.CorrelationID != "" {
		return f.refuse(arcp.Nack)
	}
	return decodeAs(f, arcp.SessionEvicted, func(p *ErrorPayload) any {
		e := errorOf(&p.Failure)
		return arcp.SessionEvictedPayload{Code: e.Code, Reason: e.Message}
	})
}

func (f *clientFrame) nack() error { return f.refuse(arcp.Nack) }

// refuse makes the frame a refusal.
func (f *clientFrame) refuse(t arcp.Type) error {
	if f.request.kind == requestCancel {
		return decodeAs(f, arcp.CancelRefused, func(p *ErrorPayload) any {
			e := errorOf(&p.Failure)
			return arcp.CancelRefusedPayload{
				TargetID: string(f.request.job),
				Reason:   reasonOf(e.Code),
				Code:     e.Code,
				Message:  e.Message,
				Details:  e.Details,
			}
		})
	}
	return decodeAs(f, t, func(p *ErrorPayload) any { return errorOf(&p.Failure) })
}

func (f *clientFrame) ping() error {
	return decodeAs(f, arcp.SessionPing, func(p *PingPayload) any {
		return arcp.SessionPingPayload{Nonce: p.Nonce, SentAt: p.SentAt.Time}
	})
}

// pong answers ping if the nonce is the nonce of one, or else session.ping.
func (f *clientFrame) pong() error {
	p, err := arcp.DecodePayload[PongPayload](f.env)
	if err != nil {
		return err
	}
	f.c.mu.Lock()
	id, ok := f.c.pings[p.PingNonce]
	delete(f.c.pings, p.PingNonce)
	f.c.mu.Unlock()
	if ok {
		f.env.CorrelationID = id
		return encode(f.env, arcp.Pong, arcp.PongPayload{Nonce: p.PingNonce})
	}
	return encode(f.env, arcp.SessionPong, arcp.SessionPongPayload{PingNonce: p.PingNonce, ReceivedAt: p.ReceivedAt.Time})
}

func (f *clientFrame) jobs() error {
	f.answer(requestList, "")
	return decodeAs(f, arcp.SessionJobs, func(p *JobsPayload) any {
		out := arcp.SessionJobsPayload{RequestID: f.env.CorrelationID, NextCursor: p.NextCursor, Jobs: make([]arcp.JobEntry, len(p.Jobs))}
		for i, j := range p.Jobs {
			out.Jobs[i] = arcp.JobEntry{JobID: j.JobID, Agent: j.Agent, Status: stateOf(j.Status), Lease: j.Lease, ParentJobID: j.ParentJobID,
				CreatedAt: timeOr(j.CreatedAt.Time, j.SubmittedAt.Time), TraceID: j.TraceID, LastEventSeq: j.LastEventSeq}
		}
		return out
	})
}

func (f *clientFrame) bye() error {
	return decodeAs(f, arcp.SessionClose, func(p *ClosePayload) any { return arcp.SessionClosePayload{Reason: p.Reason} })
}

func (f *clientFrame) closed() error {
	f.answer(requestClose, "")
	return decodeAs(f, arcp.SessionClosed, func(p *ClosedPayload) any { return arcp.SessionClosedPayload{Reason: p.Reason} })
}

func (f *clientFrame) accepted() error {
	f.answer(requestSubmit, "")
	p, err := arcp.DecodePayload[AcceptedPayload](f.env)
	if err != nil {
		return err
	}
	f.env.JobID = cmp.Or(f.env.JobID, p.JobID)
	f.c.hold(f.env.JobID, f.env.CorrelationID)
	return encode(f.env, arcp.JobAccepted, arcp.JobAcceptedPayload{
		JobID:            p.JobID,
		Agent:            p.Agent,
		Lease:            p.Lease,
		LeaseConstraints: p.LeaseConstraints.arcp(),
		Budget:           p.Budget,
		Credentials:      p.Credentials,
		ParentJobID:      p.ParentJobID,
		AcceptedAt:       p.AcceptedAt.Time,
		TraceID:          p.TraceID,
	})
}

func (f *clientFrame) subscribed() error {
	p, err := arcp.DecodePayload[SubscribedPayload](f.env)
	if err != nil {
		return err
	}
	f.answer(requestSubscribe, p.JobID)
	f.env.JobID = cmp.Or(f.env.JobID, p.JobID)
	return encode(f.env, arcp.JobSubscribed, arcp.JobSubscribedPayload{
		JobID:            p.JobID,
		CurrentStatus:    stateOf(p.CurrentStatus),
		Agent:            p.Agent,
		Lease:            p.Lease,
		LeaseConstraints: p.LeaseConstraints.arcp(),
		Budget:           p.Budget,
		Credentials:      p.Credentials,
		ParentJobID:      p.ParentJobID,
		TraceID:          p.TraceID,
		SubscribedFrom:   p.SubscribedFrom,
		Replayed:         p.Replayed,
	})
}

func (c *LeaseConstraints) arcp() *arcp.LeaseConstraints {
	if c == nil {
		return nil
	}
	return &arcp.LeaseConstraints{ExpiresAt: c.ExpiresAt.Time}
}

func (f *clientFrame) cancelled() error {
	p, err := arcp.DecodePayload[CancelledPayload](f.env)
	if err != nil {
		return err
	}
	job := cmp.Or(p.JobID, f.env.JobID)
	f.answer(requestCancel, job)
	f.env.JobID = ""
	return encode(f.env, arcp.CancelAccepted, arcp.CancelAcceptedPayload{TargetID: string(job)})
}

// result ends a job that succeeded.
func (f *clientFrame) result() error {
	f.ended()
	return decodeAs(f, arcp.JobCompleted, func(p *ResultPayload) any {
		value := p.Result
		if len(value) == 0 {
			value = p.Output
		}
		return arcp.JobCompletedPayload{Value: value, ResultID: p.ResultID, ResultSize: p.ResultSize, ResultRef: p.ResultRef, Summary: p.Summary}
	})
}

// jobError ends a job, or refuses a submit: then it has no number and the client does not have the job.
func (f *clientFrame) jobError() error {
	p, err := arcp.DecodePayload[ErrorPayload](f.env)
	if err != nil {
		return err
	}
	f.env.JobID = cmp.Or(f.env.JobID, p.JobID)
	if f.env.EventSeq == 0 && !f.c.holds(f.env.JobID) {
		f.answer(requestSubmit, "")
		f.env.JobID = ""
		return f.refuse(arcp.Nack)
	}
	f.ended()
	e := errorOf(&p.Failure)
	if p.FinalStatus == statusCancelled || p.Code == CodeCancelled {
		return encode(f.env, arcp.JobCancelled, arcp.JobCancelledPayload{Reason: e.Message, Code: e.Code})
	}
	return encode(f.env, arcp.JobFailed, e)
}

// ended correlates the last event of a job.
func (f *clientFrame) ended() {
	f.ofJob()
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	delete(f.c.jobs, f.env.JobID)
}

// ofJob correlates an event with the submit of its job.
func (f *clientFrame) ofJob() {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.env.CorrelationID = cmp.Or(f.c.jobs[f.env.JobID], f.env.CorrelationID)
}

// hold records the submit of a job.
func (c *ClientCodec) hold(job arcp.JobID, submit arcp.MessageID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jobs) < maxJobs {
		c.jobs[job] = submit
	}
}

// holds reports whether the client has submitted a job on this connection.
func (c *ClientCodec) holds(job arcp.JobID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.jobs[job]
	return ok
}

// renamedMembers are the members of bodies that have another name in package arcp.
var renamedMembers = []struct {
	kind     Kind
	from, to string
}{
	{KindArtifactRef, "content_type", "media_type"},
	{KindArtifactRef, "byte_size", "size"},
}

// repeatedMembers are the members of bodies that repeat another member for some libraries.
var repeatedMembers = []struct {
	kind             Kind
	member, original string
}{
	{KindLog, "fields", "attributes"},
	{KindMetric, "dimensions", "dims"},
}

// event decodes an event of a job with the first row of kinds that has its kind and phase.
func (f *clientFrame) event() error {
	p, err := arcp.DecodePayload[EventPayload](f.env)
	if err != nil {
		return err
	}
	f.ofJob()
	f.env.Timestamp = timeOr(f.env.Timestamp, p.TS.Time)
	body := objectOrNone(p.Body)
	if p.Kind == KindStatus {
		return f.status(body)
	}
	for i := range kinds {
		row := &kinds[i]
		if row.kind != p.Kind {
			continue
		}
		payload := membersOf(row.kind, body)
		if row.from == arcp.EventEmit {
			return encode(f.env, arcp.EventEmit, arcp.EventEmitPayload{Name: row.event, Data: payload})
		}
		f.env.Type, f.env.Payload = row.from, payload
		return nil
	}
	return encode(f.env, arcp.EventEmit, arcp.EventEmitPayload{Name: string(p.Kind), Data: p.Body})
}

// membersOf returns a body with the names of package arcp.
func membersOf(kind Kind, body arcp.Raw) arcp.Raw {
	o := begin(make([]byte, 0, len(body)+2))
	if body == nil {
		return o.end()
	}
	arcp.EachMember(body, func(name []byte, value arcp.Raw) bool {
		to := string(name)
		for _, m := range repeatedMembers {
			if m.kind == kind && m.member == to {
				if memberOf(body, m.original) != nil {
					return true
				}
				to = m.original
			}
		}
		for _, m := range renamedMembers {
			if m.kind == kind && m.from == to {
				to = m.to
			}
		}
		o.quoted(to, value)
		return true
	})
	return o.end()
}

// status decodes an event whose details are the payload of a message, or the data of an event.emit.
func (f *clientFrame) status(body arcp.Raw) error {
	var phase string
	var message, details arcp.Raw
	if body != nil {
		arcp.EachMember(body, func(name []byte, value arcp.Raw) bool {
			switch string(name) {
			case "phase":
				phase = textOf(value)
			case "message":
				message = value
			case "details":
				details = value
			}
			return true
		})
	}
	for i := range kinds {
		row := &kinds[i]
		if row.kind != KindStatus || row.phase == "" || row.phase != phase {
			continue
		}
		if details.Kind() != '{' {
			o := begin(nil)
			o.raw(row.message, message)
			details = o.end()
		}
		f.env.Type, f.env.Payload = row.from, details
		return nil
	}
	if len(details) == 0 && len(message) > 0 {
		o := begin(nil)
		o.raw("message", message)
		details = o.end()
	}
	return encode(f.env, arcp.EventEmit, arcp.EventEmitPayload{Name: cmp.Or(phase, "status"), Data: details})
}
