package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// sessionLease is what a connection knows of its session's lease beside the machine
// (SPEC.md §5.1).
type sessionLease struct {
	worked time.Time      // when an event went out last
	fresh  *auth.Identity // judged good, and not yet the session's
	spare  bool           // the token before was renewed here: no frame says that the client has the new one
}

// advance tells the machine that time has passed, and before what it does not
// see. Most turns it has nothing to do.
func (c *conn) advance(now time.Time) {
	d := c.m.Deadline()
	if d.IsZero() || now.Before(d) {
		return
	}
	if c.m.Phase() == machine.Accepted {
		c.m.Notice(machine.Signs{Received: c.heardLast(now), Worked: c.workedLast(now)})
	}
	c.m.Advance(now)
}

// heardLast is when the peer gave its last sign of life. Of a local one that no
// ping reaches it is now: the operating system says when it is gone.
func (c *conn) heardLast(now time.Time) time.Time {
	if info := c.tc.Info(); info.Local && !info.Pings && !c.keepalive.messages {
		return now
	}
	return c.tc.LastSeen()
}

// workedLast is when the session last had something to do or to wait for.
func (c *conn) workedLast(now time.Time) time.Time {
	if len(c.feeds.list) > 0 || len(c.forwarded.follows) > 0 || c.srv.opts.Engine.HasJobs(c.id) {
		return now
	}
	return c.lease.worked
}

// evicted counts and records that the machine evicted the session.
func (c *conn) evicted(cause machine.Cause, reason string) {
	c.srv.opts.Metrics.Evictions.WithLabelValues(string(cause)).Inc()
	c.srv.auditEviction(c.id, reason)
}

// auditEviction records an eviction by the runtime itself.
func (s *Server) auditEviction(id arcp.SessionID, reason string) {
	s.opts.Audit.Event("evict", "runtime", "").Str("target", string(id)).Str("decision", "allowed").Str("reason", reason).Msg("audit")
}

// reauthenticate judges a fresh credential. That may take a while, in which the
// session goes on.
func (c *conn) reauthenticate(now time.Time, q machine.Reauthenticate) {
	if q.Scheme == "" {
		q.Scheme = c.principal.identity.Scheme
	}
	r := c.request(now, q.Authenticate)
	judging := c.tasks.beginJudgement()
	c.async(func() {
		j := c.srv.judge(judging, r, q.Challenge, q.Response)
		c.complete(func(now time.Time) {
			if c.tasks.endJudgement() {
				c.rejudge(now, q, j)
			}
		})
	})
}

func (c *conn) rejudge(now time.Time, q machine.Reauthenticate, j credentialDecision) {
	if j.err == nil && j.challenge == "" {
		j.err = c.principal.identity.Yields(j.identity)
	}
	if j.err == nil && j.challenge == "" { // the configuration may have changed meanwhile
		j.identity, j.err = c.srv.opts.Auth.Again(j.identity, c.request(now, q.Authenticate))
	}
	answer := machine.CredentialDecision{Challenge: j.challenge.Reveal()}
	switch {
	case j.err != nil:
		answer.Refused = c.refusedCredential(q.Scheme, j.err)
		if q.Challenge != "" {
			answer.Challenge = auth.NewChallenge().Reveal()
		}
	case j.challenge == "":
		c.lease.fresh = &j.identity
		answer.Identity = identityOf(&j.identity)
	}
	c.m.Rejudge(now, answer)
}

// renew stores the fresh credential as that of the session, with a new resume token. The
// token before stays valid until the client sends a frame on a connection made with either: no
// frame on this connection shows that the client has the new one.
func (c *conn) renew() {
	c.principal.identity, c.lease.fresh = *c.lease.fresh, nil
	c.opening.scheme = c.principal.identity.Scheme
	c.identify()
	token := newResumeToken(c.id)
	c.lease.spare = true
	c.row.PrevHashes, c.row.TokenHash = [][32]byte{c.row.TokenHash}, auth.HashToken(token)
	c.row.Identity = encodeIdentity(&c.principal.identity)
	row := c.row
	c.pending.owed.Add(1)
	c.srv.opts.Log.Append(store.NewWrite(&store.PutSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		if err == nil {
			c.session.ClearHeard(row.Epoch)
		}
		c.settle()
		c.complete(func(now time.Time) { c.renewed(now, token, err) })
	})
}

func (c *conn) renewed(now time.Time, token auth.Secret, err error) {
	if err != nil {
		c.srv.opts.Logger.Error().Err(err).Str("session_id", string(c.id)).Msg("fresh credential not stored")
		c.m.Renewed(now, machine.Established{Refused: arcp.Errorf(arcp.CodeUnavailable, "the store does not accept sessions").RetryAfter(1)})
		return
	}
	c.srv.opts.Logger.Info().Str("session_id", string(c.id)).Str("principal", c.principal.identity.Principal).Str("scheme", schemeLabel(c.opening.scheme)).
		Msg("credential renewed")
	c.m.Renewed(now, machine.Established{ResumeToken: token.Reveal(), Agents: c.agents()})
}

// Reauthenticate judges the identity of every session with a connection again; see
// runtime.Runtime.
func (s *Server) Reauthenticate() {
	for _, c := range s.connections() {
		c.inbox.post(recheck{})
	}
}

// causeRevoked is the label of such an eviction.
const causeRevoked = machine.Cause("credential_revoked")

func (c *conn) recheck(now time.Time) {
	if p := c.m.Phase(); p != machine.Accepted && p != machine.Establishing || c.principal.identity.Principal == "" {
		return // its credential is still to be judged
	}
	info := c.tc.Info()
	id, err := c.srv.opts.Auth.Again(c.principal.identity, auth.Request{Local: info.Local, PeerUID: info.PeerUID, PeerCerts: info.PeerCerts, Now: now})
	if err != nil {
		why, _ := refusal(err)
		c.evicted(causeRevoked, why.Message)
		c.m.Evict(arcp.CodeUnauthenticated, why.Message)
		return
	}
	c.principal.identity = id
	c.m.Identify(*identityOf(&id))
	c.tools.stale = true // it may be trusted more, or less
	c.identify()
}

// refusedCredential counts and logs a fresh credential that was not accepted.
func (c *conn) refusedCredential(scheme string, err error) *machine.Refusal {
	r, reason := refusal(err)
	c.srv.opts.Metrics.AuthFailures.WithLabelValues(schemeLabel(scheme), reason).Inc()
	c.srv.opts.Logger.Warn().Err(err).Str("session_id", string(c.id)).Str("principal", c.principal.identity.Principal).
		Str("scheme", schemeLabel(scheme)).Msg("fresh credential refused")
	return r
}
