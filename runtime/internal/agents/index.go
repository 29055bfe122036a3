package agents

import (
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// index holds the agents and the latest events in memory. It changes in the order of the commits.
// The caller of a function named …Locked holds mu.
type index struct {
	count func(s Status, n int)

	mu         sync.Mutex
	principals map[string]*principalState
	counts     map[Status]int              // by shown status
	away       map[arcp.SessionID]struct{} // sessions whose agents are shown as Disconnected
	bytes      int                         // of all agents, with the reserved ones
	ringBytes  int                         // of all events
}

// principalState has the agents and events of one principal.
type principalState struct {
	agents        map[string]sizedAgent // by id, as they were committed
	bytes         int                   // of agents
	ring          ring
	reservations  map[*reservation]struct{}
	subscriptions int // open ones
}

// sizedAgent is an agent with the size of its row.
type sizedAgent struct {
	Agent
	size int
}

// reservation is the space of an agent that is being registered. It ends with the commit of the
// agent, or with a release.
type reservation struct {
	principal     *principalState // nil: the reservation has ended
	session       arcp.SessionID
	agents, bytes int // additional ones of the principal
	ofSession     int // additional agents of the session
}

func (ix *index) principalLocked(principal string) *principalState {
	p := ix.principals[principal]
	if p == nil {
		p = &principalState{agents: make(map[string]sizedAgent), reservations: make(map[*reservation]struct{})}
		ix.principals[principal] = p
	}
	return p
}

// setLocked replaces an agent by its stored row; nil: it was deleted.
func (ix *index) setLocked(principal, id string, a *Agent, size int) {
	p := ix.principalLocked(principal)
	if old, ok := p.agents[id]; ok {
		p.bytes -= old.size
		ix.bytes -= old.size
		delete(p.agents, id)
		ix.countLocked(ix.shownLocked(&old.Agent), -1)
	}
	if a == nil {
		return
	}
	p.bytes += size
	ix.bytes += size
	p.agents[id] = sizedAgent{*a, size}
	ix.countLocked(ix.shownLocked(a), 1)
}

// shownLocked returns the status of an agent that the counts have.
func (ix *index) shownLocked(a *Agent) Status {
	if _, away := ix.away[a.Session]; away && a.IsLive() {
		return Disconnected
	}
	return a.Status
}

// SetAway counts the live agents of a session as Disconnected from now on, or by their own status. It reports
// whether that is a change.
func (ix *index) SetAway(principal string, id arcp.SessionID, away bool) bool {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if _, before := ix.away[id]; before == away {
		return false
	}
	change := 1 // of the number of disconnected agents for each agent
	if away {
		ix.away[id] = struct{}{}
	} else {
		delete(ix.away, id)
		change = -1
	}
	live := map[Status]int{} // by their own status
	for _, a := range ix.principalLocked(principal).agents {
		if a.Session == id && a.IsLive() {
			live[a.Status]++
		}
	}
	for s, n := range live {
		ix.countLocked(s, -change*n)
		ix.countLocked(Disconnected, change*n)
	}
	return true
}

func (ix *index) countLocked(s Status, d int) {
	ix.counts[s] += d
	ix.count(s, ix.counts[s])
}

// reserve reserves space for an agent, or refuses it. oldest is the agent whose deletion may
// make space, nil if there is none.
func (ix *index) reserve(a *Agent, size int) (r *reservation, oldest *Agent, full *arcp.Error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	p := ix.principalLocked(a.Principal)
	r = &reservation{principal: p, session: a.Session, bytes: size, agents: 1, ofSession: 1}
	if old, ok := p.agents[a.ID]; ok {
		r.agents, r.bytes = 0, max(0, size-old.size)
		if old.Session == a.Session && old.EndedAt.IsZero() {
			r.ofSession = 0
		}
	}
	agents, bytes := len(p.agents)+r.agents, p.bytes+r.bytes
	for other := range p.reservations {
		agents, bytes = agents+other.agents, bytes+other.bytes
	}
	switch {
	case p.ofSession(a.Session)+r.ofSession > maxOfSession:
		return nil, nil, arcp.Errorf(arcp.CodeResourceExhausted, "the session has %d agents already; unregister some", maxOfSession)
	case agents > maxOfPrincipal:
		full = arcp.Errorf(arcp.CodeResourceExhausted, "%s has %d agents already; unregister some", a.Principal, maxOfPrincipal)
	case bytes > maxBytes:
		full = arcp.Errorf(arcp.CodeResourceExhausted,
			"the agents of %s take more than %d bytes; unregister some, or say less about them", a.Principal, maxBytes)
	case ix.bytes+r.bytes > maxAllBytes:
		full = arcp.Errorf(arcp.CodeResourceExhausted, "all agents together take more than %d bytes", maxAllBytes).RetryAfter(60)
		for _, p := range ix.principals {
			oldest = p.oldest(oldest, a)
		}
		return nil, oldest, full
	default:
		p.reservations[r] = struct{}{}
		ix.bytes += r.bytes
		return r, nil, nil
	}
	return nil, p.oldest(nil, a), full
}

// ofSession returns the number of agents that a session owns, with the reserved ones.
func (p *principalState) ofSession(id arcp.SessionID) (n int) {
	for _, a := range p.agents {
		if a.Session == id && a.EndedAt.IsZero() {
			n++
		}
	}
	for r := range p.reservations {
		if r.session == id {
			n += r.ofSession
		}
	}
	return n
}

// release ends a reservation. It does nothing after the commit of the agent.
func (ix *index) release(r *reservation) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.releaseLocked(r)
}

func (ix *index) releaseLocked(r *reservation) {
	if r.principal == nil {
		return
	}
	delete(r.principal.reservations, r)
	ix.bytes -= r.bytes
	r.principal = nil
}

// addToRing adds durable events to the ring of a principal. withLocked, if set, changes the
// agents together with the ring.
func (ix *index) addToRing(principal string, events []Event, withLocked func()) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if withLocked != nil {
		withLocked()
	}
	p := ix.principalLocked(principal)
	before := p.ring.bytes
	for _, e := range events {
		p.ring.add(e)
	}
	for ix.ringBytes+p.ring.bytes-before > maxRingsBytes && p.ring.bytes > fairRingBytes && len(p.ring.events) > 1 {
		p.ring.drop()
	}
	ix.ringBytes += p.ring.bytes - before
}

// Agents returns the agents of a principal in the order of Compare.
func (ix *index) Agents(principal string) []Agent {
	ix.mu.Lock()
	var list []Agent
	if p := ix.principals[principal]; p != nil {
		list = p.list()
	}
	ix.mu.Unlock()
	slices.SortFunc(list, Compare) // without the lock
	return list
}

// All returns the agents of all principals that have an owner.
func (ix *index) All() (list []Agent) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for _, p := range ix.principals {
		for _, a := range p.agents {
			if a.EndedAt.IsZero() {
				list = append(list, a.Agent)
			}
		}
	}
	return list
}

// AgentsOf returns the agents of the selected principals in any order, also those whose session has ended.
func (ix *index) AgentsOf(selects func(principal string) bool) (list []Agent) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for name, p := range ix.principals {
		if !selects(name) {
			continue
		}
		for _, a := range p.agents {
			list = append(list, a.Agent)
		}
	}
	return list
}

// Events returns the last events of a principal, the newest first.
func (ix *index) Events(principal string, n int) []Event {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if p := ix.principals[principal]; p != nil {
		return p.ring.latest(n)
	}
	return nil
}

// OwnedBy returns the agents that a session of a principal owns.
func (ix *index) OwnedBy(principal string, id arcp.SessionID) (list []*Agent) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	p := ix.principals[principal]
	if p == nil {
		return nil
	}
	for _, a := range p.agents {
		if a.Session == id && a.EndedAt.IsZero() {
			list = append(list, new(a.Agent))
		}
	}
	return list
}

// owners returns the sessions that own agents, with their principals.
func (ix *index) owners() map[arcp.SessionID]string {
	owners := make(map[arcp.SessionID]string)
	for _, a := range ix.All() {
		owners[a.Session] = a.Principal
	}
	return owners
}

// endedBefore returns the agents whose sessions ended before a time.
func (ix *index) endedBefore(before time.Time) (list []*Agent) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for _, p := range ix.principals {
		for _, a := range p.agents {
			if !a.EndedAt.IsZero() && a.EndedAt.Before(before) {
				list = append(list, new(a.Agent))
			}
		}
	}
	return list
}

// idlePrincipals returns the principals without subscriptions and reservations.
func (ix *index) idlePrincipals() (principals []string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for principal, p := range ix.principals {
		if p.isIdle() {
			principals = append(principals, principal)
		}
	}
	return principals
}

func (p *principalState) isIdle() bool { return p.subscriptions == 0 && len(p.reservations) == 0 }

// dropEvents deletes the events of an idle principal, and its state if it has no agents.
func (ix *index) dropEvents(principal string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	p := ix.principals[principal]
	if p == nil || !p.isIdle() {
		return
	}
	ix.ringBytes -= p.ring.bytes
	p.ring.clear()
	if len(p.agents) == 0 {
		delete(ix.principals, principal)
	}
}

// Subscribe returns the present state with at most n events, and a subscription to exactly the
// events behind it. The caller closes the subscription.
func (ix *index) Subscribe(principal string, n int) (*Subscription, Snapshot, *arcp.Error) {
	sub, snapshot, refused := ix.subscribe(principal, n)
	slices.SortFunc(snapshot.Agents, Compare) // without the lock
	return sub, snapshot, refused
}

func (ix *index) subscribe(principal string, n int) (*Subscription, Snapshot, *arcp.Error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	p := ix.principalLocked(principal)
	if p.subscriptions >= maxSubscriptions {
		return nil, Snapshot{}, arcp.Errorf(arcp.CodeResourceExhausted,
			"%s has %d subscriptions to its host already; cancel some", principal, maxSubscriptions).RetryAfter(1)
	}
	p.subscriptions++
	return &Subscription{ix, p, p.ring.next}, Snapshot{p.list(), p.ring.latest(n)}, nil
}

// oldest returns the agent whose session ended first, among the agents of p and other, which
// may be nil. It never returns the agent next, which is being registered.
func (p *principalState) oldest(other, next *Agent) *Agent {
	for _, a := range p.agents {
		if a.EndedAt.IsZero() || a.ID == next.ID && a.Principal == next.Principal {
			continue
		}
		if other == nil || a.EndedAt.Before(other.EndedAt) {
			other = new(a.Agent)
		}
	}
	return other
}

func (p *principalState) list() []Agent {
	list := make([]Agent, 0, len(p.agents))
	for _, a := range p.agents {
		list = append(list, a.Agent)
	}
	return list
}
