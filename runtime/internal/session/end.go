package session

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of the end of a session.
const (
	endAttempts = 8               // attempts that end with a conflict
	endTimeout  = 5 * time.Second // for the reads of an attempt
)

// End ends a session: no connection attaches to it again, also after a crash. Whatever belongs
// to the session ends in the same write. Jobs that end with its connection are cancelled. done,
// if set, is called once on the committer's goroutine: with nil when the end is durable, or with
// an error. If the session has ended already, done is called with nil when that end is durable.
// After done the connection of the session is evicted. With a zero Eviction the connection
// answers session.close and closes itself.
func (d *Directory) End(s *Session, e Eviction, done func(error)) {
	d.mu.Lock()
	first := d.endLocked(s, e)
	if !first && done != nil && !s.end.written {
		s.end.waiters = append(s.end.waiters, done)
		done = nil
	}
	d.mu.Unlock()
	switch {
	case first:
		d.writeEnd(s, done)
	case done != nil:
		done(nil)
	}
}

// EndDetached is End for a session that has been Detached since a time without interruption. For
// another one it returns false and does not call done.
func (d *Directory) EndDetached(s *Session, since time.Time, done func(error)) bool {
	d.mu.Lock()
	ok := s.detached != nil && s.detached.since.Equal(since) && d.endLocked(s, Eviction{})
	d.mu.Unlock()
	if ok {
		d.writeEnd(s, done)
	}
	return ok
}

// EndWithCall ends a session in the transaction of ctx. The session lives until the transaction
// is durable. Then its connection is evicted, and done is called on the committer's goroutine.
func (d *Directory) EndWithCall(ctx context.Context, s *Session, e Eviction, done func()) error {
	t := txn.From(ctx)
	if err := d.stageEnd(ctx, s); err != nil {
		return err
	}
	t.Add(txn.Change{Write: store.NewWrite(&store.EndSession{Session: s.ID}), Done: func(err error) {
		if err != nil {
			return
		}
		d.mu.Lock()
		d.endLocked(s, e)
		d.mu.Unlock()
		d.finishEnd(s, nil)
		done()
		d.ends.Go(func() { d.endLate(s) })
	}})
	return nil
}

// endLate ends whatever was added to a session between the staging and the commit of its end. It
// needs a second write: the transaction may be abandoned, so until the commit the session lives
// and may not refuse anything.
func (d *Directory) endLate(s *Session) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := d.stageEnd(ctx, s); err != nil {
		d.opts.Logger.Warn().Err(err).Str("session_id", string(s.ID)).Msg("end what was added to a session that has ended; it ends later")
	}
}

// writeEnd writes the end of a session after endLocked.
func (d *Directory) writeEnd(s *Session, done func(error)) {
	if done != nil {
		d.mu.Lock()
		s.end.waiters = append(s.end.waiters, done)
		d.mu.Unlock()
	}
	d.ends.Go(func() {
		for range endAttempts {
			var t txn.Txn
			if err := d.gatherEnd(&t, s); err != nil {
				d.opts.Logger.Error().Err(err).Str("session_id", string(s.ID)).Msg("read what ends with a session; it ends later")
				t.Settle(err)
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

// gatherEnd stages the end of whatever belongs to a session.
func (d *Directory) gatherEnd(t *txn.Txn, s *Session) error {
	ctx, cancel := context.WithTimeout(txn.With(context.Background(), t), endTimeout)
	defer cancel()
	return d.stageEnd(ctx, s)
}

// stageEnd stages the end of whatever belongs to a session in the transaction of ctx.
func (d *Directory) stageEnd(ctx context.Context, s *Session) error {
	for _, end := range d.ending {
		if err := end(ctx, s.ID); err != nil {
			return err
		}
	}
	if s.overlay.Load() == nil || d.jobs.HasJobs(s.ID) {
		return nil
	}
	return d.deleteOverlay(ctx, s.ID)
}

// commitEnd commits the end of a session with the staged changes.
func (d *Directory) commitEnd(t *txn.Txn, s *Session) error {
	t.Add(txn.Change{Write: store.NewWrite(&store.EndSession{Session: s.ID})})
	w, _ := t.Join(nil)
	result := make(chan error, 1)
	t.Append(d.opts.Log, w, func(res *store.Result) {
		err := txn.ErrorOf(res)
		t.Settle(err)
		if err == nil {
			d.finishEnd(s, nil)
		}
		result <- err
	})
	return <-result
}

// endFailed logs that the end of a session could not be stored. After a restart the session is
// back. A nil error is not logged.
func (d *Directory) endFailed(s *Session, err error) {
	if err != nil {
		d.opts.Logger.Error().Err(err).Str("session_id", string(s.ID)).Msg("store the end of a session")
		d.finishEnd(s, err)
	}
}

// finishEnd cancels the jobs of a session that has ended, calls the waiters, and evicts the
// connection: a waiter that answers on the same connection answers before the eviction.
func (d *Directory) finishEnd(s *Session, err error) {
	d.mu.Lock()
	end, conn := *s.end, s.conn
	*s.end = ending{written: true}
	d.mu.Unlock()
	d.jobs.CancelSession(s.ID, "session ended", false)
	// After the events that are being delivered to the session.
	d.opts.Log.Append(&store.Write{NoSync: true}, func(*store.Result) { d.opts.Log.Forget(s.ID) })
	for _, done := range end.waiters {
		done(err)
	}
	if conn != nil && end.eviction != (Eviction{}) {
		conn.Evict(end.eviction)
	}
	d.sweep(s)
}
