package engine

import (
	"context"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/job"
	"github.com/arcpd/arcpd/runtime/store"
)

// Caller is what a built-in tool may ask its job for: who called.
type Caller interface {
	Principal() string
	Session() arcp.SessionID
}

// inlineJob is the job of a built-in tool: it emits nothing.
type inlineJob struct {
	toolJob
}

func (j inlineJob) Principal() string       { return j.r.row.Principal }
func (j inlineJob) Session() arcp.SessionID { return j.r.row.Session }

// inline runs a built-in tool at once.
func (e *Engine) inline(r *run, submit *Submit) {
	r.ended = true // its events would come too late
	timeout := r.tool.Limits.Timeout
	if timeout <= 0 {
		timeout = math.MaxInt64
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	o := &job.Outcome{State: arcp.StateCompleted}
	if o.Value, o.Err = r.tool.Run(ctx, inlineJob{toolJob{r}}, r.row.Arguments); o.Err != nil {
		o = failedOutcome(o.Err)
	}
	s := &supervisor{run: r, outcome: o}
	w := &store.Write{Submit: &r.row, State: o.State, Code: outcomeCode(o)}
	if !r.direct {
		w.Events = append(w.Events, r.acceptedEvent())
	}
	w.Events = append(w.Events, s.outcomeEvents(time.Now())...)
	w.State, w.Code = s.outcome.State, outcomeCode(s.outcome)
	e.enter(submit, r, w, func(made bool) {
		if made {
			r.tm.Finished(s.outcome.State).Inc()
		}
	}, func() {})
}
