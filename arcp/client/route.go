package client

import (
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// receive handles one envelope: number, hook, route, acknowledge. Only the
// reader calls it. An error ends the connection.
func (c *Client) receive(env *arcp.Envelope) error {
	if fresh, err := c.sequence.check(env); !fresh {
		return err
	}
	if c.opts.OnEvent == nil || !c.opts.OnEvent(env) {
		c.route(env)
	}
	if n := c.ackEvery.Load(); n != 0 && env.EventSeq >= c.acked+n {
		c.acked = env.EventSeq
		c.out.putAck(env.EventSeq)
	}
	return nil
}

// route finds whose an envelope is: a call's answer, a job's or feed's message,
// or nobody's.
func (c *Client) route(env *arcp.Envelope) {
	if env.CorrelationID != "" && c.answer(env) {
		if env.EventSeq != 0 { // of a job, too
			c.deliver(env)
		}
		return
	}
	if w := c.worker.Load(); w != nil && w.take(env) {
		return
	}
	handled := c.question(env)
	if c.control(env) || c.deliver(env) || handled {
		return
	}
	if c.opts.OnUnsolicited != nil {
		kept := *env
		c.opts.OnUnsolicited(&kept)
		return
	}
	if c.stray.pushDropOldest(env) {
		c.opts.Log("dropped the oldest unsolicited message")
	}
}

// answer hands an envelope to the call that waits for it.
func (c *Client) answer(env *arcp.Envelope) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.calls[env.CorrelationID]
	if !ok {
		return false
	}
	delete(c.calls, env.CorrelationID)
	c.out.answered(env.CorrelationID)
	switch {
	case w.answer == nil:
		w.feed.reopenedLocked(env)
		return true
	case w.feed != nil && env.Type == arcp.SubscribeAccepted:
		w.feed.openLocked(env)
	}
	w.answer <- *env
	return true
}

// control handles what the runtime asks of the client itself. What only tells
// something is routed on.
func (c *Client) control(env *arcp.Envelope) (done bool) {
	switch env.Type {
	case arcp.Ping:
		p, _ := arcp.DecodePayload[arcp.PingPayload](env) // a nonce that cannot be read is not repeated
		c.reply(env, arcp.Pong, arcp.PongPayload(p))
		return true
	case arcp.SessionPing:
		p, _ := arcp.DecodePayload[arcp.SessionPingPayload](env)
		c.reply(env, arcp.SessionPong, arcp.SessionPongPayload{PingNonce: p.Nonce, ReceivedAt: time.Now()})
		return true
	case arcp.SessionRefresh:
		c.startRefresh(c.link.ctx, env)
		return true
	case arcp.SessionEvicted:
		c.farewell = RemoteErrorOf(env)
	case arcp.SessionClose:
		p, _ := arcp.DecodePayload[arcp.SessionClosePayload](env)
		c.farewell = fmt.Errorf("the runtime closes the session: %s", p.Reason)
	}
	return false
}

// reply answers without waiting: the reader must not. When the outbox is full
// the answer is dropped.
func (c *Client) reply(to *arcp.Envelope, t arcp.Type, payload any) {
	env := arcp.Frame(t, payload)
	env.CorrelationID = to.ID
	c.stamp(&env)
	if room, _ := c.out.tryPut(&env, false); room != nil {
		c.opts.Log("dropped an answer: nothing is being written", "type", t)
	}
}

// deliver hands an envelope to the handles it belongs to (§6.2): by correlation
// to the job its sender submitted, by subscription to a feed, else by job_id to
// everyone who follows the job.
func (c *Client) deliver(env *arcp.Envelope) bool {
	var few [4]*Job
	jobs, feed := c.receivers(env, few[:0])
	for _, j := range jobs {
		j.receive(env)
	}
	if feed != nil {
		feed.receive(env)
	}
	return len(jobs) > 0 || feed != nil
}

func (c *Client) receivers(env *arcp.Envelope, jobs []*Job) ([]*Job, *Feed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if env.SubscriptionID != "" {
		if f := c.feeds[env.SubscriptionID]; f != nil {
			return nil, f
		}
	}
	own := c.submits[env.CorrelationID]
	if own != nil && own.id != "" && env.JobID != "" && env.JobID != own.id {
		own = nil // another job's, whatever it is correlated to
	}
	if own != nil {
		jobs = append(jobs, own)
	}
	for _, j := range c.jobs[env.JobID] {
		if j != own && (own == nil || j.request == "") {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// follow makes a job's messages go to j; not once the connection has ended.
func (c *Client) follow(j *Job) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if j.request != "" {
		c.submits[j.request] = j
	}
	if j.id != "" {
		c.jobs[j.id] = append(c.jobs[j.id], j)
	}
	return nil
}

// named gives a submitted job the id under which it was accepted.
func (c *Client) named(j *Job, id arcp.JobID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.id == "" && id != "" {
		j.id = id
		c.jobs[id] = append(c.jobs[id], j)
	}
}

// forget takes j out of the tables.
func (c *Client) forget(j *Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.submits[j.request] == j {
		delete(c.submits, j.request)
		c.out.answered(j.request)
	}
	rest := slices.DeleteFunc(c.jobs[j.id], func(other *Job) bool { return other == j })
	if len(rest) == 0 {
		delete(c.jobs, j.id)
	} else {
		c.jobs[j.id] = rest
	}
}

// subscribed reports whether a handle other than a submitter's follows the job.
func (c *Client) subscribed(id arcp.JobID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.jobs[id], func(j *Job) bool { return j.request == "" })
}
