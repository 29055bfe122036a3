package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/digest"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// CallPending is the status of a call that waits for an approval. The other statuses are
// labels of the metrics: ok, error, timeout, denied.
const CallPending = "approval_pending"

// CallRecord is one call of a tool (SPEC.md §7.5).
type CallRecord struct {
	Name       string          `json:"name"` // name@version; as requested if the call was refused
	JobID      arcp.JobID      `json:"job_id,omitzero"`
	Attempt    uint32          `json:"attempt,omitzero"`
	SideEffect tool.SideEffect `json:"side_effect,omitzero"` // empty if the tool is not registered any more
	StartedAt  time.Time       `json:"started_at"`
	DurationMS int64           `json:"duration_ms"`
	Status     string          `json:"status"`
	Request    string          `json:"request_digest"`
	Response   string          `json:"response_digest,omitzero"`
	Error      *CallError      `json:"error,omitzero"`

	Size int `json:"-"` // bytes read for the digests
}

// CallError is the error of a failed call.
type CallError struct {
	Code    arcp.Code `json:"code"`
	Message string    `json:"message"`
}

// Bounds of the notes, and of listing calls.
const (
	maxNotes    = 256     // of an attempt, so that a loop of refused calls does not fill the store
	maxNoteText = 512     // bytes of an error message
	maxDigested = 8 << 20 // bytes of a result that is assembled for its digest
)

// callNote is the record of a refused call, or of a call with other arguments than the job's. Neither
// has a job of its own. A note is part of the job's next write, and is deleted with the job.
type callNote struct {
	Attempt       uint32          `json:"attempt"`
	HookArguments bool            `json:"own,omitzero"` // the attempt's own call, with the arguments of a hook
	Tool          string          `json:"tool,omitzero"`
	Effect        tool.SideEffect `json:"side_effect,omitzero"` // empty if the tool is not in the job's catalog
	At            time.Time       `json:"at"`
	Request       string          `json:"request"`
	Code          arcp.Code       `json:"code,omitzero"`
	Message       string          `json:"message,omitzero"`

	number int
}

func notesPrefix(id arcp.JobID) string { return store.JobRecordPrefix(id) + "call/" }

func (n *callNote) key(id arcp.JobID) string {
	return fmt.Sprintf("%s%08d/%04d", notesPrefix(id), n.Attempt, n.number)
}

// addNote adds a note of the attempt.
func (tg toolGoroutine) addNote(n callNote) {
	s := tg.s
	n.Attempt, n.At = s.attempt, time.Now().UTC()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.events.closed {
		s.notes.add(n)
	}
}

// recordRefusal adds a note of a refused call.
func (cc *childCall) recordRefusal(err error) {
	e, ok := errors.AsType[*arcp.Error](err)
	if !ok || e == errEnded {
		return
	}
	n := callNote{Tool: clip.Text(cc.Tool, arcp.MaxIDLen), Request: digest.OfArguments(cc.Arguments), Code: e.Code,
		Message: clip.Text(cc.parent.e.cfg.scrubber().text(e.Message), maxNoteText)}
	if t, err := cc.parent.catalog.Resolve(cc.Tool); err == nil {
		n.Effect = t.SideEffect
	}
	toolGoroutine{cc.parent}.addNote(n)
}

// addTo adds the notes of a job to the write in progress.
func (l *noteLog) addTo(w *store.Write, id arcp.JobID) error {
	for i := range l.writing {
		raw, err := arcp.Marshal(&l.writing[i])
		if err != nil {
			return err
		}
		w.Put(store.Record{Key: l.writing[i].key(id), Value: raw})
	}
	return nil
}

// Calls calls fn for the calls of a job until fn returns false: first the job's attempts, then its
// children, then its refused calls. position is the position of a call in that order. The list
// begins behind the position after; empty: at the first call. It leaves out running attempts and
// deleted children.
func (e *Engine) Calls(ctx context.Context, row *store.Job, after string, fn func(position string, c CallRecord) bool) error {
	l := callLister{e: e, ctx: ctx, after: after, fn: fn}
	notes, err := l.readNotes(ctx, row.ID)
	if err == nil {
		err = l.attempts(row, notes)
	}
	if err == nil {
		err = l.children(row)
	}
	for _, n := range notes {
		if position := fmt.Sprintf("3/%08d/%04d", n.Attempt, n.number); err == nil && !n.HookArguments && l.includes(position) {
			l.yield(position, n.record())
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

func (l *callLister) includes(position string) bool { return !l.done && position > l.after }

func (l *callLister) yield(position string, c CallRecord) { l.done = !l.fn(position, c) }

func (n *callNote) record() CallRecord {
	return CallRecord{Name: n.Tool, Attempt: n.Attempt, SideEffect: n.Effect, StartedAt: n.At, Status: refusedStatus(n.Code),
		Request: n.Request, Error: &CallError{n.Code, n.Message}}
}

// refusedStatus is the status of a refused call.
func refusedStatus(c arcp.Code) string {
	switch c {
	case arcp.CodePermissionDenied, arcp.CodeLeaseExpired, arcp.CodeLeaseRevoked, arcp.CodeLeaseSubsetViolation, arcp.CodeBudgetExhausted:
		return metrics.CallDenied
	}
	return metrics.CallError
}

// sideEffect returns the side effect of a tool; empty if it is not registered any more.
func (l *callLister) sideEffect(ref string) tool.SideEffect {
	if t, err := l.e.cfg.Tools.Resolve(ref); err == nil {
		return t.SideEffect
	}
	return ""
}

func (l *callLister) readNotes(ctx context.Context, id arcp.JobID) (list []callNote, err error) {
	var bad error
	prefix := notesPrefix(id)
	err = l.e.cfg.Store.Records(ctx, prefix, "", func(rec store.Record) bool {
		var n callNote
		if bad = arcp.Unmarshal(rec.Value, &n); bad == nil {
			_, number, _ := strings.Cut(strings.TrimPrefix(rec.Key, prefix), "/")
			n.number, bad = strconv.Atoi(number)
		}
		list = append(list, n)
		return bad == nil
	})
	return list, errors.Join(err, bad)
}

// attempts lists the ended attempts of a job, and a running one that waits for an approval.
func (l *callLister) attempts(row *store.Job, notes []callNote) error {
	if last := fmt.Sprintf("1/%08d", row.Attempt); l.after >= last {
		return nil
	}
	list, err := l.attemptsOf(l.ctx, row)
	if err != nil {
		return err
	}
	for _, c := range list {
		for _, n := range notes {
			if n.HookArguments && n.Attempt == c.Attempt {
				c.Request = n.Request
			}
		}
		if position := fmt.Sprintf("1/%08d", c.Attempt); l.includes(position) {
			l.yield(position, c)
		}
	}
	return nil
}

// attemptsOf reads the attempts of a job. For a job with one attempt it reads the first events and the
// last event, otherwise the whole log.
func (l *callLister) attemptsOf(ctx context.Context, row *store.Job) (list []CallRecord, err error) {
	c := l.newCall(row)
	if row.Attempt > 1 {
		if list, err = l.failedAttempts(ctx, row, &c); err != nil {
			return nil, err
		}
	} else if c.StartedAt, err = l.startedAt(ctx, row); err != nil {
		return nil, err
	}
	switch {
	case row.State.Terminal():
		o, err := l.outcomeFor(ctx, row)
		if err != nil {
			return nil, err
		}
		c.end(row.EndedAt, o)
	case l.awaitsApproval(row.ID):
		c.Status, c.DurationMS = CallPending, time.Since(c.StartedAt).Milliseconds()
	default:
		return list, nil
	}
	return append(list, c), nil
}

func (l *callLister) newCall(row *store.Job) CallRecord {
	return CallRecord{
		Name:       row.Agent,
		JobID:      row.ID,
		Attempt:    row.Attempt,
		SideEffect: l.sideEffect(row.Agent),
		StartedAt:  row.CreatedAt.UTC(),
		Request:    digest.OfArguments(row.Arguments),
	}
}

// scanFirst is the number of events at the start of a log that include job.started.
const scanFirst = 8

func (l *callLister) startedAt(ctx context.Context, row *store.Job) (time.Time, error) {
	at, n := row.CreatedAt.UTC(), 0
	err := l.e.cfg.Store.JobEvents(ctx, row.ID, 0, func(ev *store.Event) bool {
		if n++; ev.Type == arcp.JobStarted {
			at = ev.Time.UTC()
			return false
		}
		return n < scanFirst
	})
	return at, err
}

// failedAttempts reads the attempts that were followed by another one. It sets last.StartedAt to the
// start of the last attempt.
func (l *callLister) failedAttempts(ctx context.Context, row *store.Job, last *CallRecord) (list []CallRecord, err error) {
	var bad error
	var failed *CallRecord // an attempt has failed if the event retry is its last event: a tool may emit one, too
	c, head := *last, store.FrameHead(arcp.Version, cmp.Or(row.Session, arcp.SessionID(arcp.SessionPrefix)))
	err = l.e.cfg.Store.JobEvents(ctx, row.ID, 0, func(ev *store.Event) bool {
		switch ev.Type {
		case arcp.JobStarted:
			if failed != nil && (len(list) == 0 || failed.Attempt > list[len(list)-1].Attempt) {
				list = append(list, *failed)
			}
			c.StartedAt, failed = ev.Time.UTC(), nil
		case arcp.EventEmit:
			var d retryData
			d, bad = retryOfEvent(head, ev)
			if failed = nil; d.Attempt < 2 || d.Attempt > row.Attempt {
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

// retryOfEvent decodes the event retry; zero if it is another event.
func retryOfEvent(head []byte, ev *store.Event) (d retryData, err error) {
	env, err := arcp.Decode(store.AppendFrame(nil, head, 0, "", ev))
	if err != nil {
		return d, err
	}
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](&env)
	if err != nil || p.Name != "retry" {
		return d, err
	}
	if arcp.Unmarshal(p.Data, &d) != nil { // a tool's event with the same name
		return retryData{}, nil
	}
	return d, nil
}

// outcomeFor reads the outcome of a job. It leaves out a result of more than maxDigested bytes.
func (l *callLister) outcomeFor(ctx context.Context, row *store.Job) (*job.Outcome, error) {
	if row.State == arcp.StateCompleted && row.LastJSeq > maxDigested/minChunk {
		ends, err := readEvents(ctx, l.e.cfg.Store, row, row.LastJSeq-1)
		if err != nil || len(ends) != 1 {
			return nil, errors.Join(err, fmt.Errorf("%d terminal events", len(ends)))
		}
		if p, err := arcp.DecodePayload[arcp.JobCompletedPayload](&ends[0]); err == nil && p.ResultSize != nil && *p.ResultSize > maxDigested {
			return &job.Outcome{State: row.State}, nil
		}
	}
	return readOutcome(ctx, l.e.cfg.Store, row)
}

// end completes a record with the outcome of the job.
func (c *CallRecord) end(at time.Time, o *job.Outcome) {
	switch o.State {
	case arcp.StateCompleted:
		c.finish(at, metrics.CallOK)
		if len(o.Value) > 0 {
			c.Response, c.Size = digest.Of(o.Value), len(o.Value)
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

// awaitsApproval reports whether the call of a job waits for an approval.
func (l *callLister) awaitsApproval(id arcp.JobID) bool {
	r := l.e.run(id)
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.questions.AwaitsApproval()
}

// children lists the last attempts of the children of a job.
func (l *callLister) children(row *store.Job) error {
	list, err := childEntries(l.ctx, l.e.cfg.Store, row.ID)
	for i := 0; i < len(list) && err == nil && !l.done; i++ {
		if position := fmt.Sprintf("2/%08d", list[i].N); l.includes(position) {
			err = l.child(position, list[i].Job)
		}
	}
	return err
}

func (l *callLister) child(position string, id arcp.JobID) error {
	j, err := l.e.cfg.Store.Job(l.ctx, id)
	if errors.Is(err, store.ErrNotFound) { // it was not created, or is deleted
		return nil
	}
	if err != nil {
		return err
	}
	notes, err := l.readNotes(l.ctx, id)
	if err != nil {
		return err
	}
	attempts := callLister{e: l.e, ctx: l.ctx, fn: func(_ string, c CallRecord) bool {
		if c.Attempt == j.Attempt {
			l.yield(position, c)
		}
		return true
	}}
	return attempts.attempts(&j, notes)
}
