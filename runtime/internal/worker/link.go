package worker

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// Attach is told that a session that executes has a connection. What it was given
// before is given to it once more, under the same ids. Of the same connection it
// may be told again, when who it is has changed.
func (p *Pool) Attach(who approval.Actor, conn Conn) {
	p.mu.Lock()
	l := p.link(&who)
	if l.conn != conn {
		l.conn = conn
		p.tally(l)
		l.stop()
		for d := range l.held {
			d.again()
		}
	}
	refs := p.refsOf(l)
	p.unlock()
	p.recount(refs)
}

// Detach is told that a connection has ended. Its session has a while to come back
// before what it does is lost.
func (p *Pool) Detach(session arcp.SessionID, conn Conn) {
	p.mu.Lock()
	l := p.links[session]
	if l == nil || l.conn != conn { // another one has taken over
		p.unlock()
		return
	}
	l.conn = nil
	p.tally(l)
	l.gone++
	refs := p.refsOf(l)
	var beats []func()
	switch {
	case l.agents == 0:
		l.lose("the worker's session has ended")
		p.tidy(l)
	case len(l.held) > 0:
		since := l.gone
		l.timer = time.AfterFunc(p.away, func() { p.expire(l, since) })
		for d := range l.held {
			beats = append(beats, d.job.Heartbeat) // its silence begins now
		}
	}
	p.unlock()
	for _, beat := range beats {
		beat()
	}
	p.recount(refs)
}

// expire ends the wait for a session.
func (p *Pool) expire(l *link, since uint64) {
	p.mu.Lock()
	defer p.unlock()
	if l.conn == nil && l.gone == since {
		l.lose("the worker did not come back in time")
		p.tidy(l)
	}
}

func (l *link) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// lose gives up what the session does. Called with p.mu.
func (l *link) lose(why string) {
	for d := range l.held {
		d.lose(why)
	}
}

// refsOf are the tools whose workers are on a link. Called with p.mu.
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

// Receive takes a frame of a session about a job that it was given. The error is
// what the session is to be told. done is called when the frame has been dealt
// with, before Receive returns or later.
func (p *Pool) Receive(session arcp.SessionID, env *arcp.Envelope, done func()) *arcp.Error {
	p.mu.Lock()
	d := p.addressee(session, env)
	before := d.state()
	ok, err := d.admit(env)
	if !ok {
		refs := d.quits(env.Type)
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
	if before.full && !now.full { // another dispatch may wait for this
		refs = p.refsOf(d.link)
	}
	p.unlock()
	if now.taken && !before.taken {
		job.ManualHeartbeat() // the worker sends them from now on
	}
	job.Heartbeat() // whatever it says, it is alive
	if beats {
		done()
	}
	p.recount(refs)
	return nil
}

// state is what a frame changes for others: whether the dispatch is taken, and
// whether its session is given no more.
type state struct{ taken, full bool }

// state is called with the Pool's lock; d may be nil.
func (d *dispatch) state() state {
	if d == nil {
		return state{}
	}
	return state{taken: d.taken, full: d.link.untaken >= maxUntaken}
}

// addressee is the dispatch that a frame is about; nil: none. Called with p.mu.
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

// admit refuses a frame that has no place now. An ack or nack that has none is
// dropped: it is never answered. Called with the Pool's lock; d may be nil.
func (d *dispatch) admit(env *arcp.Envelope) (ok bool, err *arcp.Error) {
	answer := env.Type == arcp.Ack || env.Type == arcp.Nack
	switch {
	case answer && (d == nil || d.over || d.said):
		return false, nil
	case d == nil || d.over:
		return false, precondition("%s: the session does not run this attempt of the job, or not any more: "+
			"job_id and correlation_id must be those of its tool.invoke", env.Type)
	case d.said:
		return false, precondition("%s: the attempt has ended with its tool.result or tool.error", env.Type)
	case !d.taken && !answer && !d.back:
		return false, precondition("%s: the job must be taken first, with an ack of its tool.invoke", env.Type)
	}
	d.take()
	d.taken = d.taken || env.Type != arcp.Nack
	d.said = outcome(env.Type)
	return true, nil
}

// outcome reports whether a frame is the last one of its dispatch.
func outcome(t arcp.Type) bool {
	return t == arcp.ToolResult || t == arcp.ToolError || t == arcp.Nack
}

func precondition(format string, args ...any) *arcp.Error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, format, args...)
}
