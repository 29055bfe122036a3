package worker

import (
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// Attach sets the connection of a session that executes tools. A new connection gets the session's
// dispatches again, under the same ids. Attach is called again for the same connection when the
// actor has changed. The dispatches of principals that it may not serve any more are lost.
func (p *Pool) Attach(actor approval.Actor, conn Conn) {
	p.mu.Lock()
	ws := p.workerOf(&actor)
	for d := range ws.dispatches {
		if !ws.executesFor(d.attempt().Info().Principal) {
			d.revoke()
		}
	}
	if ws.conn != conn {
		ws.conn = conn
		p.updateMetric(ws)
		ws.stopTimer()
		for d := range ws.dispatches {
			d.resend()
		}
	}
	refs := p.refsOf(ws)
	p.unlock()
	p.updateSlots(refs)
}

// Detach removes the connection of a session. If the session has no new connection after the
// reconnect timeout, its dispatches are lost.
func (p *Pool) Detach(session arcp.SessionID, conn Conn) {
	p.mu.Lock()
	ws := p.workers[session]
	if ws == nil || ws.conn != conn { // a newer connection has replaced it
		p.unlock()
		return
	}
	ws.conn = nil
	p.updateMetric(ws)
	ws.disconnects++
	refs := p.refsOf(ws)
	switch {
	case ws.agents == 0:
		ws.lose(sessionEnded)
		p.removeIdle(ws)
	case len(ws.dispatches) > 0:
		disconnect := ws.disconnects
		now := time.Now()
		ws.expires = now.Add(p.reconnectTimeout)
		ws.timer = time.AfterFunc(p.reconnectTimeout, func() { p.expire(ws, disconnect) })
		for d := range ws.dispatches {
			d.waitForReconnect(now)
		}
	}
	p.unlock()
	p.updateSlots(refs)
}

// Revoke is Detach for a session that may not execute jobs any more. Its dispatches are lost at once.
func (p *Pool) Revoke(session arcp.SessionID, conn Conn) {
	p.mu.Lock()
	if ws := p.workers[session]; ws != nil && ws.conn == conn {
		for d := range ws.dispatches {
			d.revoke()
		}
	}
	p.unlock()
	p.Detach(session, conn)
}

// expire loses the dispatches of a session without a new connection since its disconnect.
func (p *Pool) expire(ws *workerSession, disconnect uint64) {
	p.mu.Lock()
	defer p.unlock()
	if ws.conn == nil && ws.disconnects == disconnect {
		ws.lose("did not return in " + shortDuration(p.reconnectTimeout))
		p.removeIdle(ws)
	}
}

// stopTimer stops the wait for a new connection.
func (ws *workerSession) stopTimer() {
	if ws.timer != nil {
		ws.timer.Stop()
		ws.timer = nil
	}
}

// sessionEnded says of a worker that its session has ended, or that it has disconnected without an agent.
const sessionEnded = "has no connection and is not registered any more"

// revoke cancels and loses a dispatch that the worker may not execute any more. Called with Pool.mu.
func (d *dispatch) revoke() {
	d.deliver(d.cancel("the worker may not execute the job any more"))
	d.lose("may not execute the job any more")
}

// lose ends the dispatches of the session. reason follows the name of the worker. Called with p.mu.
func (ws *workerSession) lose(reason string) {
	for d := range ws.dispatches {
		d.lose(reason)
	}
}

// shortDuration returns the text of a duration without the units that are 0 at its end.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// refsOf returns the tools that the agents of a session execute. Called with p.mu.
func (p *Pool) refsOf(ws *workerSession) (refs []string) {
	if ws.agents == 0 {
		return nil
	}
	for _, a := range p.agents {
		if a.worker == ws {
			refs = append(refs, a.executes...)
		}
	}
	return refs
}

// Receive handles a frame of a session about a job that was dispatched to the session. The error is
// the answer to the session. done is called when the frame has been handled, before Receive
// returns or later.
func (p *Pool) Receive(session arcp.SessionID, env *arcp.Envelope, done func()) *arcp.Error {
	p.mu.Lock()
	d := p.dispatchOf(session, env)
	before := d.state()
	ok, err := d.admit(env)
	if !ok {
		refs := d.releaseEnded(env.Type)
		p.unlock()
		done()
		p.updateSlots(refs)
		return err
	}
	heartbeat := env.Type == arcp.JobHeartbeat
	if !heartbeat {
		d.frames = append(d.frames, frame{env, done})
		d.signal()
	}
	job, now := d.job, d.state()
	var refs []string
	if before.full && !now.full { // an attempt may wait for the session
		refs = p.refsOf(d.worker)
	}
	p.unlock()
	if now.accepted && !before.accepted {
		job.ManualHeartbeat() // the worker sends heartbeats from now on
	}
	job.Heartbeat() // any frame is a sign of life
	if heartbeat {
		done()
	}
	p.updateSlots(refs)
	return nil
}

// state reports whether a dispatch is accepted, and whether its session has maxUnanswered
// dispatches without an answer.
type state struct{ accepted, full bool }

// state returns the state of a dispatch, which may be nil. Called with Pool.mu.
func (d *dispatch) state() state {
	if d == nil {
		return state{}
	}
	return state{accepted: d.accepted, full: d.worker.pendingDispatches >= maxUnanswered}
}

// dispatchOf returns the dispatch that a frame is about; nil: there is none. Called with p.mu.
func (p *Pool) dispatchOf(session arcp.SessionID, env *arcp.Envelope) *dispatch {
	d := p.byID[env.CorrelationID]
	if (env.Type == arcp.ToolInvoke || env.Type == arcp.AgentDelegate) && env.CorrelationID == "" {
		d = p.byJob[env.JobID]
	}
	if d == nil || d.worker.session != session || env.JobID != d.jobID && env.JobID != "" {
		return nil
	}
	return d
}

// admit refuses a frame that the state of the dispatch does not allow. A refused ack or nack gets
// no error. d may be nil. Called with Pool.mu.
func (d *dispatch) admit(env *arcp.Envelope) (ok bool, err *arcp.Error) {
	answer := env.Type == arcp.Ack || env.Type == arcp.Nack
	switch {
	case answer && (d == nil || d.ended || d.lost != "" || d.hasOutcome):
		return false, nil
	case d == nil || d.ended || d.lost != "":
		return false, precondition("%s: the session does not run this attempt of the job: "+
			"job_id and correlation_id must be those of its tool.invoke", env.Type)
	case d.hasOutcome:
		return false, precondition("%s: the attempt has ended with its tool.result or tool.error", env.Type)
	case !d.accepted && !answer && !d.resent:
		return false, precondition("%s: the job must be taken first, with an ack of its tool.invoke", env.Type)
	}
	d.markAnswered()
	d.accepted = d.accepted || env.Type != arcp.Nack
	d.hasOutcome = isOutcome(env.Type)
	return true, nil
}

// isOutcome reports whether a frame is the last one of its dispatch.
func isOutcome(t arcp.Type) bool {
	return t == arcp.ToolResult || t == arcp.ToolError || t == arcp.Nack
}

func precondition(format string, args ...any) *arcp.Error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, format, args...)
}
