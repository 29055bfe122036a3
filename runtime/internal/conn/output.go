package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/transport"
)

// output collects the frames of a turn, and passes them to the outbox at the end of the turn.
type output struct {
	outbox          *outbox
	current         *batch             // batch of this turn; nil: no frames yet
	currentExpected int                // bytes in current that the outbox expects
	head            []byte             // start of every event frame; see store.FrameHead
	codec           *draft.ServerCodec // makes the frames of draftDialect; nil: the connection speaks the RFC's dialect
	event           *draft.Event       // reused for the events that codec encodes; nil: none yet
	counts          frameCounts
	sidecar         bool // the session has negotiated binary frames, and the connection has them
}

// batch returns the batch of this turn to append frames to.
func (o *output) batch() *batch {
	if o.current == nil {
		o.current = batchPool.Get().(*batch)
	}
	return o.current
}

// dropEmptyBatch recycles the batch of this turn if it has no frames.
func (o *output) dropEmptyBatch() {
	if o.current != nil && len(o.current.data) == 0 {
		o.current.recycle()
		o.current = nil
	}
}

// append appends the frames of an envelope to the batch: its binary frame, if any, is the second. It mints the id, unless the envelope is a
// repeated dispatch, which has its id already.
func (o *output) append(env *arcp.Envelope) {
	if env.ID == "" {
		env.ID = arcp.NewMessageID()
	}
	b := o.batch()
	start := len(b.data)
	b.data = env.Append(b.data)
	b.ends = append(b.ends, len(b.data))
	if env.Sidecar != nil {
		b.appendContent(env.AppendSidecarHeader(b.data), env.Sidecar)
	}
	o.counts.add(env.Type, len(b.data)-start+len(env.Sidecar))
}

// publish passes the batch of this turn to the outbox. awaited reports that the client waits for
// nothing else.
func (o *output) publish(awaited bool) {
	if o.current != nil || o.currentExpected != 0 {
		o.outbox.publish(o.current, o.currentExpected, awaited)
		o.current, o.currentExpected = nil, 0
	}
	o.counts.flush()
}

// maxLastBatch bounds the bytes of a last batch that are sent with the close frame. They fit into the
// send buffer of the connection.
const maxLastBatch = transport.BufferSize / 2

// finish passes the last batch to the connection, and returns at most flushTimeout later. Close sends a
// small batch, which waits for no writer, in one write with the close frame. Events go through the
// writer, which records that they were written.
func (o *output) finish() {
	b := o.current
	o.current = nil
	o.counts.flush()
	if b != nil && (b.size() > maxLastBatch || b.last != 0) {
		o.outbox.publish(b, 0, false)
		b = nil
	}
	if o.outbox.drainWithin(flushTimeout) && b != nil {
		_ = o.outbox.appendFrames(b) // Close returns the error too
		b.recycle()
	}
}

// send sets the version, timestamp and session of an envelope, and appends its frame to the batch.
func (c *conn) send(now time.Time, env arcp.Envelope) {
	env.ARCP = c.machine.Version()
	env.Timestamp = now
	if env.Type != arcp.SessionRejected {
		env.SessionID = c.id
	}
	c.catalog.extend(&env)
	if err := c.dialect.append(now, &env); err != nil {
		c.srv.opts.Logger.Warn().Err(err).Str("session_id", string(c.id)).Str("type", string(env.Type)).Msg("answer in the draft dialect")
		if env.Type != arcp.Nack {
			c.nack(now, env.CorrelationID, arcp.Errorf(arcp.CodeResourceExhausted, "the answer is too large for a frame"))
		}
		return
	}
	if carriesError(env.Type) {
		c.srv.countError(&env)
	}
}

// carriesError reports whether the payload of a type is an arcp.Error.
func carriesError(t arcp.Type) bool {
	switch t {
	case arcp.Nack, arcp.JobFailed, arcp.CancelRefused, arcp.SessionRejected, arcp.SessionUnauthenticated,
		arcp.SessionEvicted, arcp.SubscribeClosed:
		return true
	}
	return false
}

// reply sends an answer to the message request.
func (c *conn) reply(now time.Time, request arcp.MessageID, t arcp.Type, payload any) {
	c.send(now, answerTo(request, t, payload))
}

// nack refuses the message request.
func (c *conn) nack(now time.Time, request arcp.MessageID, err *arcp.Error) {
	c.reply(now, request, arcp.Nack, err)
}

// answerTo returns an answer to the message request.
func answerTo(request arcp.MessageID, t arcp.Type, payload any) arcp.Envelope {
	env := arcp.Frame(t, payload)
	env.CorrelationID = request
	return env
}

// countError counts an error of the runtime by its code.
func (s *Server) countError(env *arcp.Envelope) {
	if e, err := arcp.DecodePayload[arcp.Error](env); err == nil {
		s.opts.Metrics.Errors.WithLabelValues(string(e.Code)).Inc()
	}
}
