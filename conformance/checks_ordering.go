package conformance

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
)

func orderSubmitAnswers(_ context.Context, t *T) {
	c := t.Open()
	tools := []string{"demo.echo", "no.such.tool", "demo.echo@9.9.9", "demo.echo", "Not a name", "demo.echo@0.9.0"}
	var ids []arcp.MessageID
	for i := range 60 {
		ids = append(ids, c.Submit(tools[i%len(tools)], map[string]any{"n": i}))
	}
	ended := 0
	for len(ids) > 0 {
		f := c.event("every submit is answered")
		if refused := f.Type == arcp.JobFailed && f.EventSeq == 0; f.Type == arcp.JobAccepted || refused {
			want(t, "answers come in the order of the submits", f.CorrelationID, ids[0])
			ids = ids[1:]
		} else if f.Type.Terminal() {
			ended++
		}
	}
	for ended < 30 {
		if c.event("every accepted job ends").Type.Terminal() {
			ended++
		}
	}
}

func orderAcceptedFirst(_ context.Context, t *T) {
	c := t.Open()
	var ids []arcp.MessageID
	for i := range 40 {
		tool, args := "demo.echo", map[string]any{"n": i}
		if i%2 == 1 {
			tool, args = "demo.emit", map[string]any{"count": 3, "bytes": 1}
		}
		ids = append(ids, c.Submit(tool, args))
	}
	first, open := map[arcp.MessageID]bool{}, len(ids)
	for open > 0 {
		f := c.event("every job ends")
		if !first[f.CorrelationID] {
			want(t, "the first of a job is its acceptance", f.Type, arcp.JobAccepted)
			first[f.CorrelationID] = true
		}
		if f.Type.Terminal() {
			open--
		}
	}
}

// sideBySide runs demo.emit several times at once and checks every job's log.
func (c *Conn) sideBySide(priorities ...arcp.Priority) {
	const count = 200
	jobs := map[arcp.MessageID]*Job{}
	for _, p := range priorities {
		id := c.Submit("demo.emit", map[string]any{"count": count, "bytes": 20}, func(env *arcp.Envelope) { env.Priority = p })
		jobs[id] = &Job{Submit: id}
	}
	for open := len(jobs); open > 0; {
		f := c.event("every job ends")
		job := jobs[f.CorrelationID]
		c.t.Want("an event belongs to a job", job != nil, "%s is correlated to %q", f, f.CorrelationID)
		job.Events = append(job.Events, f)
		if f.Type.Terminal() {
			open--
		}
	}
	for _, job := range jobs {
		c.t.logged(job, count, 20)
	}
}

func orderInterleaved(_ context.Context, t *T) {
	t.Open().sideBySide("", "", "", "")
}

func orderPriority(_ context.Context, t *T) {
	t.Open().sideBySide(arcp.PriorityLow, arcp.PriorityCritical, arcp.PriorityHigh)
}

func orderSlowSession(_ context.Context, t *T) {
	slow, other := t.Open(), t.Open()
	const count, size = 2000, 8 << 10 // more than sockets and buffers take
	submit := slow.Submit("demo.emit", map[string]any{"count": count, "bytes": size})
	for range 20 {
		other.Completed("another session is served", other.Invoke("demo.echo", map[string]any{}))
	}
	other.Drop() // nobody answers pings on it any more
	t.logged(slow.Follow(submit), count, size)
}
