package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// CallPending is the status of a call that waits for an approval. The others are
// those of the metrics: ok, error, timeout, denied.
const CallPending = "approval_pending"

// CallRecord is one call of a tool (SPEC.md §7.5).
type CallRecord struct {
	Name       string          `json:"name"` // name@version; of a refused call as it was asked for
	JobID      arcp.JobID      `json:"job_id,omitzero"`
	Attempt    uint32          `json:"attempt,omitzero"`
	SideEffect tool.SideEffect `json:"side_effect,omitzero"` // if the tool is there
	StartedAt  time.Time       `json:"started_at"`
	DurationMS int64           `json:"duration_ms"`
	Status     string          `json:"status"`
	Request    string          `json:"request_digest"`
	Response   string          `json:"response_digest,omitzero"`
	Error      *CallError      `json:"error,omitzero"`

	Size int `json:"-"` // bytes that were read for the digests
}

// CallError is why a call has failed.
type CallError struct {
	Code    arcp.Code `json:"code"`
	Message string    `json:"message"`
}

// Bounds of what is kept and read about calls.
const (
	maxNotes    = 256     // of an attempt: a tool that calls in vain in a loop fills no store
	maxNoteText = 512     // bytes of an error's message
	maxDigested = 8 << 20 // bytes of a result that is put together again for its digest
)

// note is what is kept of a call that no job tells of: one that was refused, or
// was made with other arguments than the job's. It is written with whatever the job
// writes next, and deleted with the job.
type note struct {
	Attempt uint32          `json:"attempt"`
	Own     bool            `json:"own,omitzero"` // the attempt's own call, with arguments that a hook has put in place
	Tool    string          `json:"tool,omitzero"`
	Effect  tool.SideEffect `json:"side_effect,omitzero"` // if the job may know the tool
	At      time.Time       `json:"at"`
	Request string          `json:"request"`
	Code    arcp.Code       `json:"code,omitzero"`
	Message string          `json:"message,omitzero"`

	n int
}

func notesPrefix(id arcp.JobID) string { return store.JobRecords(id) + "call/" }

func (n *note) key(id arcp.JobID) string {
	return fmt.Sprintf("%s%08d/%04d", notesPrefix(id), n.Attempt, n.n)
}

// note keeps a note of the attempt.
func (s *supervisor) note(n note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.notes >= maxNotes {
		return
	}
	s.notes++
	n.n, n.Attempt, n.At = s.notes, s.attempt, time.Now().UTC()
	s.noted = append(s.noted, n)
}

// noteRefused keeps a call that became no job.
func (s *supervisor) noteRefused(c *tool.Call, err error) {
	e, ok := errors.AsType[*arcp.Error](err)
	if !ok || e == errEnded {
		return
	}
	n := note{Tool: clip.Text(c.Tool, arcp.MaxIDLen), Request: tool.ArgumentsDigest(c.Arguments), Code: e.Code,
		Message: clip.Text(s.e.scrubText(e.Message), maxNoteText)}
	if t, err := s.catalogue.Resolve(c.Tool); err == nil {
		n.Effect = t.SideEffect
	}
	s.note(n)
}

// addNotes adds the notes to a write.
func (s *supervisor) addNotes(w *store.Write) error {
	for i := range s.noting {
		raw, err := arcp.Marshal(&s.noting[i])
		if err != nil {
			return err
		}
		w.Put(store.Record{Key: s.noting[i].key(s.row.ID), Value: raw})
	}
	return nil
}

// Calls calls fn for the calls of a job, in this order, until it returns false: its
// own attempts, the children that it called, and the calls that were refused. Each
// comes with its place in that order; after, if not empty, is one to go on behind.
// They are made of what there is of the jobs: an attempt that runs is no call yet,
// and a child that is not kept any more is left out.
func (e *Engine) Calls(ctx context.Context, j *store.Job, after string, fn func(place string, c CallRecord) bool) error {
	l := callLister{e: e, ctx: ctx, after: after, fn: fn}
	notes, err := e.readNotes(ctx, j.ID)
	if err == nil {
		err = l.attempts(j, notes)
	}
	if err == nil {
		err = l.children(j)
	}
	for _, n := range notes {
		if place := fmt.Sprintf("3/%08d/%04d", n.Attempt, n.n); err == nil && !n.Own && l.wants(place) {
			l.give(place, n.record())
		}
	}
	return err
}

type callLister struct {
	e     *Engine
	ctx   context.Context
	after string
	fn    func(string, CallRecord) bool
	done  bool
}

func (l *callLister) wants(place string) bool { return !l.done && place > l.after }

func (l *callLister) give(place string, c CallRecord) { l.done = !l.fn(place, c) }

func (n *note) record() CallRecord {
	return CallRecord{Name: n.Tool, Attempt: n.Attempt, SideEffect: n.Effect, StartedAt: n.At, Status: refusedStatus(n.Code),
		Request: n.Request, Error: &CallError{n.Code, n.Message}}
}

// refusedStatus is the status of a call that was not made.
func refusedStatus(c arcp.Code) string {
	switch c {
	case arcp.CodePermissionDenied, arcp.CodeLeaseExpired, arcp.CodeLeaseRevoked, arcp.CodeLeaseSubsetViolation, arcp.CodeBudgetExhausted:
		return metrics.CallDenied
	}
	return metrics.CallError
}

// sideEffect is that of a tool that is still there. A job knows its tool, whatever
// a session sees of it now.
func (e *Engine) sideEffect(ref string) tool.SideEffect {
	if t, err := e.cfg.Tools.Resolve(ref); err == nil {
		return t.SideEffect
	}
	return ""
}

func (e *Engine) readNotes(ctx context.Context, id arcp.JobID) (list []note, err error) {
	var bad error
	prefix := notesPrefix(id)
	err = e.cfg.Store.Records(ctx, prefix, "", func(rec store.Record) bool {
		var n note
		if bad = arcp.Unmarshal(rec.Value, &n); bad == nil {
			_, number, _ := strings.Cut(strings.TrimPrefix(rec.Key, prefix), "/")
			n.n, bad = strconv.Atoi(number)
		}
		list = append(list, n)
		return bad == nil
	})
	return list, errors.Join(err, bad)
}

// attempts gives the attempts of a job that are over, and one that waits for an
// approval.
func (l *callLister) attempts(j *store.Job, notes []note) error {
	if last := fmt.Sprintf("1/%08d", j.Attempt); l.after >= last {
		return nil
	}
	list, err := l.e.attemptsOf(l.ctx, j)
	if err != nil {
		return err
	}
	for _, c := range list {
		for _, n := range notes {
			if n.Own && n.Attempt == c.Attempt {
				c.Request = n.Request
			}
		}
		if place := fmt.Sprintf("1/%08d", c.Attempt); l.wants(place) {
			l.give(place, c)
		}
	}
	return nil
}

// attemptsOf reads the attempts of a job: of one that was made once only the few
// events are read that tell of it, of another one its log.
func (e *Engine) attemptsOf(ctx context.Context, j *store.Job) (list []CallRecord, err error) {
	c := e.newCall(j)
	if j.Attempt > 1 {
		if list, err = e.failedAttempts(ctx, j, &c); err != nil {
			return nil, err
		}
	} else if c.StartedAt, err = e.startedAt(ctx, j); err != nil {
		return nil, err
	}
	switch {
	case j.State.Terminal():
		o, err := e.outcomeFor(ctx, j)
		if err != nil {
			return nil, err
		}
		c.end(j.EndedAt, o)
	case e.awaitsApproval(j.ID):
		c.Status, c.DurationMS = CallPending, time.Since(c.StartedAt).Milliseconds()
	default:
		return list, nil
	}
	return append(list, c), nil
}

func (e *Engine) newCall(j *store.Job) CallRecord {
	return CallRecord{Name: j.Agent, JobID: j.ID, Attempt: j.Attempt, SideEffect: e.sideEffect(j.Agent), StartedAt: j.CreatedAt.UTC(),
		Request: tool.ArgumentsDigest(j.Arguments)}
}

// scanFirst is how many of a job's first events job.started is among.
const scanFirst = 8

func (e *Engine) startedAt(ctx context.Context, j *store.Job) (time.Time, error) {
	at, n := j.CreatedAt.UTC(), 0
	err := e.cfg.Store.JobEvents(ctx, j.ID, 0, func(ev *store.Event) bool {
		if n++; ev.Type == arcp.JobStarted {
			at = ev.Time.UTC()
			return false
		}
		return n < scanFirst
	})
	return at, err
}

// failedAttempts reads the attempts that were followed by another one, and when the
// last began.
func (e *Engine) failedAttempts(ctx context.Context, j *store.Job, last *CallRecord) (list []CallRecord, err error) {
	var bad error
	var failed *CallRecord // if an attempt begins next: what comes last in one is the runtime's
	c, head := *last, store.FrameHead(arcp.Version, cmp.Or(j.Session, arcp.SessionID(arcp.SessionPrefix)))
	err = e.cfg.Store.JobEvents(ctx, j.ID, 0, func(ev *store.Event) bool {
		switch ev.Type {
		case arcp.JobStarted:
			if failed != nil && (len(list) == 0 || failed.Attempt > list[len(list)-1].Attempt) {
				list = append(list, *failed)
			}
			c.StartedAt, failed = ev.Time.UTC(), nil
		case arcp.EventEmit:
			var d retryData
			d, bad = retryOfEvent(head, ev)
			if failed = nil; d.Attempt < 2 || d.Attempt > j.Attempt {
				break
			}
			failed = new(c)
			failed.Attempt = d.Attempt - 1
			failed.finish(ev.Time, statusOf(d.Code))
			failed.Error = &CallError{Code: d.Code}
		default:
			failed = nil
		}
		return bad == nil && ctx.Err() == nil
	})
	last.StartedAt = c.StartedAt
	return list, errors.Join(err, bad, ctx.Err())
}

// retryOfEvent is the data of an event that tells of another attempt; zero if it
// tells of something else.
func retryOfEvent(head []byte, ev *store.Event) (d retryData, err error) {
	env, err := arcp.Decode(store.AppendFrame(nil, head, 0, "", ev))
	if err != nil {
		return d, err
	}
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](&env)
	if err != nil || p.Name != "retry" {
		return d, err
	}
	if arcp.Unmarshal(p.Data, &d) != nil { // a tool's, which has named an event so
		return retryData{}, nil
	}
	return d, nil
}

// outcomeFor is what came of a job; of a result that is very large only that it is.
func (e *Engine) outcomeFor(ctx context.Context, j *store.Job) (*job.Outcome, error) {
	if j.State == arcp.StateCompleted && j.LastJSeq > maxDigested/minChunk {
		ends, err := e.readEvents(ctx, j, j.LastJSeq-1)
		if err != nil || len(ends) != 1 {
			return nil, errors.Join(err, fmt.Errorf("%d terminal events", len(ends)))
		}
		if p, err := arcp.DecodePayload[arcp.JobCompletedPayload](&ends[0]); err == nil && p.ResultSize != nil && *p.ResultSize > maxDigested {
			return &job.Outcome{State: j.State}, nil
		}
	}
	return e.readOutcome(ctx, j)
}

// end ends a record with what came of the job.
func (c *CallRecord) end(at time.Time, o *job.Outcome) {
	switch o.State {
	case arcp.StateCompleted:
		c.finish(at, metrics.CallOK)
		if len(o.Value) > 0 {
			c.Response, c.Size = tool.Digest(o.Value), len(o.Value)
		}
	case arcp.StateCancelled:
		c.finish(at, metrics.CallError)
		c.Error = &CallError{o.Code, clip.Text(o.Reason, maxNoteText)}
	default:
		c.finish(at, callStatus(o.Err))
		c.Error = &CallError{o.Err.Code, clip.Text(o.Err.Message, maxNoteText)}
	}
}

func (c *CallRecord) finish(at time.Time, status string) {
	c.Status, c.DurationMS = status, max(at.Sub(c.StartedAt).Milliseconds(), 0)
}

func statusOf(code arcp.Code) string { return callStatus(&arcp.Error{Code: code}) }

// awaitsApproval reports whether the call of a job waits for somebody to approve it.
func (e *Engine) awaitsApproval(id arcp.JobID) bool {
	r := e.run(id)
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.questions, func(q *question) bool {
		return q.row.Ordinal == beforeCall && q.row.Status == approval.Pending
	})
}

// children gives the last attempts of the jobs that a job has called.
func (l *callLister) children(j *store.Job) error {
	var bad error
	var list []entry
	err := l.e.cfg.Store.Records(l.ctx, childrenPrefix(j.ID), "", func(rec store.Record) bool {
		var k entry
		bad = arcp.Unmarshal(rec.Value, &k)
		list = append(list, k)
		return bad == nil
	})
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.N, b.N) })
	for i := 0; i < len(list) && err == nil && bad == nil && !l.done; i++ {
		if place := fmt.Sprintf("2/%08d", list[i].N); l.wants(place) {
			err = l.child(place, list[i].Job)
		}
	}
	return errors.Join(err, bad)
}

func (l *callLister) child(place string, id arcp.JobID) error {
	j, err := l.e.cfg.Store.Job(l.ctx, id)
	if errors.Is(err, store.ErrNotFound) { // it was not made, or is not kept any more
		return nil
	}
	if err != nil {
		return err
	}
	notes, err := l.e.readNotes(l.ctx, id)
	if err != nil {
		return err
	}
	attempts := callLister{e: l.e, ctx: l.ctx, fn: func(_ string, c CallRecord) bool {
		if c.Attempt == j.Attempt {
			l.give(place, c)
		}
		return true
	}}
	return attempts.attempts(&j, notes)
}
