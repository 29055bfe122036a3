package conn

import (
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// frameDecoder decodes a frame. *draft.ServerCodec decodes the frames of the draft dialect.
type frameDecoder interface {
	Decode(frame []byte) (arcp.Envelope, error)
	// ReadAck decodes a plain acknowledgement of a session; see arcp.ReadAck.
	ReadAck(frame []byte, id arcp.SessionID) (seq uint64, ok bool)
}

// rfcDecoder decodes the frames of the RFC's dialect.
type rfcDecoder struct{}

func (rfcDecoder) Decode(frame []byte) (arcp.Envelope, error) { return arcp.Decode(frame) }

func (rfcDecoder) ReadAck(frame []byte, id arcp.SessionID) (seq uint64, ok bool) {
	return arcp.ReadAck(frame, id)
}

// decoder decodes the frames of a connection. Only the reader uses it.
type decoder struct {
	frames frameDecoder // of the dialect of the first frame; nil: no frame was decoded
}

// decode sets env, bad or refused of a frame and, with the first frame, codec. An owned frame belongs to
// the decoder.
func (d *decoder) decode(in *inbound, frame []byte, owned bool) {
	if d.frames == nil {
		d.frames = rfcDecoder{}
		if codec, err := draft.NewServerCodec(frame); err == nil {
			in.codec, d.frames = codec, codec
		}
	}
	decode := d.frames.Decode
	if _, rfc := d.frames.(rfcDecoder); rfc && owned {
		decode = arcp.DecodeOwned
	}
	env, err := decode(frame)
	if err == nil {
		in.env = new(env)
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

// dialect is the dialect of a connection, which speaks the dialect of its first frame. The rest of the
// connection sees the messages of package arcp in both dialects. The loop calls the methods, except for
// status.
type dialect interface {
	// name returns the name of the dialect.
	name() arcp.Dialect
	// profile returns the name of the client's library; empty: it is not known.
	profile() string
	// tokenPrefix returns the prefix of resume tokens, which identifies the dialect of the session.
	tokenPrefix() string
	// credentials returns the credentials that the opening message has besides the resume token; nil:
	// there are none.
	credentials() *auth.Request
	// resumed is called when the connection has attached to an existing session. followed are the jobs
	// of other sessions that the session follows.
	resumed(now time.Time, row *store.Session, followed []arcp.JobID)
	// hasInventory reports whether an answer of type t has the inventory of agents.
	hasInventory(t arcp.Type) bool

	// status returns the status of a job for the client. Any goroutine may call it.
	status(j *store.Job) string
	// maxPage returns the maximum size of a page of jobs in bytes; 0: the bound of all pages.
	maxPage() int
	// acceptedIsAnswer reports whether job.accepted is an answer outside the log of the session.
	acceptedIsAnswer() bool
	// correlatesEvents reports whether the client reads the correlation ids of events. If not, its
	// session needs each event once, whatever its requests for the events of a job.
	correlatesEvents() bool
	// sendsCredentials reports whether the client is sent the credentials of its jobs.
	sendsCredentials() bool

	// append appends the frames of an envelope to the batch.
	append(now time.Time, env *arcp.Envelope) error
	// appendEvent appends the frame of an event to the batch.
	appendEvent(item eventlog.Item)
	// usesForms reports whether appendEvent uses the Forms of an event.
	usesForms() bool
}

// useDraft makes the connection speak the draft dialect. A client that is not recognised has the
// configured profile.
func (c *conn) useDraft(codec *draft.ServerCodec) {
	c.output.codec, c.dialect = codec, (*draftDialect)(c)
	if name := c.srv.opts.DraftProfile; name != "" && codec.Profile() == draft.Universal {
		if profile, err := draft.ParseProfile(name); err == nil { // the configuration was checked
			codec.SetProfile(profile)
		}
	}
	c.machine = machine.NewDraft(c.handshake.startedAt, c.srv.machineConfig(false), c.id)
}

// refuseFrame answers a frame that the codec does not accept. Only a frame that is no envelope, or the
// first one, counts as malformed: others are optional or unknown messages.
func (c *conn) refuseFrame(now time.Time, refused *draft.Refusal) {
	c.send(now, refused.Nack())
	if refused.Cause != nil || c.machine.Phase() == machine.Opening {
		c.machine.Malformed(&arcp.EncodingError{Reason: arcp.ReasonPayload, Message: refused.Error()})
	}
}

// checkDialect refuses to attach to a session of the other dialect, which is not harmed.
func (c *conn) checkDialect(row *store.Session) *arcp.Error {
	switch {
	case row.Dialect == c.dialect.name():
		return nil
	case row.Dialect == arcp.DialectRFC:
		return arcp.Errorf(arcp.CodeResumeWindowExpired, "the session was opened by session.open; resume it in that dialect")
	}
	return arcp.Errorf(arcp.CodeFailedPrecondition, "the session was opened by session.hello; resume it in that dialect")
}

// rfcDialect is the view of a connection as the RFC's dialect.
type rfcDialect conn

func (d *rfcDialect) name() arcp.Dialect                              { return arcp.DialectRFC }
func (d *rfcDialect) profile() string                                 { return "" }
func (d *rfcDialect) tokenPrefix() string                             { return resumePrefix }
func (d *rfcDialect) credentials() *auth.Request                      { return nil }
func (d *rfcDialect) resumed(time.Time, *store.Session, []arcp.JobID) {}
func (d *rfcDialect) hasInventory(t arcp.Type) bool                   { return t == arcp.SessionAccepted }
func (d *rfcDialect) status(j *store.Job) string                      { return string(j.State) }
func (d *rfcDialect) maxPage() int                                    { return 0 }
func (d *rfcDialect) acceptedIsAnswer() bool                          { return false }
func (d *rfcDialect) correlatesEvents() bool                          { return true }
func (d *rfcDialect) sendsCredentials() bool                          { return true }
func (d *rfcDialect) usesForms() bool                                 { return false }

func (d *rfcDialect) append(_ time.Time, env *arcp.Envelope) error {
	d.output.append(env)
	return nil
}

// appendEvent appends the extension of forwarded events to a forwarded event, and the values of
// credentials to an event of the session's own jobs.
func (d *rfcDialect) appendEvent(item eventlog.Item) {
	b := d.output.batch()
	start := len(b.data)
	head, event := d.output.head, item.Event
	var chunk binaryChunk
	split := false
	if d.output.sidecar {
		if chunk, split = splitChunk(event); split {
			event = chunk.event
		}
	}
	if item.Forwarded {
		b.data, head = d.follows.appendForwarded(append(b.data, head...), item.Event), nil
	}
	b.data = store.AppendFrame(b.data, head, item.Seq, item.CorrelationID, event)
	if !item.Forwarded {
		b.data = d.srv.secrets.appendValues(b.data, item.Event)
	}
	b.ends = append(b.ends, len(b.data))
	size := len(b.data) - start
	if split {
		head := chunk.head.Append(b.data)
		size += len(head) - len(b.data) + len(chunk.content)
		b.appendContent(head, chunk.content)
	}
	d.output.counts.add(item.Event.Type, size)
}
