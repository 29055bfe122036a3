package session

import (
	"container/list"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Log is where the sessions' writes are appended; see eventlog.Log.
type Log interface {
	Append(w *store.Write, done func(*store.Result))
	// Forget drops what is kept in memory of a session's log.
	Forget(id arcp.SessionID)
}

// Jobs are the jobs of the sessions; see engine.Engine. The methods do not block.
type Jobs interface {
	// HasJobs reports whether a session has jobs that have not ended.
	HasJobs(id arcp.SessionID) bool
	// CancelSession cancels the jobs of a session: all of them, or those that are to end
	// with its connection.
	CancelSession(id arcp.SessionID, reason string, all bool)
}

// Options of a Directory.
type Options struct {
	Store   store.Store
	Log     Log
	Catalog *tool.Catalog
	Logger  zerolog.Logger
	// Count, if set, is told of every change of the number of sessions with and without a
	// connection. It must not call the Directory.
	Count func(attached, detached int)
}

// Directory holds all sessions, with and without a connection.
type Directory struct {
	opts   Options
	jobs   Jobs
	ending []func(ctx context.Context, id arcp.SessionID) error

	ends sync.WaitGroup // of goroutines that write the end of a session

	mu        sync.Mutex
	byID      map[arcp.SessionID]*Session // also Ended, while the end is being written or an overlay is needed
	ended     map[*Session]struct{}       // those of byID that are Ended
	owners    map[string]*owner           // by principal
	approvers map[*Session]struct{}       // Attached, and may give approvals
	detached  int
}

// owner is a principal with its sessions. It exists as long as it has sessions that are
// not Ended, or overlays.
type owner struct {
	sessions     int                   // not Ended
	detached     list.List             // of *Session, the longest Detached first
	humans       map[*Session]struct{} // Attached, and take part in human input
	overlayBytes int
}

// NewDirectory returns an empty directory.
func NewDirectory(o Options) *Directory {
	if o.Count == nil {
		o.Count = func(int, int) {}
	}
	return &Directory{opts: o, byID: make(map[arcp.SessionID]*Session), ended: make(map[*Session]struct{}),
		owners: make(map[string]*owner), approvers: make(map[*Session]struct{})}
}

// Connect completes the directory with the jobs of the sessions and with what ends with a
// session: each function stages its changes in the transaction of ctx, and may be called
// again. Connect is called once, before anything is served.
func (d *Directory) Connect(jobs Jobs, ending ...func(ctx context.Context, id arcp.SessionID) error) {
	d.jobs, d.ending = jobs, ending
}

// Load reads the sessions of the store and their overlays. All are Detached as of now.
// The position of one that does not acknowledge is known if its last connection ended
// before the runtime did; else it is where that connection began, or 0.
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

func (d *Directory) ownerLocked(principal string) *owner {
	o := d.owners[principal]
	if o == nil {
		o = &owner{humans: make(map[*Session]struct{})}
		d.owners[principal] = o
	}
	return o
}

// tidyLocked drops an owner that has nothing any more.
func (d *Directory) tidyLocked(principal string) {
	if o := d.owners[principal]; o != nil && o.sessions == 0 && o.overlayBytes == 0 {
		delete(d.owners, principal)
	}
}

func (d *Directory) countLocked() {
	d.opts.Count(len(d.byID)-len(d.ended)-d.detached, d.detached)
}

func (d *Directory) addLocked(s *Session) {
	d.byID[s.ID] = s
	d.ownerLocked(s.Principal).sessions++
	d.countLocked()
}

func (d *Directory) detachLocked(s *Session, now time.Time) {
	d.unlistLocked(s)
	s.conn, s.state = nil, Detached
	s.detached = &detachment{since: now, elem: d.owners[s.Principal].detached.PushBack(s)}
	d.detached++
	d.countLocked()
}

// reattachLocked takes a session off the list of those without a connection.
func (d *Directory) reattachLocked(s *Session) {
	if s.detached != nil {
		d.owners[s.Principal].detached.Remove(s.detached.elem)
		s.detached = nil
		d.detached--
	}
}

// unlistLocked takes a session off the lists of those that can be asked.
func (d *Directory) unlistLocked(s *Session) {
	delete(d.owners[s.Principal].humans, s)
	delete(d.approvers, s)
}

// Limits of new sessions; 0: none.
type Limits struct {
	All          int
	PerPrincipal int
}

// Full is the limit that a new session exceeds.
type Full struct {
	Limit string // "sessions" or "sessions_per_principal"
	N     int
}

// Open adds a new session with its first connection. Over a limit, the session of the same
// principal that has been Detached for longest makes room and is ended; if there is none,
// full says which limit it is and nothing is added. evicted reports whether a session made
// room.
func (d *Directory) Open(id arcp.SessionID, principal string, now time.Time, acks bool, conn Conn, l Limits) (s *Session, evicted bool, full *Full) {
	d.mu.Lock()
	var oldest *Session
	if full = d.fullLocked(principal, l); full != nil {
		if oldest = d.owners[principal].longestDetached(); oldest == nil {
			d.mu.Unlock()
			return nil, false, full
		}
		d.endLocked(oldest)
	}
	s = &Session{ID: id, Principal: principal, CreatedAt: now, dir: d, conn: conn, epoch: 1, acks: acks}
	d.addLocked(s)
	d.mu.Unlock()
	if oldest != nil {
		d.writeEnd(oldest, nil)
	}
	return s, oldest != nil, nil
}

// longestDetached returns the session that has been Detached for longest, nil if none is.
func (o *owner) longestDetached() *Session {
	if o == nil || o.detached.Len() == 0 {
		return nil
	}
	return o.detached.Front().Value.(*Session)
}

func (d *Directory) fullLocked(principal string, l Limits) *Full {
	sessions := 0
	if o := d.owners[principal]; o != nil {
		sessions = o.sessions
	}
	switch {
	case l.All > 0 && len(d.byID)-len(d.ended) >= l.All:
		return &Full{"sessions", l.All}
	case l.PerPrincipal > 0 && sessions >= l.PerPrincipal:
		return &Full{"sessions_per_principal", l.PerPrincipal}
	}
	return nil
}

// Abandon removes a session whose row could not be written.
func (d *Directory) Abandon(s *Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.endLocked(s) {
		d.removeLocked(s)
	}
}

// Opened notes that the row of a new session is durable.
func (s *Session) Opened() {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	if s.state == Opened {
		s.state = Attached
	}
}

// Attach makes conn the connection of the session, unless there is a connection of a later
// epoch or the session has ended. It returns the connection before, and the position from
// which conn goes on unless the client says otherwise.
func (s *Session) Attach(conn Conn, epoch uint32) (old Conn, position uint64, ok bool) {
	d := s.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.state == Ended || s.epoch > epoch {
		return nil, 0, false
	}
	position = s.positionLocked()
	old, s.conn, s.epoch, s.state = s.conn, conn, epoch, Attached
	d.reattachLocked(s)
	d.countLocked()
	return old, position, true
}

// Detach notes that conn has ended. It reports whether the session has no connection now,
// but may be resumed.
func (s *Session) Detach(conn Conn, now time.Time) bool {
	d := s.dir
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

// Identify notes who the session is, by its connection. Another connection is ignored.
func (s *Session) Identify(conn Conn, actor approval.Actor) {
	d := s.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.conn != conn || s.state == Ended {
		return
	}
	s.actor = &actor
	d.unlistLocked(s)
	if actor.HumanInput {
		d.owners[s.Principal].humans[s] = struct{}{}
		if actor.Approver || actor.Admin {
			d.approvers[s] = struct{}{}
		}
	}
}

// EachHuman calls f for the Attached sessions of a principal that take part in human
// input. f must not call the Directory.
func (d *Directory) EachHuman(principal string, f func(*approval.Actor)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.owners[principal]; o != nil {
		for s := range o.humans {
			f(s.actor)
		}
	}
}

// EachApprover calls f for the Attached sessions that may give approvals. f must not call
// the Directory.
func (d *Directory) EachApprover(f func(*approval.Actor)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.approvers {
		f(s.actor)
	}
}

// Find returns a session, nil if there is none or it has ended.
func (d *Directory) Find(id arcp.SessionID) *Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.byID[id]; s != nil && s.state != Ended {
		return s
	}
	return nil
}

// Lives reports whether there is a session that has not ended.
func (d *Directory) Lives(id arcp.SessionID) bool { return d.Find(id) != nil }

// ConnOf returns the connection of a session, nil if there is none.
func (d *Directory) ConnOf(id arcp.SessionID) Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.byID[id]; s != nil {
		return s.conn
	}
	return nil
}

// Of returns the sessions of the principals that wanted selects.
func (d *Directory) Of(wanted func(principal string) bool) (list []*Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.byID {
		if s.state != Ended && wanted(s.Principal) {
			list = append(list, s)
		}
	}
	return list
}

// Has reports whether a principal has a session.
func (d *Directory) Has(principal string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.owners[principal]
	return o != nil && o.sessions > 0
}

// Expired returns at most n sessions that have been Detached since before a time, and when
// each was. Those of which Keep was called with a later time than now are left out.
func (d *Directory) Expired(now, before time.Time, n int) (list []Expired) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.owners {
		for el := o.detached.Front(); el != nil && len(list) < n; el = el.Next() {
			s := el.Value.(*Session)
			if !s.detached.since.Before(before) {
				break
			}
			if !now.Before(s.detached.keepUntil) {
				list = append(list, Expired{s, s.detached.since, s.acks})
			}
		}
	}
	return list
}

// Expired is a session without a connection, as Directory.Expired found it.
type Expired struct {
	*Session
	Since time.Time
	Acks  bool
}

// Keep makes Expired leave out the session until a time, or until it has been attached.
func (s *Session) Keep(until time.Time) {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	if s.detached != nil {
		s.detached.keepUntil = until
	}
}

// Sweep removes the Ended sessions. One with an overlay is kept as long as it has jobs:
// what the overlay hides stays hidden from them.
func (d *Directory) Sweep() {
	d.mu.Lock()
	ended := slices.Collect(maps.Keys(d.ended))
	d.mu.Unlock()
	for _, s := range ended {
		d.sweep(s)
	}
}

func (d *Directory) sweep(s *Session) {
	overlay := s.overlay.Load() != nil
	if overlay && d.jobs.HasJobs(s.ID) {
		return
	}
	d.mu.Lock()
	_, there := d.ended[s]
	if there = there && s.end.written; there {
		d.removeLocked(s)
	}
	d.mu.Unlock()
	if !there || !overlay {
		return
	}
	d.ends.Go(func() {
		if err := d.deleteOverlay(context.Background(), s.ID); err != nil { // the next start deletes it
			d.opts.Logger.Warn().Err(err).Str("session_id", string(s.ID)).Msg("delete the overlay of a session")
		}
	})
}

// Wait waits until the ends of sessions that are being written are durable, or will not be.
func (d *Directory) Wait() { d.ends.Wait() }

// removeLocked forgets an Ended session.
func (d *Directory) removeLocked(s *Session) {
	delete(d.byID, s.ID)
	delete(d.ended, s)
	if o := d.owners[s.Principal]; o != nil {
		o.overlayBytes -= s.Overlay().size()
		d.tidyLocked(s.Principal)
	}
}
