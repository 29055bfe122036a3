package conn

import (
	"bytes"
	"slices"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

// principal is the authenticated identity of the client, with values derived from it.
type principal struct {
	c         *conn
	identity  auth.Identity
	program   *Program     // nil: the runtime did not start the peer
	lease     *lease.Lease // decoded from leaseText
	leaseText []byte
	roles     []string // see roleNames
}

// leaseLimit returns the lease that bounds the principal's jobs; nil: there is none. A lease that
// cannot be decoded allows nothing.
func (p *principal) leaseLimit(log *zerolog.Logger) *lease.Lease {
	if len(p.identity.Lease) == 0 {
		return nil
	}
	if !bytes.Equal(p.leaseText, p.identity.Lease) {
		l, err := lease.Decode(p.identity.Lease)
		if err != nil {
			log.Error().Err(err).Str("principal", p.identity.Principal).Msg("the lease of a principal cannot be read: its jobs may do nothing")
			l = lease.Nothing()
		}
		p.leaseText, p.lease = p.identity.Lease, l
	}
	return p.lease
}

// roleNames returns the roles of the principal as strings. The slice is shared and must not be
// changed.
func (p *principal) roleNames() []string {
	same := func(name string, role auth.Role) bool { return name == string(role) }
	if p.roles == nil || !slices.EqualFunc(p.roles, p.identity.Roles, same) {
		p.roles = make([]string, len(p.identity.Roles))
		for i, role := range p.identity.Roles {
			p.roles[i] = string(role)
		}
	}
	return p.roles
}

// trust returns the current trust level of the session, with its elevation.
func (p *principal) trust() arcp.TrustLevel { return p.c.session.Trust(p.identity.Trust) }

// actor returns the actor of the session.
func (p *principal) actor() approval.Actor {
	return actor.Of(&p.identity, p.c.id, p.c.session.negotiated(arcp.FeatureHumanInput))
}

// mayObserve reports whether the client may observe a principal.
func (p *principal) mayObserve(principal string) bool {
	if principal == p.identity.Principal {
		return true
	}
	viewer := p.actor()
	return viewer.Observes(principal)
}

// updateActor sets the actor of the session, and offers pending questions and jobs to it. It ends
// follows of jobs that the actor may not observe.
func (p *principal) updateActor() {
	if p.c.session.Session == nil { // the connection is still attaching
		return
	}
	actor := p.actor()
	p.c.session.SetActor((*sessionConn)(p.c), actor)
	p.c.srv.opts.Questions.SessionAttached(actor)
	p.c.worker.offer(actor)
	p.c.follows.endUnobserved()
}

// audit begins an audit record of an action of the client on another session or its jobs.
func (p *principal) audit(action string) *zerolog.Event {
	return p.c.srv.opts.Audit.Event(action, p.identity.Principal, p.c.id)
}
