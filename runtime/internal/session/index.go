package session

import (
	"container/list"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// index finds sessions by id, by principal, and by state. The caller of a function named …Locked
// holds mu. Functions that are passed to the index must not call it.
type index struct {
	count func(attached, detached int)

	mu        sync.Mutex
	byID      map[arcp.SessionID]*Session // with the Ended sessions whose end is being written or whose overlay is in use
	ended     map[*Session]struct{}       // the Ended sessions of byID
	owners    map[string]*owner           // by principal
	approvers map[*Session]struct{}       // Attached, and may give approvals
	detached  int
}

// owner is a principal with its sessions. It exists as long as it has sessions that are not
// Ended, or overlays.
type owner struct {
	sessions     int                   // not Ended
	detached     list.List             // of *Session, in the order of their detachment
	humans       map[*Session]struct{} // Attached, and take part in human input
	overlayBytes int
}

// Limits of new sessions; 0: none.
type Limits struct {
	All          int
	PerPrincipal int
}

// ExceededLimit is the limit that a new session exceeds.
type ExceededLimit struct {
	Limit string // "sessions" or "sessions_per_principal"
	N     int
}

func (x *index) ownerLocked(principal string) *owner {
	o := x.owners[principal]
	if o == nil {
		o = &owner{humans: make(map[*Session]struct{})}
		x.owners[principal] = o
	}
	return o
}

// removeUnusedOwnerLocked removes an owner without sessions and overlays.
func (x *index) removeUnusedOwnerLocked(principal string) {
	if o := x.owners[principal]; o != nil && o.sessions == 0 && o.overlayBytes == 0 {
		delete(x.owners, principal)
	}
}

func (x *index) countLocked() {
	x.count(len(x.byID)-len(x.ended)-x.detached, x.detached)
}

func (x *index) addLocked(s *Session) {
	x.byID[s.ID] = s
	x.ownerLocked(s.Principal).sessions++
	x.countLocked()
}

func (x *index) detachLocked(s *Session, now time.Time) {
	x.removeResponderLocked(s)
	s.conn, s.state = nil, Detached
	s.detached = &detachment{since: now, elem: x.owners[s.Principal].detached.PushBack(s)}
	x.detached++
	x.countLocked()
}

// removeDetachedLocked removes a session from the list of the Detached ones.
func (x *index) removeDetachedLocked(s *Session) {
	if s.detached != nil {
		x.owners[s.Principal].detached.Remove(s.detached.elem)
		s.detached = nil
		x.detached--
	}
}

// addResponderLocked adds an Attached session to the lists of the sessions that answer questions.
func (x *index) addResponderLocked(s *Session) {
	if s.actor == nil || !s.actor.HumanInput {
		return
	}
	x.owners[s.Principal].humans[s] = struct{}{}
	if s.actor.Approver || s.actor.Admin {
		x.approvers[s] = struct{}{}
	}
}

// removeResponderLocked removes a session from the lists of the sessions that answer questions.
func (x *index) removeResponderLocked(s *Session) {
	delete(x.owners[s.Principal].humans, s)
	delete(x.approvers, s)
}

func (x *index) exceededLocked(principal string, l Limits) *ExceededLimit {
	sessions := 0
	if o := x.owners[principal]; o != nil {
		sessions = o.sessions
	}
	switch {
	case l.All > 0 && len(x.byID)-len(x.ended) >= l.All:
		return &ExceededLimit{"sessions", l.All}
	case l.PerPrincipal > 0 && sessions >= l.PerPrincipal:
		return &ExceededLimit{"sessions_per_principal", l.PerPrincipal}
	}
	return nil
}

// endLocked makes a session Ended. finishEnd evicts its connection when the end is written.
// endLocked returns false if the session was Ended before; the eviction of the first end applies.
func (x *index) endLocked(s *Session, e Eviction) bool {
	if s.state == Ended {
		return false
	}
	x.removeDetachedLocked(s)
	x.removeResponderLocked(s)
	s.state, s.end = Ended, &ending{eviction: e}
	x.ended[s] = struct{}{}
	x.owners[s.Principal].sessions--
	x.countLocked()
	return true
}

// undoEndLocked undoes endLocked for an end that could not be stored.
func (x *index) undoEndLocked(s *Session, now time.Time) {
	s.end = nil
	delete(x.ended, s)
	x.ownerLocked(s.Principal).sessions++
	if s.conn == nil {
		x.detachLocked(s, now)
		return
	}
	s.state = Attached
	x.addResponderLocked(s)
	x.countLocked()
}

// removeLocked removes an Ended session.
func (x *index) removeLocked(s *Session) {
	delete(x.byID, s.ID)
	delete(x.ended, s)
	if o := x.owners[s.Principal]; o != nil {
		o.overlayBytes -= s.Overlay().size()
		x.removeUnusedOwnerLocked(s.Principal)
	}
}

func (x *index) putOverlayLocked(s *Session, o Overlay) {
	x.ownerLocked(s.Principal).overlayBytes += o.size() - s.Overlay().size()
	s.overlay.Store(&o)
}

// EachHuman calls f for the Attached sessions of a principal that take part in human
// input. f must not call the Directory.
func (x *index) EachHuman(principal string, f func(*approval.Actor)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if o := x.owners[principal]; o != nil {
		for s := range o.humans {
			f(s.actor)
		}
	}
}

// EachApprover calls f for the Attached sessions that may give approvals. f must not call
// the Directory.
func (x *index) EachApprover(f func(*approval.Actor)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for s := range x.approvers {
		f(s.actor)
	}
}

// Find returns a session, nil if there is none or it has ended.
func (x *index) Find(id arcp.SessionID) *Session {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.byID[id]; s != nil && s.state != Ended {
		return s
	}
	return nil
}

// Lives reports whether a session has not ended durably. While its end is being written, its
// records are left alone: they end in that write.
func (x *index) Lives(id arcp.SessionID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.byID[id]
	return s != nil && (s.state != Ended || !s.end.written)
}

// ConnOf returns the connection of a session, nil if there is none.
func (x *index) ConnOf(id arcp.SessionID) Conn {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.byID[id]; s != nil {
		return s.conn
	}
	return nil
}

// ByPrincipal returns the sessions of the principals that the function wanted selects.
func (x *index) ByPrincipal(wanted func(principal string) bool) (list []*Session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.byID {
		if s.state != Ended && wanted(s.Principal) {
			list = append(list, s)
		}
	}
	return list
}

// HasSessions reports whether a principal has a session.
func (x *index) HasSessions(principal string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.owners[principal]
	return o != nil && o.sessions > 0
}

// Expired returns at most n sessions that have been Detached since before a time. It leaves out a
// session for which PostponeExpiry was called with a time after now.
func (x *index) Expired(now, before time.Time, n int) (list []Expired) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range x.owners {
		for el := o.detached.Front(); el != nil && len(list) < n; el = el.Next() {
			s := el.Value.(*Session)
			if !s.detached.since.Before(before) {
				break
			}
			if !now.Before(s.detached.notBefore) {
				list = append(list, Expired{s, s.detached.since, s.acks})
			}
		}
	}
	return list
}

// Expired is a Detached session, as Directory.Expired found it.
type Expired struct {
	*Session
	Since time.Time // of the detachment
	Acks  bool
}

// longestDetached returns the session that has been Detached for longest, nil if none is.
func (o *owner) longestDetached() *Session {
	if o == nil || o.detached.Len() == 0 {
		return nil
	}
	return o.detached.Front().Value.(*Session)
}
