package worker

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// Attach sets the connection of a session that executes tools. The session's dispatches are sent again
// on a new connection, under the same ids. Attach is called again for the same connection when the
// actor has changed.
func (p *Pool) Attach(who approval.Actor, conn Conn) {
	p.mu.Lock()
	l := p.link(&who)
	if l.conn != conn {
		l.conn = conn
		p.updateMetric(l)
		l.stop()
		for d := range l.held {
			d.resend()
		}
	}
	refs := p.refsOf(l)
	p.unlock()
	p.recount(refs)
}

// Detach removes the connection of a session. If the session has no new connection after the away
// time, its dispatches are lost.
func (p *Pool) Detach(session arcp.SessionID, conn Conn) {
	p.mu.Lock()
	l := p.links[session]
	if l == nil || l.conn != conn { // a newer connection has replaced it
		p.unlock()
		return
	}
	l.conn = nil
	p.updateMetric(l)
	l.gone++
	refs := p.refsOf(l)
	var beats []func()
	switch {
	case l.agents == 0:
		l.lose("the worker's session has ended")
		p.removeIdle(l)
	case len(l.held) > 0:
		since := l.gone
		l.timer = time.AfterFunc(p.away, func() { p.expire(l, since) })
		for d := range l.held {
			beats = append(beats, d.job.Heartbeat) // the heartbeat timeout begins now
		}
	}
	p.unlock()
	for _, beat := range beats {
		beat()
	}
	p.recount(refs)
}

// expire loses the dispatches of a session that has no new connection.
func (p *Pool) expire(l *link, since uint64) {
	p.mu.Lock()
	defer p.unlock()
	if l.conn == nil && l.gone == since {
		l.lose("the worker did not come back in time")
		p.removeIdle(l)
	}
}

func (l *link) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// lose loses the dispatches of the session. Called with p.mu.
func (l *link) lose(why string) {
	for d := range l.held {
		d.lose(why)
	}
}

// refsOf returns the tools that the agents of a link execute. Called with p.mu.
func (p *Pool) refsOf(l *link) (refs []string) {
	if l.agents == 0 {
		return nil
	}
	for _, a := range p.agents {
		if a.link == l {
			refs = append(refs, a.executes...)
		}
	}
	return refs
}

// Receive handles a frame of a session about a job that was dispatched to it. The error is the answer
// to the session. done is called when the frame has been handled, before Receive returns or later.
func (p *Pool) Receive(session arcp.SessionID, env *arcp.Envelope, done func()) *arcp.Error {
	p.mu.Lock()
	d := p.addressee(session, env)
	before := d.state()
	ok, err := d.admit(env)
	if !ok {
		refs := d.releaseEnded(env.Type)
		p.unlock()
		done()
		p.recount(refs)
		return err
	}
	beats := env.Type == arcp.JobHeartbeat
	if !beats {
		d.frames = append(d.frames, frame{env, done})
		d.signal()
	}
	job, now := d.job, d.state()
	var refs []string
	if before.full && !now.full { // an attempt may wait for it
		refs = p.refsOf(d.link)
	}
	p.unlock()
	if now.taken && !before.taken {
		job.ManualHeartbeat() // the worker sends heartbeats from now on
	}
	job.Heartbeat() // any frame is a sign of life
	if beats {
		done()
	}
	p.recount(refs)
	return nil
}

// state is whether a dispatch is taken, and whether its session has maxUntaken dispatches.
type state struct{ taken, full bool }

// state returns the state of a dispatch, which may be nil. Called with Pool.mu.
func (d *dispatch) state() state {
	if d == nil {
		return state{}
	}
	return state{taken: d.taken, full: d.link.untaken >= maxUntaken}
}

// addressee returns the dispatch that a frame is about; nil: none. Called with p.mu.
func (p *Pool) addressee(session arcp.SessionID, env *arcp.Envelope) *dispatch {
	d := p.current[env.CorrelationID]
	if env.Type == arcp.ToolInvoke && env.CorrelationID == "" {
		d = p.byJob[env.JobID]
	}
	if d == nil || d.link.session != session || env.JobID != d.jobID && env.JobID != "" {
		return nil
	}
	return d
}

// admit refuses a frame that the state of the dispatch does not allow. Such an ack or nack is dropped
// without an error. d may be nil. Called with Pool.mu.
func (d *dispatch) admit(env *arcp.Envelope) (ok bool, err *arcp.Error) {
	answer := env.Type == arcp.Ack || env.Type == arcp.Nack
	switch {
	case answer && (d == nil || d.ended || d.hasOutcome):
		return false, nil
	case d == nil || d.ended:
		return false, precondition("%s: the session does not run this attempt of the job: "+
			"job_id and correlation_id must be those of its tool.invoke", env.Type)
	case d.hasOutcome:
		return false, precondition("%s: the attempt has ended with its tool.result or tool.error", env.Type)
	case !d.taken && !answer && !d.resent:
		return false, precondition("%s: the job must be taken first, with an ack of its tool.invoke", env.Type)
	}
	d.markAnswered()
	d.taken = d.taken || env.Type != arcp.Nack
	d.hasOutcome = outcome(env.Type)
	return true, nil
}

// outcome reports whether a frame is the last one of its dispatch.
func outcome(t arcp.Type) bool {
	return t == arcp.ToolResult || t == arcp.ToolError || t == arcp.Nack
}

func precondition(format string, args ...any) *arcp.Error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, format, args...)
}
