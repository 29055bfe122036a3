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
	Share        int // of a principal, if PerPrincipal is 0
}

// ExceededLimit is the limit that a new session exceeds.
type ExceededLimit struct {
	Limit string // "sessions" or "sessions_per_principal"
	N     int
	Share bool // it is Limits.Share
}

func (ix *index) ownerLocked(principal string) *owner {
	o := ix.owners[principal]
	if o == nil {
		o = &owner{humans: make(map[*Session]struct{})}
		ix.owners[principal] = o
	}
	return o
}

// removeUnusedOwnerLocked removes an owner without sessions and overlays.
func (ix *index) removeUnusedOwnerLocked(principal string) {
	if o := ix.owners[principal]; o != nil && o.sessions == 0 && o.overlayBytes == 0 {
		delete(ix.owners, principal)
	}
}

func (ix *index) countLocked() {
	ix.count(len(ix.byID)-len(ix.ended)-ix.detached, ix.detached)
}

func (ix *index) addLocked(s *Session) {
	ix.byID[s.ID] = s
	ix.ownerLocked(s.Principal).sessions++
	ix.countLocked()
}

func (ix *index) detachLocked(s *Session, now time.Time) {
	ix.removeResponderLocked(s)
	s.conn, s.state = nil, Detached
	s.detached = &detachment{since: now, elem: ix.owners[s.Principal].detached.PushBack(s)}
	ix.detached++
	ix.countLocked()
}

// removeDetachedLocked removes a session from the list of the Detached ones.
func (ix *index) removeDetachedLocked(s *Session) {
	if s.detached != nil {
		ix.owners[s.Principal].detached.Remove(s.detached.elem)
		s.detached = nil
		ix.detached--
	}
}

// addResponderLocked adds an Attached session to the lists of the sessions that answer questions.
func (ix *index) addResponderLocked(s *Session) {
	if s.actor == nil || !s.actor.HumanInput {
		return
	}
	ix.owners[s.Principal].humans[s] = struct{}{}
	if s.actor.Approver || s.actor.Admin {
		ix.approvers[s] = struct{}{}
	}
}

// removeResponderLocked removes a session from the lists of the sessions that answer questions.
func (ix *index) removeResponderLocked(s *Session) {
	delete(ix.owners[s.Principal].humans, s)
	delete(ix.approvers, s)
}

func (ix *index) exceededLocked(principal string, l Limits) *ExceededLimit {
	sessions := 0
	if o := ix.owners[principal]; o != nil {
		sessions = o.sessions
	}
	switch {
	case l.All > 0 && len(ix.byID)-len(ix.ended) >= l.All:
		return &ExceededLimit{Limit: "sessions", N: l.All}
	case l.PerPrincipal > 0 && sessions >= l.PerPrincipal:
		return &ExceededLimit{Limit: "sessions_per_principal", N: l.PerPrincipal}
	case l.PerPrincipal == 0 && l.Share > 0 && sessions >= l.Share:
		return &ExceededLimit{Limit: "sessions_per_principal", N: l.Share, Share: true}
	}
	return nil
}

// endLocked makes a session Ended. finishEnd evicts its connection when the end is written.
// endLocked returns false if the session was Ended before; the eviction of the first end applies.
func (ix *index) endLocked(s *Session, e Eviction) bool {
	if s.state == Ended {
		return false
	}
	ix.removeDetachedLocked(s)
	ix.removeResponderLocked(s)
	s.state, s.end = Ended, &endState{eviction: e}
	ix.ended[s] = struct{}{}
	ix.owners[s.Principal].sessions--
	ix.countLocked()
	return true
}

// undoEndLocked undoes endLocked for an end that could not be stored.
func (ix *index) undoEndLocked(s *Session, now time.Time) {
	s.end = nil
	delete(ix.ended, s)
	ix.ownerLocked(s.Principal).sessions++
	if s.conn == nil {
		ix.detachLocked(s, now)
		return
	}
	s.state = Attached
	ix.addResponderLocked(s)
	ix.countLocked()
}

// removeLocked removes an Ended session.
func (ix *index) removeLocked(s *Session) {
	delete(ix.byID, s.ID)
	delete(ix.ended, s)
	if o := ix.owners[s.Principal]; o != nil {
		o.overlayBytes -= s.Overlay().size()
		ix.removeUnusedOwnerLocked(s.Principal)
	}
}

func (ix *index) putOverlayLocked(s *Session, o Overlay) {
	ix.ownerLocked(s.Principal).overlayBytes += o.size() - s.Overlay().size()
	s.overlay.Store(&o)
}

// EachHuman calls f for the Attached sessions of a principal that take part in human
// input. f must not call the Directory.
func (ix *index) EachHuman(principal string, f func(*approval.Actor)) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if o := ix.owners[principal]; o != nil {
		for s := range o.humans {
			f(s.actor)
		}
	}
}

// EachApprover calls f for the Attached sessions that may give approvals. f must not call
// the Directory.
func (ix *index) EachApprover(f func(*approval.Actor)) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for s := range ix.approvers {
		f(s.actor)
	}
}

// Find returns a session, nil if there is none or it has ended.
func (ix *index) Find(id arcp.SessionID) *Session {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if s := ix.byID[id]; s != nil && s.state != Ended {
		return s
	}
	return nil
}

// Lives reports whether a session has not ended durably. While its end is being written, its
// records are left alone: they end in that write.
func (ix *index) Lives(id arcp.SessionID) bool {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	s := ix.byID[id]
	return s != nil && (s.state != Ended || !s.end.written)
}

// ConnOf returns the connection of a session, nil if there is none.
func (ix *index) ConnOf(id arcp.SessionID) Conn {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if s := ix.byID[id]; s != nil {
		return s.conn
	}
	return nil
}

// ByPrincipal returns the sessions of the principals that the function wanted selects.
func (ix *index) ByPrincipal(wanted func(principal string) bool) (list []*Session) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for _, s := range ix.byID {
		if s.state != Ended && wanted(s.Principal) {
			list = append(list, s)
		}
	}
	return list
}

// HasSessions reports whether a principal has a session.
func (ix *index) HasSessions(principal string) bool {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	o := ix.owners[principal]
	return o != nil && o.sessions > 0
}

// Expired returns at most n sessions that have been Detached since before a time. It leaves out a
// session for which PostponeExpiry was called with a time after now.
func (ix *index) Expired(now, before time.Time, n int) (list []Expired) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for _, o := range ix.owners {
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
