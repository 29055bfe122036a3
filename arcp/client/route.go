package client

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// routes are the receivers of messages. Guarded by Client.mu.
type routes struct {
	calls   map[arcp.MessageID]pendingCall
	submits map[arcp.MessageID]*Job // by the id of the submit
	jobs    map[arcp.JobID][]*Job
	feeds   map[arcp.SubscriptionID]*Feed
}

// pendingCall is a call without an answer.
type pendingCall struct {
	answer chan arcp.Envelope // buffered 1; nil: the answer reopens the feed
	feed   *Feed              // feed opened by the answer; nil: none
}

func newRoutes() routes {
	return routes{
		make(map[arcp.MessageID]pendingCall),
		make(map[arcp.MessageID]*Job),
		make(map[arcp.JobID][]*Job),
		make(map[arcp.SubscriptionID]*Feed),
	}
}

// removeAll removes and returns all jobs and feeds.
func (r *routes) removeAll() (jobs []*Job, feeds []*Feed) {
	for _, j := range r.submits {
		jobs = append(jobs, j)
	}
	for _, js := range r.jobs {
		jobs = append(jobs, js...)
	}
	clear(r.submits)
	clear(r.jobs)
	return jobs, r.removeFeeds()
}

// removeFeeds removes and returns all feeds, including feeds that are being reopened.
func (r *routes) removeFeeds() (feeds []*Feed) {
	for _, f := range r.feeds {
		feeds = append(feeds, f)
	}
	clear(r.feeds)
	for id, w := range r.calls {
		if w.answer == nil {
			feeds = append(feeds, w.feed)
			delete(r.calls, id)
		}
	}
	return feeds
}

// receivers returns the handles for an envelope (§6.2): the feed of its subscription, the job of its
// correlation_id, or all followers of its job.
func (r *routes) receivers(env *arcp.Envelope, jobs []*Job) ([]*Job, *Feed) {
	if env.SubscriptionID != "" {
		if f := r.feeds[env.SubscriptionID]; f != nil {
			return nil, f
		}
	}
	own := r.submits[env.CorrelationID]
	if own != nil && own.id != "" && env.JobID != "" && env.JobID != own.id {
		own = nil // an event of another job
	}
	if own != nil {
		jobs = append(jobs, own)
	}
	for _, j := range r.jobs[env.JobID] {
		if j != own && (own == nil || j.request == "") {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// route delivers an envelope to its call, worker, job or feed, or else to Unsolicited.
func (r *reader) route(env *arcp.Envelope) {
	c := r.c
	if env.CorrelationID != "" && c.answer(env) {
		if env.EventSeq != 0 { // the answer is also an event of a job
			r.deliver(env)
		}
		return
	}
	if w := c.worker.Load(); w != nil && w.receive(env) {
		return
	}
	handled := c.questions.receive(env)
	if r.control(env) || r.deliver(env) || handled {
		return
	}
	if c.opts.OnUnsolicited != nil {
		envCopy := *env
		c.opts.OnUnsolicited(&envCopy)
		return
	}
	if c.unsolicited.pushDropOldest(env) {
		c.opts.Log("dropped the oldest unsolicited message")
	}
}

// deliver passes an envelope to its jobs or feed. It reports whether there is one.
func (r *reader) deliver(env *arcp.Envelope) bool {
	var few [4]*Job
	r.c.mu.Lock()
	jobs, feed := r.c.routes.receivers(env, few[:0])
	r.c.mu.Unlock()
	for _, j := range jobs {
		j.receive(env)
	}
	if feed != nil {
		feed.receive(env)
	}
	return len(jobs) > 0 || feed != nil
}

// answer passes an envelope to the call that waits for it. It reports whether there is one.
func (c *Client) answer(env *arcp.Envelope) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.routes.calls[env.CorrelationID]
	if !ok {
		return false
	}
	delete(c.routes.calls, env.CorrelationID)
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

// follow routes the messages of a job to j.
func (c *Client) follow(j *Job) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if j.request != "" {
		c.routes.submits[j.request] = j
	}
	if j.id != "" {
		c.routes.jobs[j.id] = append(c.routes.jobs[j.id], j)
	}
	return nil
}

// acceptedAs also routes by the id of the accepted job.
func (j *Job) acceptedAs(id arcp.JobID) {
	j.c.mu.Lock()
	defer j.c.mu.Unlock()
	if j.id == "" && id != "" {
		j.id = id
		j.c.routes.jobs[id] = append(j.c.routes.jobs[id], j)
	}
}

// unfollow removes j from the routes.
func (j *Job) unfollow() {
	j.c.mu.Lock()
	defer j.c.mu.Unlock()
	r := &j.c.routes
	if r.submits[j.request] == j {
		delete(r.submits, j.request)
		j.c.out.answered(j.request)
	}
	rest := slices.DeleteFunc(r.jobs[j.id], func(other *Job) bool { return other == j })
	if len(rest) == 0 {
		delete(r.jobs, j.id)
	} else {
		r.jobs[j.id] = rest
	}
}

// subscribed reports whether a subscription also follows the job.
func (j *Job) subscribed() bool {
	j.c.mu.Lock()
	defer j.c.mu.Unlock()
	return slices.ContainsFunc(j.c.routes.jobs[j.id], func(other *Job) bool { return other.request == "" })
}
