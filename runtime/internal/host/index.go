package host

import (
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// index has the agents and the latest events in memory. It follows the store in the order of
// the commits: a snapshot and the events behind it fit together exactly. Functions named
// …Locked need mu.
type index struct {
	count func(s Status, n int)

	mu         sync.Mutex
	principals map[string]*principal
	sessions   map[arcp.SessionID]*owner
	counts     map[Status]int
	bytes      int // of all agents, with the reserved ones
	ringBytes  int // of all events
}

// principal has the agents and events of one principal.
type principal struct {
	agents map[string]sizedAgent // by id, as they were committed
	bytes  int
	ring   ring

	reserved, reservedBytes int // agents that are being registered
	watchers                int
	users                   int // watchers and reservations: drop leaves the principal alone
}

// sizedAgent is an agent with the size of its row.
type sizedAgent struct {
	Agent
	size int
}

// owner is a session with agents, or with reservations. It is derived from the rows of the
// agents, which outlive the connection and the object of the session.
type owner struct {
	principal string
	agents    map[string]struct{}
	reserved  int
}

// reservation is the space of an agent that is being registered. Its end is either the commit
// of the agent or a release.
type reservation struct {
	principal     *principal
	session       arcp.SessionID
	agents, bytes int // of the principal
	ofSession     int
}

func (x *index) principalLocked(name string) *principal {
	p := x.principals[name]
	if p == nil {
		p = &principal{agents: make(map[string]sizedAgent)}
		x.principals[name] = p
	}
	return p
}

func (x *index) ownerLocked(a *Agent) *owner {
	o := x.sessions[a.Session]
	if o == nil {
		o = &owner{principal: a.Principal, agents: make(map[string]struct{})}
		x.sessions[a.Session] = o
	}
	return o
}

func (x *index) tidyOwnerLocked(id arcp.SessionID) {
	if o := x.sessions[id]; o != nil && o.reserved == 0 && len(o.agents) == 0 {
		delete(x.sessions, id)
	}
}

// setLocked replaces an agent by its stored row; nil: it was deleted.
func (x *index) setLocked(name, id string, a *Agent, size int) {
	p := x.principalLocked(name)
	if old, ok := p.agents[id]; ok {
		p.bytes -= old.size
		x.bytes -= old.size
		delete(p.agents, id)
		if o := x.sessions[old.Session]; o != nil {
			delete(o.agents, id)
			x.tidyOwnerLocked(old.Session)
		}
		x.countLocked(old.Status, -1)
	}
	if a == nil {
		return
	}
	p.bytes += size
	x.bytes += size
	p.agents[id] = sizedAgent{*a, size}
	if a.EndedAt.IsZero() {
		x.ownerLocked(a).agents[id] = struct{}{}
	}
	x.countLocked(a.Status, 1)
}

func (x *index) countLocked(s Status, d int) {
	x.counts[s] += d
	x.count(s, x.counts[s])
}

// reserve reserves space for an agent, or refuses it. oldest is the agent whose deletion may
// make space, nil if there is none.
func (x *index) reserve(a *Agent, size int) (r *reservation, oldest *Agent, full *arcp.Error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p, o := x.principalLocked(a.Principal), x.ownerLocked(a)
	defer x.tidyOwnerLocked(a.Session)
	r = &reservation{principal: p, session: a.Session, bytes: size, agents: 1, ofSession: 1}
	if old, there := p.agents[a.ID]; there {
		r.agents, r.bytes = 0, max(0, size-old.size)
	}
	if _, again := o.agents[a.ID]; again {
		r.ofSession = 0
	}
	switch {
	case len(o.agents)+o.reserved+r.ofSession > maxOfSession:
		return nil, nil, arcp.Errorf(arcp.CodeResourceExhausted, "the session has %d agents already; unregister some", maxOfSession)
	case len(p.agents)+p.reserved+r.agents > maxOfPrincipal:
		full = arcp.Errorf(arcp.CodeResourceExhausted, "%s has %d agents already; unregister some", a.Principal, maxOfPrincipal)
	case p.bytes+p.reservedBytes+r.bytes > maxBytes:
		full = arcp.Errorf(arcp.CodeResourceExhausted, "the agents of %s take more than %d bytes; unregister some, or say less about them", a.Principal, maxBytes)
	case x.bytes+r.bytes > maxAllBytes:
		full = arcp.Errorf(arcp.CodeResourceExhausted, "all agents together take more than %d bytes", maxAllBytes).RetryAfter(60)
		for _, p := range x.principals {
			oldest = p.oldest(oldest, a)
		}
		return nil, oldest, full
	default:
		p.users++
		p.reserved += r.agents
		p.reservedBytes += r.bytes
		x.bytes += r.bytes
		o.reserved += r.ofSession
		return r, nil, nil
	}
	return nil, p.oldest(nil, a), full
}

// release ends a reservation. It does nothing after the commit of the agent.
func (x *index) release(r *reservation) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.releaseLocked(r)
}

func (x *index) releaseLocked(r *reservation) {
	p := r.principal
	if p == nil {
		return
	}
	p.users--
	p.reserved -= r.agents
	p.reservedBytes -= r.bytes
	x.bytes -= r.bytes
	if o := x.sessions[r.session]; o != nil {
		o.reserved -= r.ofSession
		x.tidyOwnerLocked(r.session)
	}
	*r = reservation{}
}

func (x *index) happen(name string, e Event, withLocked func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if withLocked != nil {
		withLocked()
	}
	x.addLocked(x.principalLocked(name), e)
}

func (x *index) addLocked(p *principal, e Event) {
	before := p.ring.bytes
	p.ring.add(e)
	for x.ringBytes+p.ring.bytes-before > maxRingsBytes && p.ring.bytes > fairRingBytes && len(p.ring.events) > 1 {
		p.ring.drop()
	}
	x.ringBytes += p.ring.bytes - before
}

// Agents returns the agents of a principal in the order of Compare.
func (x *index) Agents(name string) []Agent {
	x.mu.Lock()
	var list []Agent
	if p := x.principals[name]; p != nil {
		list = p.list()
	}
	x.mu.Unlock()
	slices.SortFunc(list, Compare) // without the lock
	return list
}

// All returns the agents of all principals that have an owner.
func (x *index) All() (list []Agent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.principals {
		for _, k := range p.agents {
			if k.EndedAt.IsZero() {
				list = append(list, k.Agent)
			}
		}
	}
	return list
}

// Events returns the last events of a principal, the newest first.
func (x *index) Events(principal string, n int) []Event {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.principals[principal]; p != nil {
		return p.ring.latest(n)
	}
	return nil
}

// HasAgents reports whether a session has agents.
func (x *index) HasAgents(id arcp.SessionID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sessions[id] != nil
}

func (x *index) ofSession(id arcp.SessionID) (list []*Agent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.sessions[id]
	if o == nil {
		return nil
	}
	for aid := range o.agents {
		list = append(list, new(x.principals[o.principal].agents[aid].Agent))
	}
	return list
}

func (x *index) owners() (ids []arcp.SessionID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.sessions {
		ids = append(ids, id)
	}
	return ids
}

func (x *index) ended(before time.Time) (list []*Agent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.principals {
		for _, k := range p.agents {
			if !k.EndedAt.IsZero() && k.EndedAt.Before(before) {
				list = append(list, new(k.Agent))
			}
		}
	}
	return list
}

func (x *index) unwatched() (names []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, p := range x.principals {
		if p.users == 0 {
			names = append(names, name)
		}
	}
	return names
}

// drop deletes the events of a principal without users, and the principal if it has no agents.
func (x *index) drop(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.principals[name]
	if p == nil || p.users > 0 {
		return
	}
	x.ringBytes -= p.ring.bytes
	p.ring.clear()
	if len(p.agents) == 0 {
		delete(x.principals, name)
	}
}

// Subscribe returns the present state with at most n events, and a subscription to exactly the
// events behind it. The caller closes the subscription.
func (x *index) Subscribe(principal string, n int) (*Subscription, Snapshot, *arcp.Error) {
	s, list, refused := x.subscribe(principal, n)
	slices.SortFunc(list.Agents, Compare)
	return s, list, refused
}

func (x *index) subscribe(principal string, n int) (*Subscription, Snapshot, *arcp.Error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.principalLocked(principal)
	if p.watchers >= maxWatchers {
		return nil, Snapshot{}, arcp.Errorf(arcp.CodeResourceExhausted, "%s has %d subscriptions to its host already; cancel some", principal, maxWatchers).RetryAfter(1)
	}
	p.watchers++
	p.users++
	return &Subscription{x, p, p.ring.next}, Snapshot{p.list(), p.ring.latest(n)}, nil
}

// oldest returns the agent whose session ended first, among the agents of p and than. It never
// returns the agent that is about to be registered.
func (p *principal) oldest(than, coming *Agent) *Agent {
	for _, k := range p.agents {
		if k.EndedAt.IsZero() || k.ID == coming.ID && k.Principal == coming.Principal {
			continue
		}
		if than == nil || k.EndedAt.Before(than.EndedAt) {
			than = new(k.Agent)
		}
	}
	return than
}

func (p *principal) list() []Agent {
	list := make([]Agent, 0, len(p.agents))
	for _, k := range p.agents {
		list = append(list, k.Agent)
	}
	return list
}
