package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/engine"
)

// clientStreamRoutes has the handlers of the streams that a client writes to its jobs (SPEC.md §5.16).
var clientStreamRoutes = map[arcp.Type]handler{
	arcp.StreamOpen:  on(commandsOf, (*commands).openStream),
	arcp.StreamChunk: on(commandsOf, (*commands).writeStream),
	arcp.StreamClose: on(commandsOf, (*commands).closeStream),
	arcp.StreamError: on(commandsOf, (*commands).failStream),
}

// streamWriter returns the client as the sender of a frame of a stream. The ack of a chunk comes when the
// tool has read it, so the frame does not count as an unanswered command.
func (cm *commands) streamWriter(request arcp.MessageID) engine.Requester {
	c := cm.c
	return engine.Requester{Request: request, Principal: c.principal.identity.Principal, Session: c.id, Answers: c.events.cursor}
}

func (cm *commands) openStream(_ time.Time, env *arcp.Envelope, p *arcp.StreamOpenPayload) error {
	if env.JobID == "" {
		return errInvalid("stream.open needs the job_id of a job that reads streams")
	}
	cm.c.srv.opts.Engine.Streams().Open(cm.streamWriter(env.ID), env.JobID, env.StreamID, p)
	return nil
}

func (cm *commands) writeStream(now time.Time, env *arcp.Envelope, p *arcp.StreamChunkPayload) error {
	if err := cm.c.srv.opts.Engine.Streams().Write(cm.streamWriter(env.ID), env.StreamID, p); err != nil {
		cm.c.nack(now, env.ID, err)
	}
	return nil
}

func (cm *commands) closeStream(now time.Time, env *arcp.Envelope, p *arcp.StreamClosePayload) error {
	cm.answerStream(now, env, cm.c.srv.opts.Engine.Streams().End(cm.streamWriter(env.ID), env.StreamID, p.FinalSequence, nil))
	return nil
}

func (cm *commands) failStream(now time.Time, env *arcp.Envelope, p *arcp.ErrorPayload) error {
	cm.answerStream(now, env, cm.c.srv.opts.Engine.Streams().End(cm.streamWriter(env.ID), env.StreamID, nil, p))
	return nil
}

func (cm *commands) answerStream(now time.Time, env *arcp.Envelope, err *arcp.Error) {
	if err != nil {
		cm.c.nack(now, env.ID, err)
		return
	}
	cm.c.reply(now, env.ID, arcp.Ack, arcp.AckPayload{})
}
