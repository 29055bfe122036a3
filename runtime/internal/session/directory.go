package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/store"
)

// Log appends the writes of sessions; see eventlog.Log.
type Log interface {
	Append(w *store.Write, done func(*store.Result))
	// Forget drops the log of a session from memory.
	Forget(id arcp.SessionID)
}

// Jobs finds and cancels the jobs of sessions; see engine.SessionJobs. Only AwaitClaims blocks.
type Jobs interface {
	// Has reports whether a session has jobs that have not ended.
	Has(id arcp.SessionID) bool
	// AwaitClaims waits until the claims of all submits of a session up to now have their positions
	// in the log, or until ctx ends.
	AwaitClaims(context.Context, arcp.SessionID)
	// EndStreams ends the streams that a session writes to jobs.
	EndStreams(id arcp.SessionID)
	// CancelOnDisconnect cancels the jobs of a session that end with its connection.
	CancelOnDisconnect(id arcp.SessionID, reason string)
}

// Options of a Directory.
type Options struct {
	Store   store.Store
	Log     Log
	Catalog *catalog.Catalog
	Logger  zerolog.Logger
	// OnCount, if set, receives the numbers of sessions with and without a connection after
	// each change. It must not call the Directory.
	OnCount func(attached, detached int)
	// OnConnection, if set, is called after a connection was attached to a session, and after the
	// session was Detached. The connection may have changed again by then. It must not block.
	OnConnection func(s *Session, connected bool)
}

// Directory holds all sessions, with and without a connection. It is the only place where
// sessions begin and end.
type Directory struct {
	index
	opts     Options
	jobs     Jobs
	endHooks []func(ctx context.Context, s *Session) error

	endWriters sync.WaitGroup // goroutines that write the end of a session
}

// NewDirectory returns an empty directory.
func NewDirectory(o Options) *Directory {
	if o.OnCount == nil {
		o.OnCount = func(int, int) {}
	}
	if o.OnConnection == nil {
		o.OnConnection = func(*Session, bool) {}
	}
	return &Directory{opts: o, index: index{count: o.OnCount, byID: make(map[arcp.SessionID]*Session), ended: make(map[*Session]struct{}),
		owners: make(map[string]*owner), approvers: make(map[*Session]struct{})}}
}

// Connect sets the jobs of the sessions, and functions that end the records of a session. Each
// function stages its changes in the transaction of ctx, and may be called again. Records are
// added with DeferEnd. Connect is called once, before anything is served.
func (d *Directory) Connect(jobs Jobs, hooks ...func(ctx context.Context, s *Session) error) {
	d.jobs, d.endHooks = jobs, hooks
}

// Load reads the sessions of the store and their overlays. All are Detached as of now.
// A session without acknowledgements has the position at which its last connection ended. If
// the runtime ended first, it has the position at which the connection began, or 0.
func (d *Directory) Load(ctx context.Context, now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.opts.Store.Sessions(ctx, func(row store.Session) bool {
		s := &Session{ID: row.ID, Principal: row.Principal, CreatedAt: row.CreatedAt, dir: d, epoch: row.Epoch, acks: row.Acks}
		if !row.Acks {
			s.position = row.Written
		}
		d.addLocked(s)
		d.detachLocked(s, now)
		return true
	})
	if err != nil {
		return fmt.Errorf("load sessions: %w", err)
	}
	if err := d.loadOverlaysLocked(ctx); err != nil {
		return fmt.Errorf("load overlays: %w", err)
	}
	return nil
}

// OpenParams describes a new session.
type OpenParams struct {
	ID        arcp.SessionID
	Principal string
	Now       time.Time
	Acks      bool // the client acknowledges events
	Conn      Conn // its first connection
	Limits    Limits
}

// Open adds a new session with its first connection. Over a limit it ends the session of the same
// principal that has been Detached for longest; evicted reports that. If the principal has no
// Detached session, nothing is added and full is the limit.
func (d *Directory) Open(p OpenParams) (s *Session, evicted bool, full *ExceededLimit) {
	d.mu.Lock()
	var oldest *Session
	if full = d.exceededLocked(p.Principal, p.Limits); full != nil {
		if oldest = d.owners[p.Principal].longestDetached(); oldest == nil {
			d.mu.Unlock()
			return nil, false, full
		}
		d.endLocked(oldest, Eviction{}) // Detached: there is no connection
	}
	s = &Session{ID: p.ID, Principal: p.Principal, CreatedAt: p.Now, dir: d, conn: p.Conn, epoch: 1, acks: p.Acks}
	d.addLocked(s)
	d.mu.Unlock()
	if oldest != nil {
		d.writeEnd(oldest)
	}
	return s, oldest != nil, nil
}

// Abandon removes a session whose row could not be written.
func (d *Directory) Abandon(s *Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.endLocked(s, Eviction{}) {
		d.removeLocked(s)
	}
}

// MarkAttached sets the state after the row of a new session has been stored.
func (s *Session) MarkAttached() {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	if s.state == Opened {
		s.state = Attached
	}
}

// Attach makes conn the connection of the session, unless there is a connection of a later
// epoch or the session has ended. It returns the previous connection, and the position from
// which conn continues unless the client names another one.
func (s *Session) Attach(conn Conn, epoch uint32) (old Conn, position uint64, ok bool) {
	if old, position, ok = s.dir.attach(s, conn, epoch); ok {
		s.dir.opts.OnConnection(s, true)
	}
	return old, position, ok
}

func (d *Directory) attach(s *Session, conn Conn, epoch uint32) (old Conn, position uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.state == Ended || s.epoch > epoch {
		return nil, 0, false
	}
	position = s.positionLocked()
	old, s.conn, s.epoch, s.state = s.conn, conn, epoch, Attached
	d.removeDetachedLocked(s)
	d.countLocked()
	return old, position, true
}

// Detach removes a connection that has ended. It returns true if the session is Detached now.
func (s *Session) Detach(conn Conn, now time.Time) bool {
	detached := s.dir.detach(s, conn, now)
	if detached {
		s.dir.opts.OnConnection(s, false)
	}
	return detached
}

func (d *Directory) detach(s *Session, conn Conn, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.conn != conn {
		return false
	}
	s.position = conn.Position()
	if s.state == Ended {
		s.conn = nil
		return false
	}
	d.detachLocked(s, now)
	return true
}

// SetActor sets the actor of the session. Connections other than the current one are ignored.
func (s *Session) SetActor(conn Conn, actor approval.Actor) {
	d := s.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.conn != conn || s.state == Ended {
		return
	}
	s.actor, s.actorStale = &actor, false
	d.removeResponderLocked(s)
	d.addResponderLocked(s)
}

// InvalidateActors makes Actor of every session return false until the next SetActor. The rights of
// principals may have changed, and a Detached session has no connection that checks them again.
func (d *Directory) InvalidateActors() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.byID {
		s.actorStale = true
	}
}

// PostponeExpiry makes Expired leave out the session until a time, or until a connection attaches.
func (s *Session) PostponeExpiry(until time.Time) {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	if s.detached != nil {
		s.detached.notBefore = until
	}
}

// Sweep removes the Ended sessions. A session with an overlay and jobs stays: the overlay hides
// tools from the jobs.
func (d *Directory) Sweep() {
	d.mu.Lock()
	ended := slices.Collect(maps.Keys(d.ended))
	d.mu.Unlock()
	for _, s := range ended {
		d.sweep(s)
	}
}

// sweep removes a session if it is Ended and not used any more, with its overlay.
func (d *Directory) sweep(s *Session) {
	overlay := s.overlay.Load() != nil
	if overlay && d.jobs.Has(s.ID) {
		return
	}
	d.mu.Lock()
	_, ended := d.ended[s]
	if ended = ended && s.end.written; ended {
		d.removeLocked(s)
	}
	d.mu.Unlock()
	if !ended || !overlay {
		return
	}
	d.endWriters.Go(func() {
		if err := d.deleteOverlay(context.Background(), s.ID); err != nil { // the next start deletes it
			d.opts.Logger.Warn().Err(err).Str("session_id", string(s.ID)).Msg("delete the overlay of a session")
		}
	})
}

// WaitEnds waits until the ends of sessions that are being written are durable or have failed.
func (d *Directory) WaitEnds() { d.endWriters.Wait() }
