package conn

import (
	"bytes"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/jobview"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// draftDialect is the view of a connection as the draft dialect. The codec stands between the frames
// and the rest of the connection.
type draftDialect conn

func (d *draftDialect) name() arcp.Dialect     { return arcp.DialectDraft }
func (d *draftDialect) profile() string        { return d.output.codec.Profile().String() }
func (d *draftDialect) tokenPrefix() string    { return draft.ResumePrefix }
func (d *draftDialect) acceptedIsAnswer() bool { return true }
func (d *draftDialect) correlatesEvents() bool { return d.output.codec.CorrelatesEnds() }
func (d *draftDialect) usesForms() bool        { return true }

// maxPage bounds a page, whose entries are larger in a frame than in the reader's estimate.
func (d *draftDialect) maxPage() int { return draft.MaxFrame / 4 }

func (d *draftDialect) hasInventory(t arcp.Type) bool {
	return t == arcp.SessionAccepted || t == arcp.SessionResumed
}

// status returns a status word that the state does not tell, or the state.
func (d *draftDialect) status(j *store.Job) string {
	if jobview.TimedOut(j) {
		return draft.StatusTimedOut
	}
	return string(j.State)
}

func (d *draftDialect) credentials() *auth.Request {
	credentials, ok := d.output.codec.Auth()
	if !ok {
		return nil
	}
	return new(d.principal.request(d.tc.Info(), time.Now(), machine.Credentials{Scheme: credentials.Scheme, Token: credentials.Token}))
}

// resumed passes the data to the codec that session.resumed does not contain: the profile of the client,
// which a session.resume does not show, and the jobs of which the client has a handle.
func (d *draftDialect) resumed(now time.Time, row *store.Session, followed []arcp.JobID) {
	if profile, err := draft.ParseProfile(row.Profile); err == nil { // a newer release may have stored another name
		d.output.codec.SetProfile(profile)
	}
	d.output.codec.AddJobs(d.srv.opts.Engine.SessionJobs().IDs(row.ID), followed)
	d.output.codec.Describe(d.machine.AcceptedPayload(now, d.catalog.agents()))
}

// sendsCredentials reports whether the client has offered the feature.
func (d *draftDialect) sendsCredentials() bool {
	return d.session.negotiated(arcp.FeatureProvisionedCredentials)
}

func (d *draftDialect) append(now time.Time, env *arcp.Envelope) error {
	if env.Type == arcp.JobAccepted && d.sendsCredentials() { // the log does not have the values
		env.Payload = d.srv.secrets.appendCredentials(bytes.Clone(env.Payload), env.JobID)
	}
	b := d.output.batch()
	frames := draft.Frames{Data: b.data, Ends: b.ends}
	if err := d.output.codec.AppendAnswer(&frames, now, env); err != nil {
		return err
	}
	start := len(b.data)
	for _, end := range frames.Ends[len(b.ends):] {
		d.output.counts.add(env.Type, end-start)
		start = end
	}
	b.data, b.ends = frames.Data, frames.Ends
	return nil
}

// appendEvent appends the frame of an event to the batch. In the dialect every event has a number:
// events that are not logged, such as job.heartbeat, have no frame.
func (d *draftDialect) appendEvent(item eventlog.Item) {
	if item.Seq == 0 {
		return
	}
	e, b := item.Event, d.output.batch()
	start := len(b.data)
	if payload, ok := d.rotated(&item); ok {
		e := d.draftEvent(e)
		e.Payload = payload
		var err error
		if b.data, err = d.output.codec.AppendEvent(b.data, item.Seq, submitOf(&item), e); err != nil {
			d.events.fail(time.Now(), err)
			return
		}
	} else if body := d.sharedBody(&item); body != nil {
		b.data = d.output.codec.AppendEventFrame(b.data, item.Seq, submitOf(&item), body)
	} else if err := d.appendUnshared(b, &item); err != nil {
		d.events.fail(time.Now(), err)
		return
	}
	b.ends = append(b.ends, len(b.data))
	d.output.counts.add(e.Type, len(b.data)-start)
}

// rotated returns the payload of the event of a rotation with the new value of the credential. Only
// the session that has submitted the job is sent the value.
func (d *draftDialect) rotated(item *eventlog.Item) (payload arcp.Raw, ok bool) {
	if item.Forwarded || !d.sendsCredentials() {
		return nil, false
	}
	return d.srv.secrets.rotated(item.Event)
}

var _ [eventlog.MaxForms - draft.Forms]struct{} // the log has room for each form

// sharedBody returns the body of an event that other sessions receive, too. It is encoded once for
// all sessions that read the same form; nil: the event is not shared, or each session has to encode
// it.
func (d *draftDialect) sharedBody(item *eventlog.Item) *draft.Body {
	if item.Forms == nil {
		return nil
	}
	e := item.Event
	form := item.Forms.Of(e, d.output.codec.Form(e.Type))
	if form == nil {
		return d.encodeBody(e)
	}
	if body, encoded := form.Value().(*draft.Body); encoded {
		return body
	}
	return form.Get(func() any { return d.encodeBody(e) }).(*draft.Body)
}

// encodeBody encodes the body of an event; nil: each session has to encode it. For example, the value of
// a large result has to be in one member only.
func (d *draftDialect) encodeBody(e *store.Event) *draft.Body {
	body, err := draft.EventBody(d.draftEvent(e), d.output.codec.Profile())
	if err != nil {
		return nil
	}
	return body
}

// appendUnshared appends the frame of an event that no other session shares.
func (d *draftDialect) appendUnshared(b *batch, item *eventlog.Item) (err error) {
	e := item.Event
	if b.data, err = d.output.codec.AppendEvent(b.data, item.Seq, submitOf(item), d.draftEvent(e)); err == nil {
		return nil
	}
	d.srv.opts.Logger.Warn().Err(err).Str("job_id", string(e.JobID())).Str("type", string(e.Type)).Msg("event in the draft dialect")
	b.data, err = d.output.codec.AppendEvent(b.data, item.Seq, submitOf(item), omitted(d.draftEvent(e), err))
	return err
}

// submitOf returns the message of this session that has submitted the job of an event; empty: another
// session has.
func submitOf(item *eventlog.Item) arcp.MessageID {
	if item.Forwarded {
		return ""
	}
	return item.CorrelationID
}

// draftEvent returns an event for the codec, valid until the next call.
func (d *draftDialect) draftEvent(e *store.Event) *draft.Event {
	if d.output.event == nil {
		d.output.event = new(draft.Event)
	}
	m := e.Members()
	*d.output.event = draft.Event{
		Type:      e.Type,
		ID:        m.ID,
		Timestamp: m.Timestamp,
		JobID:     m.JobID,
		TraceID:   m.TraceID,
		Payload:   m.Payload,
	}
	return d.output.event
}

// eventOmitted is the name of an event in the place of one that is not sent.
const eventOmitted = "event_omitted"

// omitted changes an event that has no frame in the draft dialect to a small one in its place, so that
// the numbers have no gap.
func omitted(e *draft.Event, reason error) *draft.Event {
	var payload any = arcp.EventEmitPayload{Name: eventOmitted, Data: arcp.Raw(arcp.AppendString(nil, reason.Error()))}
	to := arcp.EventEmit
	if e.Type.Terminal() {
		to, payload = arcp.JobFailed, arcp.Errorf(arcp.CodeInternal, "the outcome of the job cannot be sent: %s", reason.Error())
	}
	e.Type, e.Payload = to, arcp.Frame(to, payload).Payload
	return e
}
