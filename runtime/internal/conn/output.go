package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// output collects the frames of a turn of the loop, and hands them to the outbox at its end.
type output struct {
	box    *outbox
	fill   *frames // the batch of this turn; nil: nothing
	moved  int     // bytes that the outbox expected and that are in fill
	head   []byte  // start of every frame of the session; see store.FrameHead
	counts frameCounts
}

// batch returns the batch of this turn.
func (o *output) batch() *frames {
	if o.fill == nil {
		o.fill = framesPool.Get().(*frames)
	}
	return o.fill
}

// dropEmptyBatch gives back a batch to which nothing was appended.
func (o *output) dropEmptyBatch() {
	if o.fill != nil && len(o.fill.data) == 0 {
		o.fill.recycle()
		o.fill = nil
	}
}

// append appends an envelope to the batch.
func (o *output) append(env *arcp.Envelope) {
	f := o.batch()
	start := len(f.data)
	f.data = env.Append(f.data)
	f.ends = append(f.ends, len(f.data))
	o.counts.add(env.Type, len(f.data)-start)
}

// publish hands the batch to the writer.
func (o *output) publish() {
	if o.fill != nil || o.moved != 0 {
		o.box.publish(o.fill, o.moved)
		o.fill, o.moved = nil, 0
	}
	o.counts.flush()
}

// send stamps an envelope and appends it to the batch.
func (c *conn) send(now time.Time, env arcp.Envelope) {
	env.ARCP = c.m.Version()
	if env.ID == "" { // a dispatch has an id, under which it may be sent again
		env.ID = arcp.NewMessageID()
	}
	env.Timestamp = now
	if env.Type != arcp.SessionRejected {
		env.SessionID = c.id
	}
	c.output.append(&env)
	if carriesError(env.Type) {
		c.srv.countError(&env)
	}
}

func carriesError(t arcp.Type) bool {
	switch t {
	case arcp.Nack, arcp.JobFailed, arcp.CancelRefused, arcp.SessionRejected, arcp.SessionUnauthenticated, arcp.SessionEvicted, arcp.SubscribeClosed:
		return true
	}
	return false
}

// reply sends an answer to the message with id request.
func (c *conn) reply(now time.Time, request arcp.MessageID, t arcp.Type, payload any) {
	c.send(now, answerTo(request, t, payload))
}

func (c *conn) nack(now time.Time, request arcp.MessageID, err *arcp.Error) {
	c.reply(now, request, arcp.Nack, err)
}

func answerTo(request arcp.MessageID, t arcp.Type, payload any) arcp.Envelope {
	env := arcp.Frame(t, payload)
	env.CorrelationID = request
	return env
}
