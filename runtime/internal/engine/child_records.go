package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job/family"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
)

func childrenPrefix(id arcp.JobID) string { return store.JobRecordPrefix(id) + "child/" }

func childKey(id arcp.JobID, n uint64) string { return fmt.Sprintf("%s%d", childrenPrefix(id), n) }

// child is the change of the record of a child.
func (jr jobRecords) child(c *family.Child) (rec store.Record, err error) {
	rec.Key = childKey(jr.job, c.N)
	if c.Stored {
		if rec.Rev, err = jr.revision(rec.Key, c.Rev); err != nil {
			return rec, err
		}
	}
	if !c.Reverted {
		rec.Value, err = arcp.Marshal(c.Entry)
	}
	return rec, err
}

// addLedger adds the changed entries of a ledger to the write of the budget.
func (jr jobRecords) addLedger(w *store.Write, l *family.Ledger) error {
	for _, c := range l.Changed() {
		rec, err := jr.child(c)
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	return nil
}

// readLedger reads the entries of a ledger from the store.
func (jr jobRecords) readLedger(ctx context.Context, l *family.Ledger) error {
	var bad error
	var children []*family.Child
	err := jr.store.Records(ctx, childrenPrefix(jr.job), "", func(rec store.Record) bool {
		c := &family.Child{Stored: true, Rev: rec.Rev}
		if bad = arcp.Unmarshal(rec.Value, &c.Entry); bad != nil {
			bad = fmt.Errorf("%s: %w", rec.Key, bad)
			return false
		}
		children = append(children, c)
		return true
	})
	l.Load(children)
	return errors.Join(err, bad)
}

// addChild adds a child to the ledger of its parent.
type addChild struct {
	parent    *supervisor
	call      family.Call
	namespace string

	admission family.Admission
	toolReply
}

func (a *addChild) apply(s *supervisor, now time.Time) {
	if s != a.parent || !s.running() || s.progress.Cancel != nil {
		a.done <- errEnded
		return
	}
	if err := a.admit(s, now); err != nil {
		if err.Code == arcp.CodeLeaseSubsetViolation {
			s.recordDenial(a.namespace, err)
		}
		a.done <- err
		return
	}
	s.write.addCommands(a)
}

func (a *addChild) admit(s *supervisor, now time.Time) (err *arcp.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events.ending() {
		return errEnded
	}
	a.call.N, a.call.Failed = s.progress.Children+1, s.call.failedBefore
	if a.admission, err = s.ledger.Admit(&s.authority.State, a.call); err != nil {
		return err
	}
	s.progress.Children, s.progress.unsaved = a.call.N, true
	s.beginCreation(a.call.Job)
	s.events.push(s.event(arcp.EventEmit, now, s.row.Priority, a.admission.Event))
	s.emitBudget(now)
	return nil
}

// revertChild removes a child that was not created from the ledger.
type revertChild struct {
	child *family.Child
	toolReply
}

func (c *revertChild) apply(s *supervisor, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.Revert(&s.authority.State, c.child)
	s.emitBudget(now)
	s.write.addCommands(c)
}

// emitBudget emits the remaining budget after a change by a child. Called with s.mu.
func (s *supervisor) emitBudget(now time.Time) {
	if s.events.closed {
		return
	}
	for _, rest := range s.authority.Announce() {
		s.events.push(s.event(arcp.Metric, now, s.row.Priority, rest))
	}
}

// returnBudget returns the rest of the budget of a child that has ended, with all its
// descendants.
type returnBudget struct {
	child arcp.JobID
	run   *run       // of the child, if it has ended in this process
	done  chan error // buffered 1; nil: no call waits
}

func (rb *returnBudget) apply(s *supervisor, now time.Time) {
	if s.planned != nil {
		planner{s}.jobEnded(now, rb.child, rb.run)
		rb.report(nil)
		return
	}
	c := s.ledger.Find(rb.child)
	if c == nil || !c.Open {
		rb.answer(s, c != nil && s.ledger.Unsaved(c))
		return
	}
	status, rest, err := childStatus(context.Background(), s.e, c, rb.run)
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(rb.child)).Msg("the rest of a child's budget cannot be read")
		rb.report(err)
		return
	}
	s.mu.Lock()
	closed := s.ledger.Return(&s.authority.State, c, status, rest)
	if closed {
		s.emitBudget(now)
	}
	s.mu.Unlock()
	rb.answer(s, closed)
}

// answer answers at once, or when the next write is durable if it stores the entry.
func (rb *returnBudget) answer(s *supervisor, unsaved bool) {
	switch {
	case !unsaved:
		rb.report(nil)
	case rb.done != nil:
		s.write.addCommands(rb)
	}
}

func (rb *returnBudget) report(err error) {
	if rb.done != nil {
		rb.done <- err
	}
}

func (rb *returnBudget) committed(_ *jobWriter, err error) { rb.report(endedIf(err)) }
func (rb *returnBudget) rejected(*Engine, bool)            { rb.report(errEnded) }

// reportEnd posts the end of the job to the nearest ancestor that has not ended. The ancestor may
// wait only for the rest of the job's budget.
func reportEnd(r *run) {
	e := r.e
	d := returnBudget{child: r.row.ID, run: r}
	for parent := r.row.Parent; parent != ""; {
		p := e.run(parent)
		if p != nil && p.post(&d) {
			return
		}
		d = returnBudget{child: parent}
		if p != nil {
			parent = p.row.Parent
			continue
		}
		j, err := e.cfg.Store.Job(context.Background(), parent)
		if err != nil {
			return // the next start looks at it again
		}
		parent = j.Parent
	}
}

// childStatus returns the status of a child and, if it has ended, the rest of its budget with the
// rests of its descendants. r is the run of the child if it has ended in this process, else nil.
func childStatus(ctx context.Context, e *Engine, c *family.Child, r *run) (family.Status, []lease.Amount, error) {
	if r != nil && r.done.outcome != nil && r.ledger.Empty() {
		return family.Ended, r.authority.Budget.Remaining(), nil
	}
	if e.Lives(c.Job) { // or it is on its way to the store
		return family.Running, nil, nil
	}
	j, err := e.cfg.Store.Job(ctx, c.Job)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return family.Missing, nil, nil
	case err != nil || !j.State.Terminal():
		return family.Running, nil, err
	}
	options := optionsOf(&j)
	r = &run{e: e, definition: definition{row: j}}
	r.authority.SetLease(options.lease())
	if err := r.readProgress(ctx); err != nil {
		return family.Running, nil, err
	}
	for _, below := range r.ledger.Children() {
		if !below.Open {
			continue
		}
		status, rest, err := childStatus(ctx, e, below, nil)
		if err != nil || !r.ledger.Return(&r.authority.State, below, status, rest) {
			return family.Running, nil, err
		}
	}
	return family.Ended, r.authority.Budget.Remaining(), nil
}
