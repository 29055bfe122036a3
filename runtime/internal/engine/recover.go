package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// dispositionStart is counted for jobs of which no attempt was cut off.
const dispositionStart = "start"

// found is a job that an earlier process left behind, and what becomes of it.
type found struct {
	*run
	disposition string
	outcome     *job.Outcome  // it ends; nil: it goes on
	entered     arcp.JobState // it goes on in this state, with another attempt
	lost        bool          // another process has taken it over
	resumed     bool          // its time goes on again, which is to be written
}

// Recover goes on with the jobs that an earlier process left behind, and returns
// how many there were. An attempt that was cut off is made again from the start
// or from its last checkpoint, or ends the job with ABORTED, as its tool's
// recovery says; a job without one starts in its turn. One that was cancelled
// ends, and timers count on from what they were. It returns when all this is
// durable, and does not wait for the jobs. It is called once, before Submit.
func (e *Engine) Recover(ctx context.Context) (int, error) {
	left, err := e.find(ctx)
	if err != nil {
		return 0, err
	}
	if err := e.settle(ctx, left); err != nil {
		return 0, err
	}
	if err := e.balance(ctx, left); err != nil {
		return 0, err
	}
	var goesOn []func()
	for _, f := range left {
		e.cfg.Metrics.JobsRecovered.WithLabelValues(f.disposition).Inc()
		switch {
		case f.lost:
		case f.outcome != nil:
			f.finished(f.outcome, time.Now())
		default:
			goesOn = append(goesOn, e.board(f.run))
		}
	}
	for _, start := range goesOn { // all are on the books: one may wait for another
		start()
	}
	return len(left), nil
}

// find reads the jobs, in the order in which they came, and decides about all.
func (e *Engine) find(ctx context.Context) ([]*found, error) {
	var rows []store.Job
	err := e.cfg.Store.Live(ctx, func(j store.Job) bool {
		rows = append(rows, j)
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b store.Job) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	asked, err := e.readQuestions(ctx, rows)
	if err != nil {
		return nil, err
	}
	left := make([]*found, len(rows))
	for i := range rows {
		if left[i], err = e.revive(ctx, &rows[i], asked[rows[i].ID]); err != nil {
			return nil, err
		}
	}
	decide(left, time.Now())
	return left, nil
}

// revive makes a run of a row.
func (e *Engine) revive(ctx context.Context, row *store.Job, asked []*question) (*found, error) {
	for _, q := range asked {
		if err := e.findRequest(ctx, q); err != nil {
			return nil, fmt.Errorf("%s: %w", row.ID, err)
		}
	}
	t, refusal := e.cfg.Tools.Resolve(row.Agent)
	if refusal != nil {
		f := e.orphan(row, refusal)
		f.questions = asked
		return f, nil
	}
	r := e.newRun(t)
	r.row, r.created = *row, row.CreatedAt
	r.attempt, r.state = row.Attempt, row.State
	r.placed, r.accepted = true, true
	r.common = commonOf(row)
	r.jseq, r.questions = row.LastJSeq, asked
	options := optionsOf(row)
	options.apply(r)
	r.catalogue = e.cfg.Catalogue(row.Session, row.Principal, r.trust)
	if err := r.readProgress(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", row.ID, err)
	}
	f := &found{run: r, resumed: !r.progress.Blocked.IsZero()}
	r.progress.resume(time.Now()) // what it waited for a person, also while the runtime was down, does not count
	return f, nil
}

// orphan is a job whose tool is not there any more. It may come back.
func (e *Engine) orphan(row *store.Job, refusal *arcp.Error) *found {
	err := arcp.Errorf(refusal.Code, "the runtime was started without %s, which the job was submitted to", row.Agent)
	err.Retryable = true
	name, _, _ := strings.Cut(row.Agent, "@")
	r := &run{e: e, row: *row, tm: e.cfg.Metrics.Tool(name), attempt: row.Attempt, common: commonOf(row)}
	r.depth = optionsOf(row).Depth
	return &found{run: r, disposition: string(tool.RecoveryFail), outcome: failedOutcome(err)}
}

// decide asks the machine what a restart has done to the job.
func (f *found) decide(now time.Time) {
	m := job.Restore(f.spec(), f.state)
	attempted := f.state != arcp.StateAccepted && f.state != arcp.StateQueued
	f.disposition = dispositionStart
	if attempted {
		f.disposition = string(f.tool.Recovery)
	}
	switch {
	case f.progress.Cancel != nil:
		m.Restart(now)
		m.Cancel(now, *f.progress.Cancel, 0)
	case attempted && f.tool.Recovery == tool.RecoveryFail:
		m.Fail(now, arcp.Errorf(arcp.CodeAborted, "the runtime stopped while the job was %s", f.state))
	default:
		m.Restart(now)
		m.Advance(now)
	}
	out := m.Take()
	f.entered, f.outcome = out.State, out.Terminal
}

// settle makes durable what was decided.
func (e *Engine) settle(ctx context.Context, left []*found) error {
	results := make(chan error, len(left))
	n := 0
	for _, f := range left {
		w, err := f.write(time.Now())
		if err != nil {
			return fmt.Errorf("%s: %w", f.row.ID, err)
		}
		if w != nil {
			n++
			e.cfg.Log.Append(w, func(r *store.Result) { results <- f.settled(r.Err) })
		}
	}
	for range n {
		select {
		case err := <-results:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// write is what recovery changes of a job; nil: nothing.
func (f *found) write(now time.Time) (*store.Write, error) {
	log := &store.AppendEvents{Job: f.row.ID, Attempt: f.attempt, State: f.entered}
	w := store.NewWrite(log)
	switch {
	case f.outcome != nil:
		if err := f.drop(w, now); err != nil {
			return nil, err
		}
		records, err := f.ending()
		if err != nil {
			return nil, err
		}
		w.Put(records...)
		log.Events = append(log.Events, terminalEvent(&f.row, &f.common, f.outcome, now))
		log.State, log.Code = f.outcome.State, outcomeCode(f.outcome)
	case f.entered != "":
		log.NewAttempt = true
		if f.resumed {
			rec, err := f.progressRecord()
			if err != nil {
				return nil, err
			}
			w.Put(rec)
		}
	default:
		return nil, nil
	}
	return w, nil
}

// settled notes what came of the write. A job that another process has taken
// over is no concern of this one.
func (f *found) settled(err error) error {
	switch {
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrTerminal):
		f.lost = true
		f.e.cfg.Logger.Warn().Err(err).Str("job_id", string(f.row.ID)).Msg("job was taken over and is not recovered")
	case err != nil:
		return fmt.Errorf("%s: %w", f.row.ID, err)
	case f.outcome == nil:
		f.attempt++
		f.state = f.entered
		if f.resumed {
			f.progressRev = raised(f.progressRev)
		}
	}
	if f.outcome != nil {
		f.endCredentials()
	}
	return nil
}

// board puts a recovered job on the books, whatever the limits are now. When what
// it returns is called it starts, as soon as its tool has a slot, unless it waits
// for its retry.
func (e *Engine) board(r *run) (start func()) {
	if r.ordered() {
		return func() { e.resumeCall(r) }
	}
	for _, g := range r.auth.Grants.All() {
		e.noteLease(g.ID, r.row.ID)
		if g.Revoked || !g.ExpiresAt.Add(lease.Grace).After(r.progress.Swept) { // it was noticed
			e.endLease(g.ID)
		}
	}
	for _, q := range r.questions {
		if q.row.Status == approval.Pending {
			e.questions().Asked(q.row, q.request)
		}
	}
	e.mu.Lock()
	e.enroll(r)
	next, end := r.progress.Next, earliest(r.deadline(), r.otherDue()) // a supervisor's, once it has a place in the queue
	waits := r.state == arcp.StateQueued && next.After(time.Now())
	if waits {
		e.restLocked(r)
	} else {
		e.enqueue(r, -1)
	}
	started := r.slot
	e.mu.Unlock()
	switch {
	case waits:
		return func() { r.arm(next, end) }
	case started:
		return r.launch
	default:
		return func() { r.arm(time.Time{}, end) }
	}
}

// readQuestions reads what jobs have asked, by job, as far as it is kept.
func (e *Engine) readQuestions(ctx context.Context, jobs []store.Job) (map[arcp.JobID][]*question, error) {
	asked := make(map[arcp.JobID][]*question)
	for i := range jobs {
		asked[jobs[i].ID] = nil
	}
	if len(jobs) == 0 {
		return asked, nil
	}
	err := e.cfg.Store.Records(ctx, approval.RecordPrefix(""), "", func(rec store.Record) bool {
		q := &question{rev: rec.Rev, size: len(rec.Value), done: make(chan struct{})}
		if err := arcp.Unmarshal(rec.Value, &q.row); err != nil {
			e.cfg.Logger.Error().Err(err).Str("record", rec.Key).Msg("a question cannot be read: its job asks it anew")
			return true
		}
		if q.row.Status != approval.Pending {
			close(q.done)
		}
		if list, lives := asked[q.row.Job]; lives {
			if list = append(list, q); len(list) > 2*keptSettled {
				list = forgetSettled(list, keptSettled)
			}
			asked[q.row.Job] = list
		}
		return true
	})
	return asked, err
}

// findRequest reads the id of the event with which a question was asked.
func (e *Engine) findRequest(ctx context.Context, q *question) error {
	if q.row.JSeq == 0 || q.row.Status != approval.Pending {
		return nil
	}
	return e.cfg.Store.JobEvents(ctx, q.row.Job, q.row.JSeq-1, func(ev *store.Event) bool {
		q.request = ev.ID()
		return false
	})
}

// drop withdraws what a job that ends had asked.
func (f *found) drop(w *store.Write, now time.Time) error {
	log := store.Find[*store.AppendEvents](w)
	for _, q := range f.questions {
		if !q.row.Cancel(now.UTC(), "the job has ended") {
			continue
		}
		rec, err := f.questionRecord(q)
		if err != nil {
			return err
		}
		w.Put(rec)
		if q.request != "" && len(q.row.Sent) > 0 {
			ev := mustEvent(arcp.HumanInputCancelled, now, &f.common, arcp.PriorityNormal, cancelledOf(&q.row))
			ev.Route = &store.Route{To: q.row.Sent, ReplyTo: q.request}
			log.Events = append(log.Events, ev)
		}
	}
	return nil
}
