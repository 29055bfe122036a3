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

// child is an entry in the account that a job keeps of its children: one that was
// called, and what of the job's budget it has. It is durable before there is a
// child, and what changes of it is written together with the budget, so what a
// child costs is neither taken nor given back twice. The parent's supervisor owns
// it.
type child struct {
	entry
	kept bool   // there is a record
	rev  uint64 // of the record; 0: unknown

	called, told uint32        // the latest attempts that called it and know what came of it; with run.mu
	madec        chan struct{} // closed when it is decided whether there is a job; nil: it was in another process
	unmade       bool          // there is none; written before madec is closed
	struck       bool          // the record is to be deleted
}

// entry is a child as it is kept.
type entry struct {
	N        uint64     `json:"n"` // of the job, from 1
	Job      arcp.JobID `json:"job_id"`
	Request  string     `json:"request"`           // the digest of the call
	Failed   int        `json:"failed,omitzero"`   // attempts of the parent that had failed before the call
	Made     bool       `json:"made,omitzero"`     // there was a job: written together with it
	Open     bool       `json:"open,omitzero"`     // what is left of its budget has not been given back
	Reserved []string   `json:"reserved,omitzero"` // amounts, while it is open
}

func childrenPrefix(id arcp.JobID) string { return store.JobRecords(id) + "child/" }

func childKey(id arcp.JobID, n uint64) string { return fmt.Sprintf("%s%d", childrenPrefix(id), n) }

// booking is a change of an entry that somebody waits for.
type booking struct {
	child *child
	done  chan error // buffered 1; nil: nobody does
}

func (b *booking) tell(err error) {
	if b.done != nil {
		b.done <- err
	}
}

// addChild reserves a place for a new child in the account of its parent.
type addChild struct {
	s                  *supervisor
	run                *run
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

func (h *addChild) meet(s *supervisor, now time.Time) {
	if s != h.s || !s.running() || s.progress.Cancel != nil {
		h.done <- errEnded
		return
	}
	if err := s.reserveFor(h, now); err != nil {
		if err.Code == arcp.CodeLeaseSubsetViolation {
			s.denied(h.namespace, err)
		}
		h.done <- err
	}
}

// reserveFor gives a child its lease, and what of the budget it may spend.
func (s *supervisor) reserveFor(h *addChild, now time.Time) *arcp.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over || s.point != nil && s.point.pause: // the attempt is about to end
		return errEnded
	case len(s.children) >= maxChildren:
		err := arcp.Errorf(arcp.CodeResourceExhausted, "the job has called %d children; more it may not", maxChildren)
		err.Retryable = false
		return err
	}
	h.lease = h.asked.Inherit(s.auth.Lease, s.auth.Budget.Remaining())
	ev := s.delegateEvent(h, now)
	if n := len(ev.Body); n > maxPayload {
		return arcp.Errorf(arcp.CodeResourceExhausted, "a lease of %d bytes: an event may have at most %d", n, maxPayload)
	}
	if err := s.auth.Budget.Reserve(h.lease.Budget()); err != nil {
		return err
	}
	s.spent = s.spent || s.auth.Budget != nil
	s.progress.Children++
	s.unsaved = true
	h.child = &child{called: s.attempt, madec: make(chan struct{}), entry: entry{N: s.progress.Children, Job: h.run.row.ID,
		Request: h.request, Failed: s.round, Open: true, Reserved: amountTexts(h.lease.Budget())}}
	s.children = append(s.children, h.child)
	s.booked = append(s.booked, booking{h.child, h.done})
	s.push(ev)
	s.tellBudget(now)
	return nil
}

func (s *supervisor) delegateEvent(h *addChild, now time.Time) *store.Event {
	data, err := arcp.Marshal(delegateData{arcp.NewID("dlg_"), h.run.row.ID, h.run.row.Agent, h.lease.RFC()})
	if err != nil { // plain members, and a lease that was encoded
		panic("engine: " + err.Error())
	}
	return s.event(arcp.EventEmit, now, s.row.Priority, arcp.EventEmitPayload{Name: "delegate", Data: data})
}

func amountTexts(list []lease.Amount) (texts []string) {
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return texts
}

// reserved are the amounts of an open entry.
func (k *entry) reserved() (list []lease.Amount) {
	for _, text := range k.Reserved {
		if a, err := lease.ParseAmount(text); err == nil { // it was written from one
			list = append(list, a)
		}
	}
	return list
}

func (h *addChild) settled(*supervisor, error) {} // it is booked
func (h *addChild) tooLate(*Engine, bool)      { h.done <- errEnded }

// removeChild reverts addChild for a child that was not created.
type removeChild struct {
	child *child
	done  chan error // buffered 1
}

// strike takes a child from the account that was not made after all. If the job
// has ended meanwhile, who called it learns that nothing is spent there.
func (s *supervisor) strike(k *child, r *run) {
	d := &removeChild{k, make(chan error, 1)}
	if !s.post(d) {
		d.done <- errEnded
	}
	if <-d.done != nil {
		s.e.reportEnd(r)
	}
}

func (d *removeChild) meet(s *supervisor, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credit(d.child, d.child.reserved())
	s.tellBudget(now)
	d.child.struck = true
	s.children = slices.DeleteFunc(s.children, func(k *child) bool { return k == d.child })
	s.booked = append(s.booked, booking{d.child, d.done})
}

func (d *removeChild) settled(*supervisor, error) {} // it is booked
func (d *removeChild) tooLate(*Engine, bool)      { d.done <- errEnded }

// credit closes an entry with what is given back. Called with s.mu.
func (r *run) credit(k *child, rest []lease.Amount) {
	if r.auth.Budget != nil {
		r.auth.Budget.Return(rest)
		if r.cur != nil {
			r.cur.spent = true
		}
	}
	k.Open, k.Reserved = false, nil
}

// tellBudget tells what a child, that has been given some of the budget or has given
// it back, leaves of it. Called with s.mu.
func (s *supervisor) tellBudget(now time.Time) {
	if s.over {
		return
	}
	for _, left := range s.auth.Budget.Announce() {
		s.push(s.event(arcp.Metric, now, s.row.Priority, remaining(left)))
	}
}

// settle gives back what is left of the budget of a child that has ended, and all
// below it.
type settle struct {
	child arcp.JobID
	run   *run       // of the child, if it has ended in this process
	done  chan error // buffered 1; nil: nobody waits
}

func (d *settle) tell(err error) {
	if d.done != nil {
		d.done <- err
	}
}

func (d *settle) meet(s *supervisor, now time.Time) {
	i := slices.IndexFunc(s.children, func(k *child) bool { return k.Job == d.child })
	if i < 0 {
		d.tell(nil)
		return
	}
	k := s.children[i]
	if !k.Open {
		s.mu.Lock()
		defer s.mu.Unlock()
		if slices.ContainsFunc(s.booked, func(b booking) bool { return b.child == k }) { // it is on its way
			s.booked = append(s.booked, booking{k, d.done})
			return
		}
		d.tell(nil)
		return
	}
	rest, ended, err := s.e.rest(context.Background(), d.child, d.run, k)
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(d.child)).Msg("what is left of a child's budget cannot be read")
	}
	if err != nil || !ended {
		d.tell(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credit(k, rest)
	s.tellBudget(now)
	s.booked = append(s.booked, booking{k, d.done})
}

func (d *settle) settled(*supervisor, error) {} // it is booked
func (d *settle) tooLate(*Engine, bool)      { d.tell(errEnded) }

// reportEnd tells the nearest ancestor that has not ended that a child has: what
// the child had left may be all that it waited for.
func (e *Engine) reportEnd(r *run) {
	d := settle{child: r.row.ID, run: r}
	for parent := r.row.Parent; parent != ""; {
		p := e.run(parent)
		if p != nil && p.post(&d) {
			return
		}
		d = settle{child: parent}
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

// rest is what a child leaves of its budget: nothing, if it is deleted. ended is
// false while it, or a job below it, may still spend.
func (e *Engine) rest(ctx context.Context, id arcp.JobID, r *run, k *child) (left []lease.Amount, ended bool, err error) {
	if r != nil && r.final != nil && len(r.children) == 0 {
		return r.auth.Budget.Remaining(), true, nil
	}
	return e.storedRest(ctx, k)
}

func (e *Engine) storedRest(ctx context.Context, k *child) (left []lease.Amount, ended bool, err error) {
	if e.Lives(k.Job) { // also one that is on its way to the store
		return nil, false, nil
	}
	j, err := e.cfg.Store.Job(ctx, k.Job)
	switch {
	case errors.Is(err, store.ErrNotFound) && k.Made: // it is deleted, and with it what it had spent
		return nil, true, nil
	case errors.Is(err, store.ErrNotFound):
		return k.reserved(), true, nil
	case err != nil || !j.State.Terminal():
		return nil, false, err
	}
	options := optionsOf(&j)
	r := &run{e: e, row: j}
	r.authorize(options.lease())
	if err := r.readProgress(ctx); err != nil {
		return nil, false, err
	}
	for _, below := range r.children {
		if !below.Open {
			continue
		}
		left, ended, err := e.storedRest(ctx, below)
		if err != nil || !ended {
			return nil, false, err
		}
		r.auth.Budget.Return(left)
	}
	return r.auth.Budget.Remaining(), true, nil
}

// addBookings adds the entries that have changed to the write of the budget.
func (s *supervisor) addBookings(w *store.Write) error {
	for i, b := range s.bookings {
		if !s.first(i) {
			continue
		}
		rec, err := s.childRecord(b.child)
		if err != nil {
			return err
		}
		w.Put(rec)
	}
	return nil
}

// first reports whether a booking is the first one of its child in the write.
func (s *supervisor) first(i int) bool {
	return !slices.ContainsFunc(s.bookings[:i], func(o booking) bool { return o.child == s.bookings[i].child })
}

func (r *run) childRecord(k *child) (rec store.Record, err error) {
	rec.Key = childKey(r.row.ID, k.N)
	if k.kept {
		if rec.Rev, err = r.revision(rec.Key, k.rev); err != nil {
			return rec, err
		}
	}
	if !k.struck {
		rec.Value, err = arcp.Marshal(k.entry)
	}
	return rec, err
}

// madeRecord is the entry of a child as it is written together with the child:
// should that be deleted later, it is not taken for one that was never made.
func (s *supervisor) madeRecord(k *child) (store.Record, error) {
	key := childKey(s.row.ID, k.N)
	rev, err := s.revision(key, 0)
	if err == nil && rev == 0 { // the parent is deleted
		err = errEnded
	}
	if err != nil {
		return store.Record{}, err
	}
	made := k.entry
	made.Made = true
	value, err := arcp.Marshal(made)
	return store.Record{Key: key, Rev: rev, Value: value}, err
}

// bookingsWritten tells who waits for a change that it is durable.
func (s *supervisor) bookingsWritten() {
	for i, b := range s.bookings {
		if s.first(i) {
			b.child.rev, b.child.kept = raised(b.child.rev), true
		}
		b.tell(nil)
	}
	s.bookings = nil
}

// dropBookings tells who waits for a change that it will not happen.
func (s *supervisor) dropBookings() {
	for _, b := range slices.Concat(s.bookings, s.booked) {
		b.tell(errEnded)
	}
	s.bookings, s.booked = nil, nil
}

// readChildren reads the account.
func (r *run) readChildren(ctx context.Context) error {
	if r.progress.Children == 0 {
		return nil
	}
	var bad error
	err := r.e.cfg.Store.Records(ctx, childrenPrefix(r.row.ID), "", func(rec store.Record) bool {
		k := &child{kept: true, rev: rec.Rev}
		if bad = arcp.Unmarshal(rec.Value, &k.entry); bad != nil {
			bad = fmt.Errorf("%s: %w", rec.Key, bad)
			return false
		}
		r.children = append(r.children, k)
		return true
	})
	slices.SortFunc(r.children, func(a, b *child) int { return int(int64(a.N) - int64(b.N)) })
	return errors.Join(err, bad)
}

// knows are the children whose outcome the attempt knows, a bit each.
func (s *supervisor) knows() (bits []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.children {
		if k.told != s.attempt {
			continue
		}
		if i := int(k.N / 8); i >= len(bits) {
			bits = append(bits, make([]byte, i+1-len(bits))...)
		}
		bits[k.N/8] |= 1 << (k.N % 8)
	}
	return bits
}

// recall restores which children the attempt has called, as it was saved with the checkpoint.
func (s *supervisor) recall(bits []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.children {
		if i := int(k.N / 8); i < len(bits) && bits[i]&(1<<(k.N%8)) != 0 {
			k.called, k.told = s.attempt, s.attempt
		}
	}
}

// balance brings the accounts of jobs that go on up to date: a child may have
// ended, or not been made, without its parent having noted that.
func (e *Engine) balance(ctx context.Context, left []*found) error {
	for _, f := range left {
		if f.lost || f.outcome != nil {
			continue
		}
		w, err := f.balance(ctx)
		if w != nil && err == nil {
			_, err = e.cfg.Log.Commit(ctx, w)
		}
		if err != nil {
			return fmt.Errorf("%s: account: %w", f.row.ID, err)
		}
		if w != nil {
			f.progressRev = raised(f.progressRev)
		}
	}
	return nil
}

func (f *found) balance(ctx context.Context) (*store.Write, error) {
	w := store.NewWrite(&store.AppendEvents{Job: f.row.ID, Attempt: f.attempt})
	for _, k := range slices.Clone(f.children) {
		if !k.Open {
			continue
		}
		rest, ended, err := f.e.storedRest(ctx, k)
		if err != nil {
			return nil, err
		}
		if !ended {
			continue
		}
		if _, err = f.e.cfg.Store.Job(ctx, k.Job); errors.Is(err, store.ErrNotFound) && !k.Made {
			k.struck = true
			f.children = slices.DeleteFunc(f.children, func(o *child) bool { return o == k })
		}
		f.credit(k, rest)
		rec, err := f.childRecord(k)
		if err != nil {
			return nil, err
		}
		k.rev = raised(k.rev)
		w.Put(rec)
	}
	if len(w.Ops) == 1 {
		return nil, nil
	}
	if f.auth.Budget != nil {
		f.progress.Spent = f.auth.Budget.Save()
	}
	rec, err := f.progressRecord()
	w.Put(rec)
	return w, err
}

// decide has the children of jobs that have ended cancelled, and decides about
// all: parents first, for what becomes of them decides about their children.
func decide(left []*found, now time.Time) {
	byID := make(map[arcp.JobID]*found, len(left))
	for _, f := range left {
		byID[f.row.ID] = f
	}
	order := slices.Clone(left)
	slices.SortStableFunc(order, func(a, b *found) int { return a.depth - b.depth })
	for _, f := range order {
		if f.outcome != nil {
			continue
		}
		if p := byID[f.row.Parent]; f.row.Parent != "" && !f.detach && (p == nil || p.outcome != nil) && f.progress.Cancel == nil {
			f.progress.Cancel = new(parentEnded)
		}
		f.decide(now)
	}
}

// active reports whether an attempt of a job may run. Called with e.mu.
func (e *Engine) active(id arcp.JobID) bool {
	r := e.runs[id]
	return r != nil && !r.resting
}
