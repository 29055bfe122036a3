package conn

import (
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// A connection speaks the dialect of its first frame. In the draft dialect a codec stands between
// the frames and the rest of the connection, which sees the equivalent messages of package arcp.

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

// useCodec makes a connection speak the draft dialect.
func useCodec(c *conn, codec *draft.Session) {
	c.output.codec = codec
	c.machine = machine.NewDraft(c.handshake.startedAt, c.srv.machineConfig(), c.id)
}

// refuseDraft answers a frame that the codec does not accept. Only a frame that is no envelope, or the
// first one, counts as malformed: others are optional or unknown messages.
func refuseDraft(c *conn, now time.Time, refused *draft.Refusal) {
	c.send(now, refused.Nack())
	if refused.Cause != nil || c.machine.Phase() == machine.Opening {
		c.machine.Malformed(&arcp.EncodingError{Reason: arcp.ReasonPayload, Message: refused.Error()})
	}
}

// dialect returns the dialect of the connection.
func (o *output) dialect() store.Dialect {
	if o.codec != nil {
		return store.Draft
	}
	return store.RFC
}

// profile returns the name of the library of a client in the draft dialect; empty: the RFC's
// dialect.
func (o *output) profile() string {
	if o.codec == nil {
		return ""
	}
	return o.codec.Profile().String()
}

// maxPage bounds a page of jobs except for its last job, in bytes; 0: the bound of all pages.
func (o *output) maxPage() int {
	if o.codec == nil {
		return 0
	}
	return draft.MaxFrame / 4 // an entry is larger in a frame than in the reader's estimate
}

// checkDialect refuses to attach to a session of the other dialect, which is not harmed.
func (o *output) checkDialect(row *store.Session) *arcp.Error {
	switch {
	case row.Dialect == o.dialect():
		return nil
	case o.dialect() == store.Draft:
		return arcp.Errorf(arcp.CodeResumeWindowExpired, "the session was opened by session.open; resume it in that dialect")
	}
	return arcp.Errorf(arcp.CodeFailedPrecondition, "the session was opened by session.hello; resume it in that dialect")
}

// appendDraft appends the frames of an envelope in the draft dialect.
func (o *output) appendDraft(now time.Time, env *arcp.Envelope) error {
	frames, err := o.codec.AppendAnswer(nil, now, env)
	if err != nil {
		return err
	}
	b := o.batch()
	for _, frame := range frames {
		b.data = append(b.data, frame...)
		b.ends = append(b.ends, len(b.data))
		o.counts.add(env.Type, len(frame))
	}
	return nil
}

// substitute returns a small event with the number of one that has no frame in the draft dialect,
// so that the numbers have no gap.
func substitute(e *store.Event, reason error) *draft.Event {
	s := &draft.Event{ID: e.ID(), Time: e.Time, JobID: e.JobID(), TraceID: e.TraceID(), Type: arcp.EventEmit}
	var payload any = arcp.EventEmitPayload{Name: "event_omitted", Data: arcp.Raw(arcp.AppendString(nil, reason.Error()))}
	if e.Type.Terminal() {
		s.Type, payload = arcp.JobFailed, arcp.Errorf(arcp.CodeInternal, "the outcome of the job cannot be sent: %s", reason.Error())
	}
	s.Payload = arcp.Frame(s.Type, payload).Payload
	return s
}

// deliverDraft appends the frame of an event in the draft dialect to the batch. In the dialect every
// event has a number: events that are not logged, such as job.heartbeat, have no frame.
func (er *eventReader) deliverDraft(item eventlog.Item) {
	if item.Seq == 0 {
		return
	}
	e, b := item.Event, er.c.output.batch()
	start := len(b.data)
	var err error
	b.data, err = er.c.output.codec.AppendEvent(b.data, item.Seq, &draft.Event{ID: e.ID(), Type: e.Type, Time: e.Time,
		JobID: e.JobID(), TraceID: e.TraceID(), Payload: e.Payload()})
	if err != nil {
		er.c.srv.opts.Logger.Warn().Err(err).Str("job_id", string(e.JobID())).Str("type", string(e.Type)).Msg("event in the draft dialect")
		if b.data, err = er.c.output.codec.AppendEvent(b.data, item.Seq, substitute(e, err)); err != nil {
			er.fail(time.Now(), err)
			return
		}
	}
	b.ends = append(b.ends, len(b.data))
	er.c.output.counts.add(e.Type, len(b.data)-start)
}
