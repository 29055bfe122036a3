package conn

import (
	"bytes"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/jobview"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// decoder decodes the frames of a connection. Only the reader uses it.
type decoder struct {
	begun bool
	codec *draft.Session // nil: the RFC's dialect
}

// decode sets env, bad or refused of a frame and, with the first frame, codec.
func (d *decoder) decode(in *inbound, frame []byte) {
	if !d.begun {
		d.begun = true
		if draft.Opens(frame) {
			d.codec, _ = draft.NewSession(frame) // no error: the frame opens a session
			in.codec = d.codec
		}
	}
	var env arcp.Envelope
	var err error
	if d.codec == nil {
		env, err = arcp.Decode(frame)
	} else {
		env, err = d.codec.Decode(frame)
	}
	if err == nil {
		in.env = &env
		return
	}
	if refused, ok := errors.AsType[*draft.Refusal](err); ok {
		in.refused = refused
		return
	}
	if bad, ok := errors.AsType[*arcp.EncodingError](err); ok {
		in.bad = bad
		return
	}
	in.bad = &arcp.EncodingError{Reason: arcp.ReasonNotJSON, Message: err.Error()}
}

// dialect is the dialect of a connection. The connection speaks the dialect of its first frame. In
// the draft dialect a codec stands between the frames and the rest of the connection, which sees the
// equivalent messages of package arcp.
type dialect struct {
	c     *conn
	codec *draft.Session // of the draft dialect; nil: the RFC's dialect
}

// use makes the connection speak the draft dialect. A client that is not recognised has the configured
// profile.
func (d *dialect) use(codec *draft.Session) {
	d.codec = codec
	if profile, err := draft.ParseProfile(d.c.srv.opts.DraftProfile); err == nil && codec.Profile() == draft.Universal {
		codec.SetProfile(profile)
	}
	d.c.machine = machine.NewDraft(d.c.handshake.startedAt, d.c.srv.machineConfig(), d.c.id)
}

// refuse answers a frame that the codec does not accept. Only a frame that is no envelope, or the
// first one, counts as malformed: others are optional or unknown messages.
func (d *dialect) refuse(now time.Time, refused *draft.Refusal) {
	d.c.send(now, refused.Nack())
	if refused.Cause != nil || d.c.machine.Phase() == machine.Opening {
		d.c.machine.Malformed(&arcp.EncodingError{Reason: arcp.ReasonPayload, Message: refused.Error()})
	}
}

// name returns the name of the dialect.
func (d *dialect) name() store.Dialect {
	if d.codec != nil {
		return store.Draft
	}
	return store.RFC
}

// profile returns the name of the library of a client in the draft dialect; empty: the RFC's
// dialect.
func (d *dialect) profile() string {
	if d.codec == nil {
		return ""
	}
	return d.codec.Profile().String()
}

// pageForm returns the form of a page of jobs.
func (d *dialect) pageForm() jobview.PageForm {
	form := jobview.PageForm{Status: d.status}
	if d.codec != nil {
		form.MaxBytes = draft.MaxFrame / 4 // an entry is larger in a frame than in the reader's estimate
	}
	return form
}

// status returns the status of a job: its state or, in the draft dialect, a status word that the
// state does not tell. Any goroutine may call it.
func (d *dialect) status(j *store.Job) string {
	if d.codec != nil && jobview.TimedOut(j) {
		return draft.StatusTimedOut
	}
	return string(j.State)
}

// checkSession refuses to attach to a session of the other dialect, which is not harmed.
func (d *dialect) checkSession(row *store.Session) *arcp.Error {
	switch {
	case row.Dialect == d.name():
		return nil
	case d.name() == store.Draft:
		return arcp.Errorf(arcp.CodeResumeWindowExpired, "the session was opened by session.open; resume it in that dialect")
	}
	return arcp.Errorf(arcp.CodeFailedPrecondition, "the session was opened by session.hello; resume it in that dialect")
}

// credentials returns the credentials that a session.hello has besides the resume token; nil:
// there are none.
func (d *dialect) credentials() *auth.Request {
	if d.codec == nil {
		return nil
	}
	credentials, ok := d.codec.Auth()
	if !ok {
		return nil
	}
	return new(d.c.principal.request(d.c.tc.Info(), time.Now(), machine.Authenticate{Scheme: credentials.Scheme, Token: credentials.Token}))
}

// resumed tells the codec what session.resumed does not contain, the profile of the client, which a
// session.resume does not show, and the jobs of which the client has a handle.
func (d *dialect) resumed(now time.Time, row *store.Session, followed []arcp.JobID) {
	if d.codec == nil {
		return
	}
	if profile, err := draft.ParseProfile(row.Profile); err == nil { // a newer release may have stored another name
		d.codec.SetProfile(profile)
	}
	d.codec.AddJobs(d.c.srv.opts.Engine.SessionJobs().IDs(row.ID), followed)
	d.codec.Describe(d.c.machine.AcceptedPayload(now, d.c.catalog.agents()))
}

// sendsCredentials reports whether the client is sent the credentials of its jobs. A client of the
// draft dialect has to offer the feature.
func (d *dialect) sendsCredentials() bool {
	return d.codec == nil || d.c.session.negotiated(arcp.FeatureProvisionedCredentials)
}

// append appends the frames of an envelope to the batch.
func (d *dialect) append(now time.Time, env *arcp.Envelope) error {
	if env.Type == arcp.JobAccepted && d.sendsCredentials() { // the log does not have the values
		env.Payload = d.c.srv.secrets.appendCredentials(bytes.Clone(env.Payload), env.JobID)
	}
	frames, err := d.codec.AppendAnswer(nil, now, env)
	if err != nil {
		return err
	}
	b := d.c.output.batch()
	for _, frame := range frames {
		b.data = append(b.data, frame...)
		b.ends = append(b.ends, len(b.data))
		d.c.output.counts.add(env.Type, len(frame))
	}
	return nil
}

// appendEvent appends the frame of an event to the batch. In the dialect every event has a number:
// events that are not logged, such as job.heartbeat, have no frame.
func (d *dialect) appendEvent(item eventlog.Item) {
	if item.Seq == 0 {
		return
	}
	e, b := item.Event, d.c.output.batch()
	start := len(b.data)
	if payload, ok := d.rotated(&item); ok {
		e := draftEvent(e)
		e.Payload = payload
		var err error
		if b.data, err = d.codec.AppendEvent(b.data, item.Seq, e); err != nil {
			d.c.events.fail(time.Now(), err)
			return
		}
	} else if body := d.sharedBody(&item); body != nil {
		b.data = d.codec.AppendEventFrame(b.data, item.Seq, body)
	} else if err := d.appendUnshared(b, item.Seq, e); err != nil {
		d.c.events.fail(time.Now(), err)
		return
	}
	b.ends = append(b.ends, len(b.data))
	d.c.output.counts.add(e.Type, len(b.data)-start)
}

// rotated returns the payload of the event of a rotation with the new value of the credential. Only
// the session that has submitted the job is sent the value.
func (d *dialect) rotated(item *eventlog.Item) (payload arcp.Raw, ok bool) {
	if item.Forwarded || !d.sendsCredentials() {
		return nil, false
	}
	return d.c.srv.secrets.rotated(item.Event)
}

var _ [eventlog.MaxForms - draft.Forms]struct{} // the log has room for each form

// sharedBody returns the body of an event that other sessions receive, too. It is encoded once for
// all sessions that read the same form; nil: the event is not shared, or each session has to encode
// it.
func (d *dialect) sharedBody(item *eventlog.Item) *draft.Body {
	if item.Forms == nil {
		return nil
	}
	e := item.Event
	body, _ := item.Forms.Get(e, d.codec.Form(e.Type), func() any {
		body, err := draft.EventBody(draftEvent(e), d.codec.Profile())
		if err != nil { // for example, the value of a large result has to be in one member only
			return nil
		}
		return body
	}).(*draft.Body)
	return body
}

// appendUnshared appends the frame of an event that no other session shares.
func (d *dialect) appendUnshared(b *batch, seq uint64, e *store.Event) (err error) {
	if b.data, err = d.codec.AppendEvent(b.data, seq, draftEvent(e)); err == nil {
		return nil
	}
	d.c.srv.opts.Logger.Warn().Err(err).Str("job_id", string(e.JobID())).Str("type", string(e.Type)).Msg("event in the draft dialect")
	b.data, err = d.codec.AppendEvent(b.data, seq, omitted(e, err))
	return err
}

// draftEvent returns an event for the codec.
func draftEvent(e *store.Event) *draft.Event {
	return &draft.Event{ID: e.ID(), Type: e.Type, Time: e.Time, JobID: e.JobID(), TraceID: e.TraceID(), Payload: e.Payload()}
}

// omitted returns a small event in place of an event that has no frame in the draft dialect, so that
// the numbers have no gap.
func omitted(e *store.Event, reason error) *draft.Event {
	s := &draft.Event{ID: e.ID(), Time: e.Time, JobID: e.JobID(), TraceID: e.TraceID(), Type: arcp.EventEmit}
	var payload any = arcp.EventEmitPayload{Name: "event_omitted", Data: arcp.Raw(arcp.AppendString(nil, reason.Error()))}
	if e.Type.Terminal() {
		s.Type, payload = arcp.JobFailed, arcp.Errorf(arcp.CodeInternal, "the outcome of the job cannot be sent: %s", reason.Error())
	}
	s.Payload = arcp.Frame(s.Type, payload).Payload
	return s
}
