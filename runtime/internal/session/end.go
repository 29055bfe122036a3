package session

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// endAttempts bounds the attempts to write the end of a session that fail with a conflict.
const endAttempts = 8

// errEnded is the error of an addition to a session that has ended.
var errEnded = arcp.Errorf(arcp.CodeFailedPrecondition, "the session has ended")

// DeferEnd delays the end of a session until release is called, once. A record that ends with the
// session is added between the two calls: the caller reads the old record after DeferEnd, and calls
// release when the new one is durable or refused. The write that ends the session then ends the
// record, too.
//
// DeferEnd waits while the end of the session is being written. It refuses an ended session with
// FAILED_PRECONDITION. A transaction calls DeferEnd once for a session. The caller holds no lock
// that the end of the session needs.
func (d *Directory) DeferEnd(ctx context.Context, id arcp.SessionID) (release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.byID[id]
	for s != nil && s.state != Ended && s.endHeld {
		if err := s.waitLocked(ctx); err != nil {
			return nil, err
		}
	}
	if s == nil || s.state == Ended {
		return nil, errEnded
	}
	s.deferrals++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		s.deferrals--
		s.notifyLocked()
	}, nil
}

// AwaitEnd waits while the end of a session is being written, and reports whether the session has
// ended durably. The caller holds no lock that the end of the session needs.
func (d *Directory) AwaitEnd(ctx context.Context, id arcp.SessionID) (ended bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.byID[id]
	for s != nil && s.state == Ended && !s.end.written {
		if err := s.waitLocked(ctx); err != nil {
			return false, err
		}
	}
	return s == nil || s.state == Ended, nil
}

// lockEnd waits until no call of DeferEnd is open and no other goroutine writes an end of the session.
// It excludes both until unlockEnd.
func (s *Session) lockEnd(ctx context.Context) error {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	for s.endHeld {
		if err := s.waitLocked(ctx); err != nil {
			return err
		}
	}
	s.endHeld = true
	for s.deferrals > 0 {
		if err := s.waitLocked(ctx); err != nil {
			s.endHeld = false
			s.notifyLocked()
			return err
		}
	}
	return nil
}

// unlockEnd ends the exclusion when the end is durable or has failed.
func (s *Session) unlockEnd() {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	s.endHeld = false
	s.notifyLocked()
}

// waitLocked waits for notifyLocked. It releases the lock meanwhile.
func (s *Session) waitLocked(ctx context.Context) error {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	changed := s.changed
	s.dir.mu.Unlock()
	defer s.dir.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// notifyLocked wakes the callers of waitLocked.
func (s *Session) notifyLocked() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// End ends a session: no connection attaches to it again, also after a crash. All records that
// belong to the session end in the same write. Jobs that end with its connection are cancelled.
//
// done, if set, is called once: with nil when the end is durable, on the committer's goroutine,
// or with the reason why the end cannot be stored; the session then lives on. If the session has
// ended already, done is called with nil when that end is durable. After the durable end the
// connection of the session is evicted. With a zero Eviction the connection answers
// session.close and closes itself.
func (d *Directory) End(s *Session, e Eviction, done func(error)) {
	d.mu.Lock()
	first := d.endLocked(s, e)
	waits := done != nil && !s.end.written
	if waits {
		s.end.waiters = append(s.end.waiters, done)
	}
	d.mu.Unlock()
	switch {
	case first:
		d.writeEnd(s)
	case done != nil && !waits:
		done(nil)
	}
}

// EndDetached is End for a session that has been Detached since a time without interruption. For
// another one it returns false and does not call done.
func (d *Directory) EndDetached(s *Session, since time.Time, done func(error)) bool {
	d.mu.Lock()
	ok := s.detached != nil && s.detached.since.Equal(since) && d.endLocked(s, Eviction{})
	if ok && done != nil {
		s.end.waiters = append(s.end.waiters, done)
	}
	d.mu.Unlock()
	if ok {
		d.writeEnd(s)
	}
	return ok
}

// EndWithCall ends a session in the transaction of ctx. The session lives until the transaction
// is durable. Then its connection is evicted, and done is called on the committer's goroutine.
// Until the transaction is decided, DeferEnd waits.
func (d *Directory) EndWithCall(ctx context.Context, s *Session, e Eviction, done func()) error {
	if err := s.lockEnd(ctx); err != nil {
		return err
	}
	if s.State() == Ended {
		s.unlockEnd()
		return errEnded
	}
	if err := d.stageEnd(ctx, s); err != nil {
		s.unlockEnd()
		return err
	}
	txn.From(ctx).Add(txn.Change{Write: store.NewWrite(&store.EndSession{Session: s.ID}), Done: func(err error) {
		if err == nil {
			d.mu.Lock()
			d.endLocked(s, e)
			d.mu.Unlock()
			d.finishEnd(s)
			done()
		}
		s.unlockEnd()
	}})
	return nil
}

// claimWait is how long the end of a session waits for the claims of the session's submits. It is less than
// the time in which a client expects the answer to session.close. A call of a built-in tool may take long:
// it may wait for the end of another session, and that end for this one. A provisioner of credentials may
// take long, too. Then the store refuses the jobs.
const claimWait = time.Second

// AwaitClaims waits until the claims of all submits of a session up to now have their positions in the log,
// at most a second. The store refuses the jobs of a session that has ended.
func (d *Directory) AwaitClaims(ctx context.Context, s *Session) {
	ctx, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	d.jobs.AwaitClaims(ctx, s.ID)
}

// writeEnd writes the end of a session after endLocked.
func (d *Directory) writeEnd(s *Session) {
	d.endWriters.Go(func() {
		d.AwaitClaims(context.Background(), s)
		_ = s.lockEnd(context.Background()) // only the end of the context is an error
		defer s.unlockEnd()
		if d.endWritten(s) {
			return
		}
		for range endAttempts {
			var t txn.Txn
			if err := d.stageEnd(txn.With(context.Background(), &t), s); err != nil {
				d.opts.Logger.Error().Err(err).Str("session_id", string(s.ID)).Msg("read the records that end with a session; they end later")
				t.Finish(err)
				break
			}
			if err := d.commitEnd(&t, s); !errors.Is(err, store.ErrConflict) {
				d.endFailed(s, err)
				return
			}
		}
		d.endFailed(s, d.commitEnd(new(txn.Txn), s)) // the janitor ends the records of the session
	})
}

// endWritten reports whether a call has ended the session meanwhile.
func (d *Directory) endWritten(s *Session) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.end.written
}

// stageEnd stages the end of all records that belong to a session in the transaction of ctx.
func (d *Directory) stageEnd(ctx context.Context, s *Session) error {
	for _, end := range d.endHooks {
		if err := end(ctx, s); err != nil {
			return err
		}
	}
	if s.overlay.Load() == nil || d.jobs.Has(s.ID) {
		return nil
	}
	return d.deleteOverlay(ctx, s.ID)
}

// commitEnd commits the end of a session with the staged changes.
func (d *Directory) commitEnd(t *txn.Txn, s *Session) error {
	t.Add(txn.Change{Write: store.NewWrite(&store.EndSession{Session: s.ID})})
	w, _ := t.Combine(nil)
	result := make(chan error, 1)
	t.Append(d.opts.Log, w, func(res *store.Result) {
		err := txn.ErrorOf(res)
		t.Finish(err)
		if err == nil {
			d.finishEnd(s)
		}
		result <- err
	})
	return <-result
}

// endFailed logs that the end of a session could not be stored, and lets the session live on. It
// does nothing for a nil error.
func (d *Directory) endFailed(s *Session, err error) {
	if err == nil {
		return
	}
	d.opts.Logger.Error().Err(err).Str("session_id", string(s.ID)).Msg("store the end of a session")
	d.mu.Lock()
	waiters := s.end.waiters
	d.undoEndLocked(s, time.Now())
	d.mu.Unlock()
	for _, done := range waiters {
		done(err)
	}
}

// finishEnd cancels the jobs of a session whose end is durable, calls the waiters, and evicts the
// connection: a waiter that answers on the same connection answers before the eviction.
func (d *Directory) finishEnd(s *Session) {
	d.mu.Lock()
	end, conn := *s.end, s.conn
	*s.end = endState{written: true}
	d.mu.Unlock()
	d.jobs.CancelOnDisconnect(s.ID, "session ended")
	// After the events that are being delivered to the session.
	d.jobs.EndStreams(s.ID)
	d.opts.Log.Append(&store.Write{NoSync: true}, func(*store.Result) { d.opts.Log.Forget(s.ID) })
	for _, done := range end.waiters {
		done(nil)
	}
	if conn != nil && end.eviction != (Eviction{}) {
		conn.Evict(end.eviction)
	}
	d.sweep(s)
}
