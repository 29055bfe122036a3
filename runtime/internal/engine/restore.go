package engine

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Restore is a request to go on from a checkpoint.
type Restore struct {
	Submit     // of the new job, if the one with the checkpoint has ended; the payload is made from that
	Job        arcp.JobID
	Checkpoint string
}

// chosen is the checkpoint that a client wants a job to go on from.
type chosen struct {
	N       uint64         `json:"n"`
	After   uint64         `json:"after"` // the latest when it was chosen: one that is later counts instead
	Session arcp.SessionID `json:"session_id"`
	Request arcp.MessageID `json:"request_id"`
}

// by reports whether this is the request that chose, sent again.
func (c *chosen) by(q *Restore) bool {
	return c != nil && c.Request == q.Envelope.ID && c.Session == q.Session
}

// seed is the checkpoint with which a new job begins. It becomes the first of
// the job's own: whatever happens to the job it came from, and to the runtime,
// it is there.
type seed struct {
	from   arcp.RestoredFrom
	record []byte
}

const seedN = 1

// RestoreCheckpoint has a job go on from a checkpoint. For one that has not ended
// that is acknowledged when it is durable: the attempt is stopped, and the next
// one goes on from there. For one that has, a job like it is submitted.
func (e *Engine) RestoreCheckpoint(ctx context.Context, q Restore) {
	r := e.run(q.Job)
	switch {
	case r == nil:
		e.branch(ctx, &q)
	case r.row.Principal != q.Principal:
		q.refuse(e, errNoSuchJob())
	case r.strict && r.row.Session != q.Session:
		e.auditDenied("checkpoint.restore", q.Principal, q.Session, string(q.Job), strictly)
		q.refuse(e, arcp.Errorf(arcp.CodePermissionDenied, "only the submitting session may restore this job"))
	case r.tool.Recovery != tool.RecoveryCheckpoint:
		q.refuse(e, errNoCheckpoints(r.tool))
	case !r.post(&q):
		q.tooLate(e, r.isStopped())
	}
}

func (q *Restore) refuse(e *Engine, err *arcp.Error) { e.Refuse(&q.Submit, arcp.Nack, err) }

func (q *Restore) ack() {
	q.Answers.Answer(answerTo(q.Envelope.ID, arcp.Ack, arcp.AckPayload{}))
	q.settle()
}

func (q *Restore) errNoCheckpoint() *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "the job has no checkpoint %.100q, or does not keep it any more", q.Checkpoint)
}

// meet chooses the checkpoint, and ends the attempt if there is one.
func (q *Restore) meet(s *supervisor, now time.Time) {
	switch {
	case s.m.State().Terminal():
		s.late = append(s.late, q)
		return
	case s.progress.Cancel != nil:
		q.refuse(s.e, arcp.Errorf(arcp.CodeFailedPrecondition, "the job is being cancelled"))
		return
	case s.progress.From.by(q):
		s.asked = append(s.asked, q)
		return
	}
	k, err := s.e.kept(context.Background(), s.row.ID)
	if err != nil {
		q.unreadable(s.e, err)
		return
	}
	from := s.choose(k, q.Checkpoint)
	if from == nil {
		q.refuse(s.e, q.errNoCheckpoint())
		return
	}
	from.Session, from.Request = q.Session, q.Envelope.ID
	s.progress.From, s.unsaved = from, true
	s.asked = append(s.asked, q)
	if s.m.Rewind(now) {
		s.rewound = true
		s.toolEnd = time.Time{} // it counts no more
	}
}

// choose finds a checkpoint and takes no more from an attempt that runs. One that
// its tool has just made does not count, but may take the place of the oldest.
func (s *supervisor) choose(k *storedCheckpoints, id string) *chosen {
	p, ok := k.find(id)
	running := s.m.State() == arcp.StateRunning || s.m.State() == arcp.StateBlocked
	s.mu.Lock()
	defer s.mu.Unlock()
	last := k.latest().N
	if s.point != nil {
		last++
	}
	if !ok || p.N+keptPoints <= last {
		return nil
	}
	s.over = s.over || running
	s.space.Broadcast()
	return &chosen{N: p.N, After: last}
}

func (q *Restore) settled(s *supervisor, err error) {
	switch {
	case err == nil:
		q.ack()
	case gone(err):
		s.late = append(s.late, q)
	default:
		q.refuse(s.e, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be written"))
	}
}

func (q *Restore) tooLate(e *Engine, stopped bool) {
	if stopped {
		q.refuse(e, errShuttingDown())
		return
	}
	e.branch(context.Background(), q)
}

func (q *Restore) unreadable(e *Engine, err error) {
	e.cfg.Logger.Error().Err(err).Str("job_id", string(q.Job)).Msg("checkpoints of a job cannot be read")
	q.refuse(e, arcp.Errorf(arcp.CodeUnavailable, "the job's checkpoints cannot be read"))
}

// branch submits a job that goes on from a checkpoint of one that has ended.
func (e *Engine) branch(ctx context.Context, q *Restore) {
	row, refusal := e.ended(ctx, q.Job, q.Principal, false)
	switch {
	case refusal != nil:
		q.refuse(e, refusal)
		return
	case !row.State.Terminal():
		q.refuse(e, arcp.Errorf(arcp.CodeUnavailable, "the job is not run by this process").RetryAfter(retryAfter))
		return
	}
	k, err := e.kept(ctx, row.ID)
	ended := &run{e: e, row: row}
	if err == nil && q.Recheck {
		err = ended.readProgress(ctx)
	}
	p, ok := point{}, false
	if err == nil {
		p, ok = k.find(q.Checkpoint)
	}
	t, _ := e.cfg.Catalogue(q.Session, row.Principal, q.Trust).Resolve(row.Agent) // one that is gone is the submit's to refuse
	switch {
	case err != nil:
		q.unreadable(e, err)
	case ended.progress.From.by(q): // when the job had not ended
		q.ack()
	case t != nil && t.Recovery != tool.RecoveryCheckpoint:
		q.refuse(e, errNoCheckpoints(t))
	case !ok:
		q.refuse(e, q.errNoCheckpoint())
	default:
		e.Submit(q.submit(&row, p))
	}
}

// submit is the submit of a job like another one that begins with a checkpoint
// of that. It may do what that might, if its principal still may, and nothing
// else. It is never direct: its job.accepted is the answer.
func (q *Restore) submit(row *store.Job, p point) Submit {
	o := optionsOf(row)
	payload := arcp.ToolInvokePayload{Tool: row.Agent, Arguments: row.Arguments, SubmitOptions: arcp.SubmitOptions{
		OnDisconnect: o.OnDisconnect, StrictCancel: o.StrictCancel, Retry: o.Retry, LeaseRequest: o.Lease}}
	if o.MaxRuntimeSec != "" {
		payload.MaxRuntimeSec = &o.MaxRuntimeSec
	}
	env := *q.Envelope
	env.JobID, env.Priority = "", row.Priority // the job_id of a submit would be the parent's
	p.N, p.Knows = seedN, nil                  // the children are another job's
	record, err := arcp.Marshal(p)
	if err != nil { // it was decoded
		panic("engine: checkpoint: " + err.Error())
	}
	s := q.Submit
	s.Envelope, s.Payload = &env, &payload
	s.seed = &seed{arcp.RestoredFrom{JobID: row.ID, CheckpointID: p.ID}, record}
	return s
}
