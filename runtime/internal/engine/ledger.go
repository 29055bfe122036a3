package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
)

// ledger has the children of a job, and the part of the job's budget that each of them
// holds. A child's entry is durable before the child. A change of an entry is written
// together with the budget, so no amount is taken or returned twice. The supervisor owns
// the ledger; children and changes change with run.mu.
type ledger struct {
	children []*child       // in the order of the calls
	changes  []ledgerChange // for the next write
	writing  []ledgerChange // in the write under way
}

// child is an entry of the ledger.
type child struct {
	ledgerEntry
	stored bool   // there is a record
	rev    uint64 // of the record; 0: unknown

	calledBy   uint32        // the latest attempt that called the child; with run.mu
	toldTo     uint32        // the latest attempt that knows the outcome; with run.mu
	createdc   chan struct{} // closed when it is decided whether there is a job; nil: an earlier process decided
	notCreated bool          // there is no job; written before createdc is closed
	reverted   bool          // the record is to be deleted
}

// ledgerEntry is the record of a child.
type ledgerEntry struct {
	N        uint64     `json:"n"` // of the job, from 1
	Job      arcp.JobID `json:"job_id"`
	Request  string     `json:"request"`           // digest of the call
	Failed   int        `json:"failed,omitzero"`   // attempts of the parent that had failed before the call
	Made     bool       `json:"made,omitzero"`     // there was a job; written together with the job
	Open     bool       `json:"open,omitzero"`     // the rest of its budget has not been returned
	Reserved []string   `json:"reserved,omitzero"` // amounts, while it is open
}

// ledgerChange is a change of an entry. done gets the result of its write.
type ledgerChange struct {
	child *child
	done  chan error // buffered 1; nil: it has no waiter
}

func (c *ledgerChange) report(err error) { report(c.done, err) }

// report sends a result unless done is nil.
func report(done chan error, err error) {
	if done != nil {
		done <- err
	}
}

// reserved returns the amounts of an open entry.
func (c *ledgerEntry) reserved() (list []lease.Amount) {
	for _, text := range c.Reserved {
		if a, err := lease.ParseAmount(text); err == nil { // it was written from one
			list = append(list, a)
		}
	}
	return list
}

func amountTexts(list []lease.Amount) (texts []string) {
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return texts
}

// find returns the entry of a child; nil: there is none.
func (l *ledger) find(id arcp.JobID) *child {
	if i := slices.IndexFunc(l.children, func(c *child) bool { return c.Job == id }); i >= 0 {
		return l.children[i]
	}
	return nil
}

// match returns the first child of a request that an attempt has not called, and records
// the call; nil: there is none.
func (l *ledger) match(request string, attempt uint32) *child {
	for _, c := range l.children {
		if c.Request == request && c.calledBy != attempt {
			c.calledBy = attempt
			return c
		}
	}
	return nil
}

// known returns the children whose outcome an attempt knows, a bit each.
func (l *ledger) known(attempt uint32) (bits []byte) {
	for _, c := range l.children {
		if c.toldTo != attempt {
			continue
		}
		if i := int(c.N / 8); i >= len(bits) {
			bits = append(bits, make([]byte, i+1-len(bits))...)
		}
		bits[c.N/8] |= 1 << (c.N % 8)
	}
	return bits
}

// restoreKnown marks the children of known, as saved with a checkpoint, for an attempt.
func (l *ledger) restoreKnown(bits []byte, attempt uint32) {
	for _, c := range l.children {
		if i := int(c.N / 8); i < len(bits) && bits[i]&(1<<(c.N%8)) != 0 {
			c.calledBy, c.toldTo = attempt, attempt
		}
	}
}

// change adds a change of an entry to the next write.
func (l *ledger) change(c *child, done chan error) {
	l.changes = append(l.changes, ledgerChange{c, done})
}

// changing reports whether a change of an entry waits for its write.
func (l *ledger) changing(c *child) bool {
	return slices.ContainsFunc(l.changes, func(o ledgerChange) bool { return o.child == c })
}

// remove removes a child that was not created.
func (l *ledger) remove(c *child) {
	l.children = slices.DeleteFunc(l.children, func(o *child) bool { return o == c })
}

// take moves the changes to the write.
func (l *ledger) take() { l.writing, l.changes = append(l.writing, l.changes...), nil }

// first reports whether change i is the first one of its child in the write.
func (l *ledger) first(i int) bool {
	return !slices.ContainsFunc(l.writing[:i], func(o ledgerChange) bool { return o.child == l.writing[i].child })
}

// committed reports that the changes of the write are durable.
func (l *ledger) committed() {
	for i, c := range l.writing {
		if l.first(i) {
			c.child.rev, c.child.stored = nextRev(c.child.rev), true
		}
		c.report(nil)
	}
	l.writing = nil
}

// drop reports that the changes will not happen.
func (l *ledger) drop() {
	for _, c := range slices.Concat(l.writing, l.changes) {
		c.report(errEnded)
	}
	l.writing, l.changes = nil, nil
}

func childrenPrefix(id arcp.JobID) string { return store.JobRecords(id) + "child/" }

func childKey(id arcp.JobID, n uint64) string { return fmt.Sprintf("%s%d", childrenPrefix(id), n) }

// childRecord is the change of the record of a child.
func (r jobRecords) childRecord(c *child) (rec store.Record, err error) {
	rec.Key = childKey(r.row.ID, c.N)
	if c.stored {
		if rec.Rev, err = r.revision(rec.Key, c.rev); err != nil {
			return rec, err
		}
	}
	if !c.reverted {
		rec.Value, err = arcp.Marshal(c.ledgerEntry)
	}
	return rec, err
}

// addLedger adds the changed entries to the write of the budget.
func (s jobWriter) addLedger(w *store.Write) error {
	for i, c := range s.ledger.writing {
		if !s.ledger.first(i) {
			continue
		}
		rec, err := jobRecords{s.run}.childRecord(c.child)
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	return nil
}

// readLedger reads the entries from the store.
func (r jobRecords) readLedger(ctx context.Context) error {
	if r.progress.Children == 0 {
		return nil
	}
	var bad error
	err := r.e.cfg.Store.Records(ctx, childrenPrefix(r.row.ID), "", func(rec store.Record) bool {
		c := &child{stored: true, rev: rec.Rev}
		if bad = arcp.Unmarshal(rec.Value, &c.ledgerEntry); bad != nil {
			bad = fmt.Errorf("%s: %w", rec.Key, bad)
			return false
		}
		r.ledger.children = append(r.ledger.children, c)
		return true
	})
	slices.SortFunc(r.ledger.children, func(a, b *child) int { return int(int64(a.N) - int64(b.N)) })
	return errors.Join(err, bad)
}

// addChild reserves an entry and a part of the budget for a new child.
type addChild struct {
	s                  *supervisor
	run                *run // of the child
	asked              *lease.Lease
	request, namespace string

	child *child
	lease *lease.Lease
	done  chan error // buffered 1
}

// delegateData is the data of the event delegate (SPEC.md §5.6).
type delegateData struct {
	DelegateID string     `json:"delegate_id"`
	ChildJobID arcp.JobID `json:"child_job_id"`
	Agent      string     `json:"agent"`
	Lease      arcp.Raw   `json:"lease"`
}

func (a *addChild) apply(s *supervisor, now time.Time) {
	if s != a.s || !s.running() || s.progress.Cancel != nil {
		a.done <- errEnded
		return
	}
	if err := a.reserve(s, now); err != nil {
		if err.Code == arcp.CodeLeaseSubsetViolation {
			s.denied(a.namespace, err)
		}
		a.done <- err
	}
}

// reserve gives the child its lease and its budget.
func (a *addChild) reserve(s *supervisor, now time.Time) *arcp.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.events.ending():
		return errEnded
	case len(s.ledger.children) >= maxChildren:
		err := arcp.Errorf(arcp.CodeResourceExhausted, "the job has called %d children; more it may not", maxChildren)
		err.Retryable = false
		return err
	}
	a.lease = a.asked.Inherit(s.auth.Lease, s.auth.Budget.Remaining())
	ev := a.event(s, now)
	if n := len(ev.Body); n > maxPayload {
		return arcp.Errorf(arcp.CodeResourceExhausted, "a lease of %d bytes: an event may have at most %d", n, maxPayload)
	}
	if err := s.auth.Reserve(a.lease.Budget()); err != nil {
		return err
	}
	s.progress.Children++
	s.progress.unsaved = true
	a.child = &child{calledBy: s.attempt, createdc: make(chan struct{}), ledgerEntry: ledgerEntry{N: s.progress.Children, Job: a.run.row.ID,
		Request: a.request, Failed: s.call.failedBefore, Open: true, Reserved: amountTexts(a.lease.Budget())}}
	s.ledger.children = append(s.ledger.children, a.child)
	s.ledger.change(a.child, a.done)
	s.events.push(ev)
	s.announceBudget(now)
	return nil
}

func (a *addChild) event(s *supervisor, now time.Time) *store.Event {
	data, err := arcp.Marshal(delegateData{arcp.NewID("dlg_"), a.run.row.ID, a.run.row.Agent, a.lease.RFC()})
	if err != nil { // plain members, and a lease that was encoded
		panic("engine: " + err.Error())
	}
	return s.event(arcp.EventEmit, now, s.row.Priority, arcp.EventEmitPayload{Name: "delegate", Data: data})
}

func (a *addChild) committed(*supervisor, error) {} // the ledger reports
func (a *addChild) rejected(*Engine, bool)       { a.done <- errEnded }

// revertChild reverts addChild for a child that was not created.
type revertChild struct {
	child *child
	done  chan error // buffered 1
}

func (c *revertChild) apply(s *supervisor, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeChild(now, c.child, c.child.reserved(), c.done)
	c.child.reverted = true
	s.ledger.remove(c.child)
}

func (c *revertChild) committed(*supervisor, error) {} // the ledger reports
func (c *revertChild) rejected(*Engine, bool)       { c.done <- errEnded }

// closeChild returns the rest of a child's budget. Called with s.mu.
func (s *supervisor) closeChild(now time.Time, c *child, rest []lease.Amount, done chan error) {
	s.auth.Return(rest)
	c.Open, c.Reserved = false, nil
	s.announceBudget(now)
	s.ledger.change(c, done)
}

// announceBudget emits the remaining budget after a change by a child. Called with s.mu.
func (s *supervisor) announceBudget(now time.Time) {
	if s.events.closed {
		return
	}
	for _, rest := range s.auth.Announce() {
		s.events.push(s.event(arcp.Metric, now, s.row.Priority, rest))
	}
}

// returnBudget returns the rest of the budget of a child that has ended, with all its
// descendants.
type returnBudget struct {
	child arcp.JobID
	run   *run       // of the child, if it has ended in this process
	done  chan error // buffered 1; nil: it has no waiter
}

func (d *returnBudget) apply(s *supervisor, now time.Time) {
	c := s.ledger.find(d.child)
	if c == nil {
		report(d.done, nil)
		return
	}
	if !c.Open {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ledger.changing(c) {
			s.ledger.change(c, d.done)
			return
		}
		report(d.done, nil)
		return
	}
	rest, ended, err := c.budget(context.Background(), s.e, d.run)
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(d.child)).Msg("what is left of a child's budget cannot be read")
	}
	if err != nil || !ended {
		report(d.done, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeChild(now, c, rest, d.done)
}

func (d *returnBudget) committed(*supervisor, error) {} // the ledger reports
func (d *returnBudget) rejected(*Engine, bool)       { report(d.done, errEnded) }

// reportEnd tells the nearest ancestor that has not ended that a job has. The ancestor may
// wait only for the rest of the job's budget.
func (r *run) reportEnd() {
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

// budget returns the rest of a child's budget: nothing if the child is deleted. ended is false
// while the child, or a descendant, may still spend. r is the run of the child if it has ended
// in this process, else nil.
func (c *child) budget(ctx context.Context, e *Engine, r *run) (left []lease.Amount, ended bool, err error) {
	if r != nil && r.done.outcome != nil && len(r.ledger.children) == 0 {
		return r.auth.Budget.Remaining(), true, nil
	}
	if e.Lives(c.Job) { // or it is on its way to the store
		return nil, false, nil
	}
	j, err := e.cfg.Store.Job(ctx, c.Job)
	switch {
	case errors.Is(err, store.ErrNotFound) && c.Made: // its spending is deleted with it
		return nil, true, nil
	case errors.Is(err, store.ErrNotFound):
		return c.reserved(), true, nil
	case err != nil || !j.State.Terminal():
		return nil, false, err
	}
	options := optionsOf(&j)
	r = &run{e: e, definition: definition{row: j}}
	r.auth.SetLease(options.lease())
	if err := (jobRecords{r}).readProgress(ctx); err != nil {
		return nil, false, err
	}
	for _, below := range r.ledger.children {
		if !below.Open {
			continue
		}
		left, ended, err := below.budget(ctx, e, nil)
		if err != nil || !ended {
			return nil, false, err
		}
		r.auth.Budget.Return(left)
	}
	return r.auth.Budget.Remaining(), true, nil
}
