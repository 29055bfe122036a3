package engine

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/tracing"
	"github.com/arcpd/arcpd/runtime/store"
)

// jobWriter composes and commits the writes of a job for a supervisor, which owns it. There is one write
// at a time: commit returns when it is durable or refused. An event, the records that change with it and
// the answer to its command belong to the same write.
type jobWriter struct {
	pendingWrite
	run     *run
	attempt uint32
	end     *attemptEnd
	queue   *eventQueue // of the tool; guarded by run.mu
	notes   *noteLog    // of the tool; guarded by run.mu
	claim   *Submit     // whose claim has to be part of the next write, or precede it; nil: the log has the claim

	pending sync.WaitGroup // of the write whose result is not known
	result  error          // of the last write
}

// jobWrite is a write of a job with the parts that most of them have, as one piece of memory.
type jobWrite struct {
	write  store.Write
	log    store.AppendEvents
	events [4]*store.Event // the first ones: often all
}

// next returns the next write; nil: no write is due. later says that the machine must handle new
// input first.
func (jw *jobWriter) next(now time.Time) (w *store.Write, later bool, err error) {
	emitted, ends, ok := jw.drainEvents(now)
	if !ok {
		return nil, true, nil
	}
	parts := new(jobWrite)
	log := &parts.log
	*log = store.AppendEvents{Job: jw.run.row.ID, Attempt: jw.attempt, State: jw.newState}
	w = parts.write.Add(log)
	log.Events = parts.events[:0]
	if jw.started != nil {
		log.Events = append(log.Events, jw.started)
	}
	log.Events = append(append(log.Events, emitted...), ends...)
	jw.queue.reuse(emitted)
	jw.started, jw.newState = nil, ""
	if err := jw.addEnd(w, log, now); err != nil {
		return nil, false, err
	}
	if err := jw.addRecords(w); err != nil {
		return nil, false, err
	}
	if len(w.Ops) == 1 && len(log.Events) == 0 && log.State == "" {
		return nil, false, nil
	}
	jw.concludeCalls(w)
	return w, false, nil
}

// addEnd adds the end of the job or of the attempt, if it has come.
func (jw *jobWriter) addEnd(w *store.Write, log *store.AppendEvents, now time.Time) error {
	r, end := jw.run, jw.end
	switch {
	case end.outcome != nil:
		before := len(log.Events)
		ofTool := end.outcome.Err != nil && end.outcome.Err == r.progress.toolError.err
		log.Events, end.outcome = r.appendOutcome(log.Events, now, end.outcome, r.e.cfg.scrubber())
		if ofTool { // the scrubber has replaced the error, which the log still has to recognise
			r.progress.toolError.err = end.outcome.Err
		}
		if r.metricEvents {
			log.Events = slices.Insert(log.Events, before, r.runtimeMetrics(now, r.times, end.outcome)...)
		}
		log.State, log.Code = end.outcome.State, outcomeCode(end.outcome)
		records, err := r.credentials().ending()
		if err != nil {
			return err
		}
		w.Put(records...)
	case end.exit == exitRetry:
		log.Events = append(log.Events, r.retryEvent(jw.attempt+1, end.retryCause))
		log.NewAttempt = true
	case end.exit == exitRewind:
		log.NewAttempt = true
	case end.exit == exitPause && !r.direct:
		w := jobWait{reason: arcp.WaitDrain, since: now}
		log.Events = append(log.Events, r.event(arcp.EventEmit, now, r.row.Priority, waitingPayload(w.view(r.row.Agent))))
	}
	return nil
}

// drainEvents removes the events from the queue and returns them. After the attempt's end it closes the
// queue, and ends has the last events of the open streams. ok is false if a checkpoint has just arrived
// with which the attempt pauses: the machine must handle the pause before the checkpoint is written.
func (jw *jobWriter) drainEvents(now time.Time) (events, ends []*store.Event, ok bool) {
	r := jw.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if jw.queue.pausing() && jw.end.exit == exitNone {
		return nil, nil, false
	}
	events, jw.checkpoint = jw.queue.drain()
	if budget, changed := r.authority.SaveBudget(); changed {
		r.progress.Spent, r.progress.unsaved = budget, true
	}
	jw.notes.beginWrite()
	jw.queue.closed = jw.end.exit != exitNone
	ends = jw.drainStreams(now)
	if jw.end.outcome != nil {
		r.lifecycle.apply(onOutcome)
	}
	return events, ends, true
}

// addRecords adds the records that belong to the events: questions, rotations, open streams, artifacts,
// the checkpoint, the ledger and notes. It adds the progress unless the job ends. The progress of a child
// is also added at its end, because its parent reads the rest of its budget.
func (jw *jobWriter) addRecords(w *store.Write) error {
	r := jw.run
	records := r.records()
	if err := errors.Join(jw.addQuestions(w, &r.questions, records, r.lastJSeq), jw.addRotations(w, r.lastJSeq),
		jw.addStreams(w, records, r.lastJSeq)); err != nil {
		return err
	}
	w.Put(jw.artifacts...)
	jw.artifacts = nil
	if jw.checkpoint != nil {
		jw.checkpoint.Questions = r.questions.Asked()
		rec, err := jw.checkpointRecord()
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	if err := errors.Join(records.addLedger(w, &r.ledger), jw.notes.addTo(w, r.row.ID)); err != nil {
		return err
	}
	if r.progress.unsaved && (jw.end.outcome == nil || r.row.Parent != "") {
		rec, err := records.progress(&r.progress, r.authority.Grants.Encode())
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	return nil
}

// checkpointRecord is the change that stores the checkpoint.
func (jw *jobWriter) checkpointRecord() (store.Record, error) {
	r := jw.run
	if r.checkpoints == nil {
		if _, err := r.readCheckpoints(); err != nil {
			return store.Record{}, err
		}
	}
	return r.records().checkpoint(r.checkpoints, &jw.checkpoint.Checkpoint)
}

// commit waits until a write is durable. It reports false if the store refuses the write, or if err is
// the reason for which there is no write.
func (jw *jobWriter) commit(w *store.Write, err error) bool {
	if err == nil {
		if err = jw.append(w); errors.Is(err, store.ErrTogether) {
			jw.dropCalls(w)
			err = jw.append(w)
		}
	}
	if err != nil {
		jw.answerCommands(err)
		jw.writeRefused(err)
		return false
	}
	jw.committed(w)
	return true
}

// append appends a write and waits for its result. Commands are answered before the
// events of the write are delivered.
func (jw *jobWriter) append(w *store.Write) error {
	claim := jw.addClaim(w)
	span := jw.run.span.Start(tracing.Commit)
	defer func() { span.End(codeOf(jw.result)) }()
	jw.pending.Add(1)
	jw.run.e.cfg.Log.Append(w, func(res *store.Result) {
		r := jw.run
		if claim != nil && !claim.committed(r, res) {
			jw.decide(errNoJob)
			return
		}
		if errors.Is(res.Err, store.ErrTogether) {
			jw.decide(res.Err)
			return
		}
		if res.Err == nil {
			jw.questionsLogged(&r.questions, r.e.cfg.Questions)
			jw.callsCommitted()
		}
		if store.Find[*store.AppendEvents](w).State.Terminal() && (res.Err == nil || jobEnded(res.Err)) {
			r.e.jobs.markConcluded(r)
			r.credentials().end()
		}
		jw.answerCommands(res.Err)
		jw.decide(res.Err)
	})
	if claim != nil {
		claim.placed(jw.run)
	}
	jw.pending.Wait()
	return jw.result
}

// decide passes the result of a write to the supervisor. It runs on the committer's goroutine.
func (jw *jobWriter) decide(err error) {
	jw.result = err
	jw.pending.Done()
}

// committed records that a write is durable.
func (jw *jobWriter) committed(w *store.Write) {
	r := jw.run
	if jw.end.outcome == nil {
		r.progress.committed()
	}
	if jw.checkpoint != nil {
		r.checkpoints.committed(jw.checkpoint)
		jw.checkpoint = nil
	}
	log := store.Find[*store.AppendEvents](w)
	if n := len(log.Events); n > 0 {
		r.lastJSeq = log.Events[n-1].JSeq
	}
	r.questions.committed(r.maxClosedQuestions(r.progress.Failed))
	r.ledger.Committed()
	jw.notes.writing = nil
	if log.NewAttempt {
		r.attempt++
	}
}

// writeRefused ends the supervisor because the store refuses the job's writes.
func (jw *jobWriter) writeRefused(err error) {
	r := jw.run
	r.mu.Lock()
	refused := r.lifecycle == lifeRefused
	r.lifecycle.apply(onOutcome)
	jw.queue.close()
	r.mu.Unlock()
	switch {
	case refused || errors.Is(err, store.ErrBroken): // logged by the submitter or the store
	case errors.Is(err, store.ErrFenced):
		r.e.cfg.Logger.Warn().Str("job_id", string(r.row.ID)).Uint32("attempt", jw.attempt).
			Msg("job lost: another attempt has taken over")
	default:
		r.e.cfg.Logger.Error().Err(err).Str("job_id", string(r.row.ID)).Msg("event of a job refused by the store")
	}
	jw.end.outcome = nil
}

// answerCommands answers the commands of the write; err is the write's error.
func (jw *jobWriter) answerCommands(err error) {
	for _, c := range jw.commands {
		c.committed(jw, err)
	}
	jw.commands = nil
}

// pendingWrite has the parts of the next write, or of the write in progress, other than the events of
// the tool. The supervisor owns it.
type pendingWrite struct {
	started    *store.Event  // job.started, which precedes the events of the tool; nil: it is not due
	newState   arcp.JobState // the job's new state; empty: unchanged
	checkpoint *pendingCheckpoint
	questions  []questionEvent      // events of questions that are not in the log
	deliveries []store.DeliverEvent // of logged questions to more sessions
	rotations  []*rotation
	streams    *openStreams   // after the write; nil: they do not change
	artifacts  []store.Record // rows of artifacts whose artifact.ref is in the queue of events
	calls      []joinedCall   // calls of built-in tools that end in the write
	commands   []command      // answered when the write is durable
	afterEnd   []command      // answered when the job has ended
}

// addCommands adds commands that are answered when the next write is durable.
func (pw *pendingWrite) addCommands(c ...command) { pw.commands = append(pw.commands, c...) }

// concludeCalls adds the conclusions of the calls to a write.
func (pw *pendingWrite) concludeCalls(write *store.Write) {
	for _, j := range pw.calls {
		write.With = append(write.With, j.call.endWrite(&job.Outcome{State: arcp.StateCompleted, Value: j.value()}))
	}
}

// dropCalls removes the calls from a write that the store refuses with them: a session of a call has
// ended.
func (pw *pendingWrite) dropCalls(write *store.Write) {
	for _, j := range pw.calls {
		j.call.drop()
	}
	pw.calls, write.With = nil, nil
}

// callsCommitted records that the calls have ended. It runs on the committer's goroutine.
func (pw *pendingWrite) callsCommitted() {
	for _, j := range pw.calls {
		j.call.concluded()
	}
	pw.calls = nil
}
