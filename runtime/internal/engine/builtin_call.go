package engine

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// Call is a call of a built-in tool that changes something. Its claim, its changes and its terminal
// event are one write. The tool stages its changes in the transaction of its context; they are
// committed when the tool returns. The goroutine that runs the tool owns the call.
type Call struct {
	e          *Engine
	supervisor *supervisor // see newCallSupervisor
	submit     *Submit
	arguments  arcp.Raw // of the tool; the row may keep others, see KeepArguments
	startedAt  time.Time

	txn     txn.Txn
	claimed bool // the claim is durable
	ended   bool // the call has ended, or there is no job; nothing more is written
}

type callKey struct{}

// CallOf returns the call in which a built-in tool runs; nil: the tool runs as an ordinary job and
// commits its changes itself.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// KeepArguments replaces the arguments in the row of the job, which is stored with the outcome, so that
// large ones are not stored. The tool of a call that was claimed runs with them after a restart. Does
// nothing if c is nil.
func (c *Call) KeepArguments(raw arcp.Raw) {
	if c != nil {
		c.supervisor.row.Arguments = raw
	}
}

// errAnswered ends a tool whose call is answered already: the submit was a repetition, or the session
// has ended.
var errAnswered = errors.New("the call is answered already")

// Claim makes the claim of the call durable at once. A tool calls it before it waits for another
// session, or if its change is in another job's write. The tool must return an error of Claim.
func (c *Call) Claim() error {
	if c.claimed || c.ended {
		return nil
	}
	w := c.claimWrite()
	made := make(chan bool, 1)
	c.e.cfg.Log.Append(w, func(res *store.Result) { made <- c.submit.claimCommitted(c.supervisor.run, res) })
	c.claimed = <-made
	if c.ended = !c.claimed; c.ended {
		return errAnswered
	}
	return nil
}

// Join prepares the call to end in the write of another job. It claims a call that may be a
// repetition, so that the other job's write is not refused. The tool must return an error of Join.
func (c *Call) Join() error {
	if c.supervisor.mayRepeat(c.submit) {
		return c.Claim()
	}
	return nil
}

// claimWrite returns the write of the claim.
func (c *Call) claimWrite() *store.Write {
	log := new(store.AppendEvents)
	if !c.supervisor.direct {
		log.Events = append(log.Events, c.supervisor.acceptedEvent(&c.supervisor.authority.State))
	}
	return store.NewWrite(&store.SubmitJob{Row: &c.supervisor.row, Recheck: c.submit.Recheck}, log)
}

// endWrite returns the write that ends the call. It includes the claim if that is not durable.
func (c *Call) endWrite(o *job.Outcome) *store.Write {
	w := store.NewWrite(&store.AppendEvents{Job: c.supervisor.row.ID, Attempt: c.supervisor.attempt})
	if !c.claimed {
		w = c.claimWrite()
	}
	events, o := c.supervisor.appendOutcome(nil, time.Now(), o, c.e.cfg.scrubber())
	c.supervisor.outcome = o
	log := store.Find[*store.AppendEvents](w)
	log.Events = append(log.Events, events...)
	log.State, log.Code = o.State, outcomeCode(o)
	return w
}

// drop records that another job's write was made without the conclusion: the session of the call has
// ended.
func (c *Call) drop() { c.ended, c.supervisor.outcome = true, nil }

// concluded records that the conclusion is durable, and answers the submit unless its claim has done
// so. It is called on the committer's goroutine, before the events of the write are delivered.
func (c *Call) concluded() {
	c.ended = true
	if !c.claimed {
		countAccepted(c.supervisor.run)
		c.submit.answerAccepted(c.supervisor.run)
	}
}

// startCall runs a call in its turn. It blocks the session's later submits.
func (s *Submit) startCall(r *run) (blocks bool) {
	e := r.e
	return e.order.perform(s, true, stepFunc(func() bool {
		e.pool.Run(func() {
			defer e.calls.Done()
			newCall(r, s).run()
			e.order.unblock(s.Session)
			s.notifyDecided()
		})
		return true
	}))
}

// resumeCall runs a call that was claimed before a restart. Its changes were not committed: they are
// committed together with its end.
func resumeCall(r *run) {
	e, submit := r.e, Submit{Session: r.row.Session, Answers: discardAnswers{}}
	e.calls.Add(1)
	e.order.enqueue(submit.Session, true, stepFunc(func() bool {
		e.pool.Run(func() {
			defer e.calls.Done()
			c := newCall(r, &submit)
			c.claimed = true
			c.run()
			e.order.unblock(submit.Session)
		})
		return true
	}))
}

func newCall(r *run, s *Submit) *Call {
	return &Call{e: r.e, submit: s, arguments: r.row.Arguments, supervisor: newCallSupervisor(r)}
}

// newCallSupervisor returns the supervisor of a Call or of runInline, for the goroutine of the tool. Its
// event queue is closed: the tool emits no events.
func newCallSupervisor(r *run) *supervisor {
	s := newSupervisor(r)
	s.events.closed = true
	return s
}

// run runs the tool until its changes are committed or it is refused.
func (c *Call) run() {
	timeout := c.supervisor.tool.Limits.Timeout
	if timeout <= 0 {
		timeout = math.MaxInt64
	}
	ctx, cancel := context.WithTimeout(txn.With(context.WithValue(c.e.calls.ctx, callKey{}, c), &c.txn), timeout)
	defer cancel()
	c.startedAt = time.Now()
	for c.attempt(ctx) {
	}
	if c.ended && c.supervisor.outcome != nil {
		c.supervisor.logFinished(&c.e.cfg, c.supervisor.outcome, time.Now())
	}
}

// attempt runs the tool once and commits its changes. again is true if a record was changed
// concurrently, so that the tool has to run again.
func (c *Call) attempt(ctx context.Context) (again bool) {
	began := time.Now()
	value, err := c.supervisor.tool.Run(ctx, c.supervisor.job(), c.arguments)
	c.supervisor.metrics.CountCall(callStatus(err), time.Since(began))
	switch {
	case c.ended:
		c.txn.Finish(errAnswered)
		return false
	case err != nil && c.e.calls.ctx.Err() != nil: // the runtime stops: nothing is committed
		c.txn.Finish(err)
		if !c.claimed {
			c.submit.Answers.AnswerAfterEvents(refusalFrame(c.submit, arcp.JobFailed, errShuttingDown()))
		}
		return false
	case err != nil:
		c.txn.Finish(err)
		return c.commit(ctx, failedOutcome(err))
	}
	return c.commit(ctx, &job.Outcome{State: arcp.StateCompleted, Value: value})
}

// commit commits the call and its changes. again is as for attempt.
func (c *Call) commit(ctx context.Context, o *job.Outcome) (again bool) {
	w, own := c.txn.Combine(c.endWrite(o))
	errs := make(chan error, 1)
	c.txn.Append(c.e.cfg.Log, w, func(res *store.Result) {
		result := res
		if own >= 0 && len(res.With) > 0 { // a failed store refuses the write as a whole, without results of its parts
			result = &res.With[own]
		}
		err := txn.ErrorOf(res)
		switch {
		case result.Existing != "" || result.Err != nil && !errors.Is(result.Err, store.ErrTogether): // there is no such job
			c.ended, c.supervisor.outcome = true, nil
			c.txn.Finish(cmp.Or(err, errAnswered))
			if !c.claimed {
				c.submit.claimCommitted(c.supervisor.run, result) // answers the submit
			}
		case err == nil:
			c.concluded()
			c.txn.Finish(nil)
		}
		errs <- err
	})
	switch err := <-errs; {
	case err == nil || c.ended:
		return false
	default:
		c.txn.Finish(err)
		if errors.Is(err, store.ErrConflict) && ctx.Err() == nil {
			return true
		}
		return c.commit(ctx, c.refusedOutcome(err))
	}
}

// refusedOutcome is the outcome of a call whose changes the store refuses.
func (c *Call) refusedOutcome(err error) *job.Outcome {
	c.e.cfg.Logger.Error().Err(err).Str("job_id", string(c.supervisor.row.ID)).Str("tool", c.supervisor.row.Agent).
		Msg("change of a built-in tool refused by the store")
	return failedOutcome(arcp.Errorf(arcp.CodeUnavailable, "the change cannot be stored").RetryAfter(retryAfter))
}

// joinedCall is a call that ends in the write of a job that it changes.
type joinedCall struct {
	call  *Call
	value func() arcp.Raw // returns the value of its terminal event; called when the write is composed
}
