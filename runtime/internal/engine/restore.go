package engine

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// restoreJob is a request to continue from a checkpoint.
type restoreJob struct {
	Submit     // of a new job, if the job with the checkpoint has ended; its payload is composed from that job
	Job        arcp.JobID
	Checkpoint string
}

// chosenCheckpoint is the checkpoint that a client has chosen for a job, with the id of the request.
type chosenCheckpoint struct {
	job.RestorePoint
	Session arcp.SessionID `json:"session_id"`
	Request arcp.MessageID `json:"request_id"`
}

// sameRequest reports whether q repeats the request that has chosen the checkpoint.
func (c *chosenCheckpoint) sameRequest(q *restoreJob) bool {
	return c != nil && c.Request == q.Envelope.ID && c.Session == q.Session
}

// firstCheckpoint is the checkpoint with which a new job begins. The new job has a copy, which does not
// depend on the original job.
type firstCheckpoint struct {
	restoredFrom arcp.RestoredFrom
	record       []byte
}

const firstCheckpointNumber = 1

// RestoreCheckpoint continues the job named by the envelope from a checkpoint. If the job has
// not ended, its attempt is stopped and the next attempt starts from the checkpoint; the
// acknowledgement is sent when this is durable. If the job has ended, a new job with the same tool and
// arguments is submitted.
func (e *Engine) RestoreCheckpoint(s *Submit, p *arcp.CheckpointRestorePayload) {
	q := restoreJob{*s, s.Envelope.JobID, p.CheckpointID}
	r := e.run(q.Job)
	switch {
	case r == nil:
		q.submitNew(e)
	case r.row.Principal != q.Principal:
		q.refuse(e, errNoSuchJob())
	case r.strictCancel && r.owner() != q.Session:
		e.cfg.audit().denied("checkpoint.restore", q.Principal, q.Session, string(q.Job), strictCancel)
		q.refuse(e, arcp.Errorf(arcp.CodePermissionDenied, "only the session that owns the job may restore it"))
	case r.tool.Recovery != tool.RecoveryCheckpoint:
		q.refuse(e, errNoCheckpoints(r.tool))
	case !r.post(&q):
		q.rejected(e, r.stopped())
	}
}

func (rj *restoreJob) refuse(e *Engine, err *arcp.Error) { e.Refuse(&rj.Submit, arcp.Nack, err) }

func (rj *restoreJob) ack() {
	rj.Answers.AnswerBeforeEvents(answerTo(rj.Envelope.ID, arcp.Ack, arcp.AckPayload{}))
	rj.notifyDecided()
}

func (rj *restoreJob) errNoCheckpoint() *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "the job has no checkpoint %.100q; only the latest %d are stored", rj.Checkpoint, job.MaxCheckpoints)
}

// apply chooses the checkpoint, and ends the attempt if there is one.
func (rj *restoreJob) apply(s *supervisor, now time.Time) {
	switch {
	case s.machine.State().Terminal():
		s.write.afterEnd = append(s.write.afterEnd, rj)
		return
	case s.progress.Cancel != nil:
		rj.refuse(s.e, arcp.Errorf(arcp.CodeFailedPrecondition, "the job is being cancelled"))
		return
	case s.progress.Chosen.sameRequest(rj):
		s.write.addCommands(rj)
		return
	}
	checkpoints, _, err := readCheckpoints(context.Background(), s.e.cfg.Store, s.row.ID)
	if err != nil {
		rj.unreadable(s.e, err)
		return
	}
	from, ok := rj.choose(s, checkpoints)
	if !ok {
		rj.refuse(s.e, rj.errNoCheckpoint())
		return
	}
	s.progress.Chosen, s.progress.unsaved = &chosenCheckpoint{from, rj.Session, rj.Envelope.ID}, true
	s.write.addCommands(rj)
	if s.machine.Rewind(now) {
		s.exit.set(exitRewind)
		s.limit = job.TimeLimit{} // the attempt has ended
	}
}

// choose returns the restore point, and closes the event queue of a running attempt.
func (rj *restoreJob) choose(s *supervisor, k *job.Checkpoints) (job.RestorePoint, bool) {
	running := s.running()
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := k.Choose(rj.Checkpoint, s.events.checkpoint != nil)
	if ok && running {
		s.events.close()
	}
	return p, ok
}

func (rj *restoreJob) committed(jw *jobWriter, err error) {
	switch {
	case err == nil:
		rj.ack()
	case jobEnded(err):
		jw.afterEnd = append(jw.afterEnd, rj)
	default:
		rj.refuse(jw.run.e, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be written"))
	}
}

func (rj *restoreJob) rejected(e *Engine, stopped bool) {
	if stopped {
		rj.refuse(e, errShuttingDown())
		return
	}
	rj.submitNew(e)
}

func (rj *restoreJob) unreadable(e *Engine, err error) {
	e.cfg.Logger.Error().Err(err).Str("job_id", string(rj.Job)).Msg("checkpoints of a job cannot be read")
	rj.refuse(e, arcp.Errorf(arcp.CodeUnavailable, "the job's checkpoints cannot be read"))
}

// submitNew submits a job that continues from a checkpoint of an ended job. The store
// is read on another goroutine; the session's later submits wait.
func (rj *restoreJob) submitNew(e *Engine) {
	if !beginCall(e) { // refused like a submit
		e.Refuse(&rj.Submit, arcp.JobFailed, errShuttingDown())
		return
	}
	e.order.enqueue(rj.Session, true, stepFunc(func() bool {
		rj.inTurn = true
		e.pool.Run(func() {
			defer e.calls.Done()
			if !rj.submitInTurn(context.Background(), e) {
				e.order.unblock(rj.Session)
			}
		})
		return true
	}))
}

// beginCall counts a running call, and reports false if the engine drains.
func beginCall(e *Engine) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shutdown.draining() {
		return false
	}
	e.calls.Add(1)
	return true
}

// submitInTurn performs submitNew when its turn has come. It reports whether it still blocks
// the session's later submits.
func (rj *restoreJob) submitInTurn(ctx context.Context, e *Engine) (blocks bool) {
	row, refusal := endedJob(ctx, &e.cfg, rj.Job, rj.Principal, false)
	switch {
	case refusal != nil:
		rj.refuse(e, refusal)
		return false
	case !row.State.Terminal():
		rj.refuse(e, arcp.Errorf(arcp.CodeUnavailable, "the job is not run by this process").RetryAfter(retryAfter))
		return false
	}
	checkpoints, _, err := readCheckpoints(ctx, e.cfg.Store, row.ID)
	ended := &run{e: e, definition: definition{row: row}}
	if err == nil && rj.Recheck {
		err = ended.readProgress(ctx)
	}
	p, ok := job.Checkpoint{}, false
	if err == nil {
		p, ok = checkpoints.Find(rj.Checkpoint)
	}
	t, _ := e.cfg.Catalog(rj.Session, row.Principal, rj.Trust).Resolve(row.Agent) // Submit refuses a tool that is not registered any more
	switch {
	case err != nil:
		rj.unreadable(e, err)
	case ended.progress.Chosen.sameRequest(rj): // the request was performed before the job ended
		rj.ack()
	case t != nil && t.Recovery != tool.RecoveryCheckpoint:
		rj.refuse(e, errNoCheckpoints(t))
	case !ok:
		rj.refuse(e, rj.errNoCheckpoint())
	default:
		s := rj.submit(&row, p)
		return s.perform(e)
	}
	return false
}

// submit returns the submit of a job like row that begins with the checkpoint p of row. Its lease is the
// lease of row, limited by the principal's present lease. It is not direct: job.accepted is the answer.
func (rj *restoreJob) submit(row *store.Job, p job.Checkpoint) Submit {
	o := optionsOf(row)
	payload := arcp.ToolInvokePayload{Tool: row.Agent, Arguments: row.Arguments, SubmitOptions: arcp.SubmitOptions{
		OnDisconnect: o.OnDisconnect, StrictCancel: o.StrictCancel, Retry: o.Retry, LeaseRequest: o.Lease}}
	if o.MaxRuntimeSec != "" {
		payload.MaxRuntimeSec = &o.MaxRuntimeSec
	}
	env := *rj.Envelope
	env.JobID, env.Priority = "", row.Priority        // the job_id of a submit would be the parent's
	p.N, p.KnownChildren = firstCheckpointNumber, nil // the children belong to row
	record, err := arcp.Marshal(p)
	if err != nil { // it was decoded
		panic("engine: checkpoint: " + err.Error())
	}
	s := rj.Submit
	s.Envelope, s.Payload = &env, &payload
	s.firstCheckpoint = &firstCheckpoint{restoredFrom: arcp.RestoredFrom{JobID: row.ID, CheckpointID: p.ID}, record: record}
	return s
}
