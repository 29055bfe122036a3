package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/job/family"
	"github.com/arcpd/arcpd/runtime/internal/job/question"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// dispositionStart is the metric label of jobs without an interrupted attempt.
const dispositionStart = "start"

// recoveredJob is a job of an earlier process with the decision that was made about it.
type recoveredJob struct {
	*run
	disposition  string
	streams      []streamRow   // that were open; the write ends them
	outcome      *job.Outcome  // the job ends; nil: it continues
	newState     arcp.JobState // the job continues in this state, with another attempt
	takenOver    bool          // another process has taken over the job
	clockResumed bool          // the clock of its maximum runtime runs again; to be written
}

// Recover resumes the jobs of an earlier process, and returns their number. By the recovery of its
// tool, an interrupted attempt is repeated from the start or from its last checkpoint, or fails the
// job with ABORTED. A job whose tool was not called starts in its turn. A cancelled job ends. Timers continue.
// Recover returns when the decisions are durable; it does not wait for the jobs. It is called once,
// before Submit.
func (e *Engine) Recover(ctx context.Context) (int, error) {
	jobs, err := recoverJobs(ctx, e)
	if err != nil {
		return 0, err
	}
	if err := commitRecovered(ctx, e.cfg.Log, jobs); err != nil {
		return 0, err
	}
	if err := updateLedgers(ctx, e.cfg.Log, jobs); err != nil {
		return 0, err
	}
	var starts []func()
	for _, j := range jobs {
		e.cfg.Metrics.JobsRecovered.WithLabelValues(j.disposition).Inc()
		switch {
		case j.takenOver:
		case j.outcome != nil:
			j.logFinished(&e.cfg, j.outcome, time.Now())
		default:
			starts = append(starts, j.resume())
		}
	}
	for _, start := range starts { // all are in the table: a job may wait for another
		start()
	}
	return len(jobs), nil
}

// recoverJobs reads the jobs in the order of their submits, and decides about each of them.
func recoverJobs(ctx context.Context, e *Engine) ([]*recoveredJob, error) {
	var rows []store.Job
	err := e.cfg.Store.LiveJobs(ctx, func(row store.Job) bool {
		rows = append(rows, row)
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b store.Job) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	asked, err := readQuestions(ctx, &e.cfg, rows)
	if err != nil {
		return nil, err
	}
	jobs := make([]*recoveredJob, len(rows))
	for i := range rows {
		if jobs[i], err = recoverJob(ctx, e, &rows[i], asked[rows[i].ID]); err != nil {
			return nil, err
		}
	}
	decideAll(jobs, time.Now())
	return jobs, nil
}

// recoverJob makes the run of a row.
func recoverJob(ctx context.Context, e *Engine, row *store.Job, questions *question.Set) (*recoveredJob, error) {
	for _, q := range questions.All() {
		if err := findRequest(ctx, e.cfg.Store, q); err != nil {
			return nil, fmt.Errorf("%s: %w", row.ID, err)
		}
	}
	streams, err := jobRecords{store: e.cfg.Store, job: row.ID}.readStreams(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: streams: %w", row.ID, err)
	}
	t, refusal := e.cfg.Tools.Resolve(row.Agent)
	if refusal != nil {
		j := recoverOrphan(e, row, refusal)
		j.questions.Set, j.streams = *questions, streams
		return j, nil
	}
	r := newRun(e, t)
	r.row, r.created = *row, row.CreatedAt
	r.attempt, r.state = row.Attempt, row.State
	r.lifecycle = lifeAccepted
	r.common, r.span = commonOf(row), e.cfg.Tracer.StartJob(&r.row)
	r.lastJSeq, r.questions.Set = row.LastJSeq, *questions
	options := optionsOf(row)
	options.apply(r)
	r.catalog = e.cfg.Catalog(row.Session, row.Principal, r.trust)
	if err := r.readProgress(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", row.ID, err)
	}
	for _, q := range r.questions.All() {
		if q.Pending() && q.Row.Session != r.owner() { // the process ended between the handoff and the change of the question
			q.MoveTo(r.owner(), sessionsOf(r))
		}
	}
	if r.isSchedule() {
		refusal, err := r.readSchedule(ctx)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: schedule: %w", row.ID, err)
		case refusal != nil:
			return &recoveredJob{run: r, streams: streams, disposition: string(tool.RecoveryFail), outcome: failedOutcome(refusal)}, nil
		}
	}
	j := &recoveredJob{run: r, streams: streams, clockResumed: !r.progress.Blocked.IsZero()}
	r.progress.Unblock(time.Now()) // the wait for an answer does not count, nor the time when the runtime was down
	return j, nil
}

// recoverOrphan fails a job whose tool is not registered. The error is retryable, because the tool may
// be registered later.
func recoverOrphan(e *Engine, row *store.Job, refusal *arcp.Error) *recoveredJob {
	err := arcp.Errorf(refusal.Code, "the runtime was started without the tool %s of the job", row.Agent)
	err.Retryable = true
	r := &run{e: e, attempt: row.Attempt, definition: definition{row: *row, metrics: e.cfg.Metrics.Tool(metrics.NameOf(row.Agent)), common: commonOf(row),
		position: family.Position{Depth: optionsOf(row).Depth}}}
	return &recoveredJob{run: r, disposition: string(tool.RecoveryFail), outcome: failedOutcome(err)}
}

// decide passes the restart to the machine of the job and records the result. A job whose call waits for an
// approval starts again whatever its recovery is: its tool was not called.
func (j *recoveredJob) decide(now time.Time) {
	machine := job.Restore(j.spec(&j.e.cfg, j.progress.Started), j.state)
	attempted := j.state != arcp.StateAccepted && j.state != arcp.StateQueued && !j.questions.AwaitsApproval()
	j.disposition = dispositionStart
	if attempted {
		j.disposition = string(j.tool.Recovery)
	}
	switch {
	case j.progress.Cancel != nil:
		machine.Restart(now)
		machine.Cancel(now, *j.progress.Cancel, 0)
	case attempted && j.tool.Recovery == tool.RecoveryFail:
		machine.Fail(now, arcp.Errorf(arcp.CodeAborted, "the runtime stopped while the job was %s", j.state))
	default:
		machine.Restart(now)
		machine.Advance(now)
	}
	out := machine.TakeOutput()
	j.newState, j.outcome = out.State, out.Terminal
}

// commitRecovered commits the decisions.
func commitRecovered(ctx context.Context, log *eventlog.Log, jobs []*recoveredJob) error {
	results := make(chan error, len(jobs))
	n := 0
	for _, j := range jobs {
		w, err := j.write(time.Now())
		if err != nil {
			return fmt.Errorf("%s: %w", j.row.ID, err)
		}
		if w != nil {
			n++
			log.Append(w, func(r *store.Result) { results <- j.committed(r.Err) })
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

// write returns the write of the decision; nil: nothing changes.
func (j *recoveredJob) write(now time.Time) (*store.Write, error) {
	log := &store.AppendEvents{Job: j.row.ID, Attempt: j.attempt, State: j.newState}
	w := store.NewWrite(log)
	if err := j.endStreams(w, now); err != nil {
		return nil, err
	}
	switch {
	case j.outcome != nil:
		if err := j.withdrawQuestions(w, now); err != nil {
			return nil, err
		}
		records, err := j.credentials().ending()
		if err != nil {
			return nil, err
		}
		w.Put(records...)
		if j.metricEvents {
			log.Events = append(log.Events, j.runtimeMetrics(now, jobTimes{}, j.outcome)...)
		}
		log.Events = append(log.Events, terminalEvent(&j.row, &j.common, j.outcome, now))
		log.State, log.Code = j.outcome.State, outcomeCode(j.outcome)
	case j.newState != "":
		log.NewAttempt = true
		if j.clockResumed {
			rec, err := j.records().progress(&j.progress, j.authority.Grants.Encode())
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

// committed records the result of the write. A job that another process has taken over is left to
// that process.
func (j *recoveredJob) committed(err error) error {
	switch {
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrTerminal):
		j.takenOver = true
		j.e.cfg.Logger.Warn().Err(err).Str("job_id", string(j.row.ID)).Msg("job was taken over and is not recovered")
	case err != nil:
		return fmt.Errorf("%s: %w", j.row.ID, err)
	case j.outcome == nil:
		j.attempt++
		j.state = j.newState
		j.lastJSeq += uint64(len(j.streams))
		if j.clockResumed {
			j.progress.rev = nextRev(j.progress.rev)
		}
	}
	if j.outcome != nil {
		j.credentials().end()
	}
	return nil
}

// resume adds the job to the jobTable without a check of the limits. The returned
// function starts the job as soon as its tool has a slot, unless the job waits for its retry.
func (j *recoveredJob) resume() (start func()) {
	e, r := j.e, j.run
	if r.runsAsCall() {
		return func() { resumeCall(r) }
	}
	for _, g := range r.authority.Grants.All() {
		e.leases.add(g.ID, r.row.ID)
		if g.Revoked || !g.ExpiresAt.Add(lease.Grace).After(r.progress.Swept) { // its end is counted
			e.leases.end(g.ID)
		}
	}
	for _, q := range r.questions.All() {
		if q.Pending() {
			e.cfg.Questions.Asked(q.Row, q.Request)
		}
	}
	next, end := r.progress.Next, earliest(r.deadline(), r.leaseOrQuestionDue()) // read before a supervisor, which may change them, can start
	waits := r.state == arcp.StateQueued && next.After(time.Now())
	e.mu.Lock()
	e.jobs.add(r)
	if waits {
		e.jobs.markResting(r)
	} else {
		e.queues.enqueue(r, -1)
	}
	if r.slot == slotQueued {
		recoverQueueWait(j, time.Now())
	}
	started := r.slot == slotHeld
	e.mu.Unlock()
	switch {
	case r.isSchedule():
		return func() { r.post(occurrence{}) }
	case waits:
		return func() { r.setTimers(next, end) }
	case started:
		return r.launch
	default:
		return func() { r.setTimers(time.Time{}, end) }
	}
}

// readQuestions reads the stored questions of jobs, by job.
func readQuestions(ctx context.Context, cfg *Config, jobs []store.Job) (map[arcp.JobID]*question.Set, error) {
	asked := make(map[arcp.JobID]*question.Set)
	for i := range jobs {
		asked[jobs[i].ID] = new(question.Set)
	}
	if len(jobs) == 0 {
		return asked, nil
	}
	err := cfg.Store.Records(ctx, approval.RecordPrefix(""), "", func(rec store.Record) bool {
		q := &question.Question{Rev: rec.Rev, Size: len(rec.Value)}
		if err := arcp.Unmarshal(rec.Value, &q.Row); err != nil {
			cfg.Logger.Error().Err(err).Str("record", rec.Key).Msg("a question cannot be read: its job asks it anew")
		} else if set := asked[q.Row.Job]; set != nil {
			set.Load(q)
		}
		return true
	})
	return asked, err
}

// findRequest reads the id of the event of a pending question.
func findRequest(ctx context.Context, st store.Store, q *question.Question) error {
	if q.Row.JSeq == 0 || !q.Pending() {
		return nil
	}
	return st.JobEvents(ctx, q.Row.Job, q.Row.JSeq-1, func(ev *store.Event) bool {
		q.Request = ev.ID()
		return false
	})
}

// withdrawQuestions withdraws the questions of a job that ends.
func (j *recoveredJob) withdrawQuestions(w *store.Write, now time.Time) error {
	log := store.Find[*store.AppendEvents](w)
	for _, effect := range j.questions.WithdrawAll(now) {
		rec, err := j.records().question(effect.Question)
		if err != nil {
			return err
		}
		w.Put(rec)
		if len(effect.Notified) > 0 {
			ev := mustEvent(arcp.HumanInputCancelled, now, &j.common, arcp.PriorityNormal, effect.Notice)
			ev.Route = &store.Route{To: effect.Notified, ReplyTo: effect.Question.Request}
			log.Events = append(log.Events, ev)
		}
	}
	return nil
}

// updateLedgers updates the ledgers of jobs that continue. The entry of a child does not show yet that
// the child has ended or was never created.
func updateLedgers(ctx context.Context, log *eventlog.Log, jobs []*recoveredJob) error {
	for _, j := range jobs {
		if j.takenOver || j.outcome != nil {
			continue
		}
		w, err := j.updateLedger(ctx)
		if w != nil && err == nil {
			_, err = log.Commit(ctx, w)
		}
		if err != nil {
			return fmt.Errorf("%s: ledger: %w", j.row.ID, err)
		}
		if w != nil {
			j.progress.rev = nextRev(j.progress.rev)
			j.ledger.Committed()
		}
	}
	return nil
}

func (j *recoveredJob) updateLedger(ctx context.Context) (*store.Write, error) {
	w := store.NewWrite(&store.AppendEvents{Job: j.row.ID, Attempt: j.attempt})
	for _, child := range j.ledger.Children() {
		if !child.Open {
			continue
		}
		status, rest, err := childStatus(ctx, j.e, child, nil)
		if err != nil {
			return nil, err
		}
		j.ledger.Return(&j.authority.State, child, status, rest)
	}
	if err := j.records().addLedger(w, &j.ledger); err != nil {
		return nil, err
	}
	if len(w.Ops) == 1 {
		return nil, nil
	}
	if budget, changed := j.authority.SaveBudget(); changed {
		j.progress.Spent = budget
	}
	rec, err := j.records().progress(&j.progress, j.authority.Grants.Encode())
	w.Put(rec)
	return w, err
}

// decideAll decides about all jobs, parents first, because children of an ended job are cancelled.
func decideAll(jobs []*recoveredJob, now time.Time) {
	byID := make(map[arcp.JobID]*recoveredJob, len(jobs))
	for _, j := range jobs {
		byID[j.row.ID] = j
	}
	order := slices.Clone(jobs)
	slices.SortStableFunc(order, func(a, b *recoveredJob) int { return a.position.Depth - b.position.Depth })
	for _, j := range order {
		if j.outcome != nil {
			continue
		}
		if p := byID[j.row.Parent]; j.position.EndsWithParent() && (p == nil || p.outcome != nil) && j.progress.Cancel == nil {
			j.progress.Cancel = new(family.ParentEnded)
		}
		j.decide(now)
	}
}
