package engine

import "sync"

// handoffLocks keep handoffs, and the creation of children, of a principal apart: a supervisor takes part in one
// handoff at a time, and no child waits for its parent while that waits for the handoff. The zero value is
// ready to use.
type handoffLocks struct {
	mu          sync.Mutex
	byPrincipal map[string]*handoffLock // those in use
}

type handoffLock struct {
	users     int           // holders and waiters
	wanted    int           // handoffs that wait: no other creation begins
	held      bool          // by a handoff
	creations int           // that have begun
	changed   chan struct{} // closed at the next change
}

// beginHandoff waits for the handoff and the creations of the principal in progress.
func (hl *handoffLocks) beginHandoff(principal string) (end func()) {
	hl.mu.Lock()
	defer hl.mu.Unlock()
	l := hl.use(principal)
	l.wanted++
	for l.held || l.creations > 0 {
		hl.wait(l)
	}
	l.wanted--
	l.held = true
	return func() { hl.release(principal, func() { l.held = false }) }
}

// beginCreation waits for the handoffs of the principal.
func (hl *handoffLocks) beginCreation(principal string) (end func()) {
	hl.mu.Lock()
	defer hl.mu.Unlock()
	l := hl.use(principal)
	for l.held || l.wanted > 0 {
		hl.wait(l)
	}
	l.creations++
	return func() { hl.release(principal, func() { l.creations-- }) }
}

func (hl *handoffLocks) use(principal string) *handoffLock {
	l := hl.byPrincipal[principal]
	if l == nil {
		l = &handoffLock{changed: make(chan struct{})}
		if hl.byPrincipal == nil {
			hl.byPrincipal = make(map[string]*handoffLock)
		}
		hl.byPrincipal[principal] = l
	}
	l.users++
	return l
}

func (hl *handoffLocks) wait(l *handoffLock) {
	changed := l.changed
	hl.mu.Unlock()
	<-changed
	hl.mu.Lock()
}

func (hl *handoffLocks) release(principal string, change func()) {
	hl.mu.Lock()
	defer hl.mu.Unlock()
	l := hl.byPrincipal[principal]
	change()
	if l.users--; l.users == 0 {
		delete(hl.byPrincipal, principal)
		return
	}
	close(l.changed)
	l.changed = make(chan struct{})
}
