package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// sessionEntry is an item of sessions.list.
type sessionEntry struct {
	SessionID    arcp.SessionID `json:"session_id"`
	State        string         `json:"state"`
	LastEventSeq uint64         `json:"last_event_seq"`
}

// sessions lists every session of the principal, page by page.
func (c *Conn) sessions(limit int) map[arcp.SessionID]sessionEntry {
	all := map[arcp.SessionID]sessionEntry{}
	args := map[string]any{"limit": limit}
	for {
		var page struct {
			Items      []sessionEntry `json:"items"`
			NextCursor string         `json:"next_cursor"`
		}
		c.call(&page, "sessions.list", args)
		c.t.Want("a page holds no more than was asked for", len(page.Items) <= limit, "it holds %d", len(page.Items))
		for _, e := range page.Items {
			c.t.Want("a session is listed once", all[e.SessionID].SessionID == "", "%s is listed twice", e.SessionID)
			all[e.SessionID] = e
		}
		if page.NextCursor == "" {
			return all
		}
		args["cursor"] = page.NextCursor
	}
}

func sessionsList(_ context.Context, t *T) {
	c, closed := t.Open(), t.Open()
	closed.echoes(1)
	closed.close()
	all := c.sessions(1000)
	for late := t.late(); all[closed.Session].State != "detached" && time.Now().Before(late); {
		all = c.sessions(1000)
	}
	want(t, "a session with a connection is listed so", all[c.Session].State, "connected")
	want(t, "a session without a connection is listed so", all[closed.Session].State, "detached")
	want(t, "its last event is known", all[closed.Session].LastEventSeq, 3)
}

func sessionsPages(_ context.Context, t *T) {
	a, b, c := t.Open(), t.Open(), t.Open()
	all := a.sessions(7)
	for _, s := range []*Conn{a, b, c} {
		t.Want("every session is listed", all[s.Session].SessionID != "", "%s is not", s.Session)
	}
}

func sessionsOtherPrincipal(_ context.Context, t *T) {
	c, stranger := t.Open(), t.Open(as(t.target.OtherToken))
	t.Want("nobody sees another principal's sessions", stranger.sessions(1000)[c.Session].SessionID == "", "%s is listed", c.Session)
	job := stranger.Invoke("sessions.evict", map[string]any{"session_id": c.Session})
	t.wantCode("what one may not see is not there", job.End(), arcp.CodeNotFound)
	c.ExpectNothing("the session is not touched")
}

// evict ends the connection of other, or its session, which is told.
func (c *Conn) evict(other *Conn, forget bool) {
	var result struct {
		Evicted bool `json:"evicted"`
	}
	c.call(&result, "sessions.evict", map[string]any{"session_id": other.Session, "reason": "conformance", "forget": forget})
	want(c.t, "there was such a session", result.Evicted, true)
	f := other.Expect("its client is told", arcp.SessionEvicted, "")
	want(c.t, "and why", payload[arcp.SessionEvictedPayload](c.t, f).Reason, "conformance")
	other.ExpectClosed("and loses the connection", transport.ClosePolicy)
}

func sessionsEvict(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	c.evict(other, false)
	other.Resume(0).echoes(1)
}

func sessionsEvictForget(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	c.evict(other, true)
	d := other.redial()
	d.ExpectNoResume("an evicted session is gone", d.askResume(other.rec.token, 0))
	t.Want("and is not listed", c.sessions(1000)[other.Session].SessionID == "", "it is")
}

func sessionsEvictUnknown(_ context.Context, t *T) {
	c := t.Open()
	for _, id := range []string{"sess_00000000000000000000000000", "nobody"} {
		t.wantCode("what is not there cannot be ended", c.Invoke("sessions.evict", map[string]any{"session_id": id}).End(), arcp.CodeNotFound)
	}
}

// lives is when the session of a connection ends if nothing is heard of it.
func (c *Conn) lives() time.Time {
	lease := c.Accepted.Lease
	c.t.Want("session.accepted has a lease", lease != nil, "it is absent")
	return lease.ExpiresAt
}

func sessionsLease(_ context.Context, t *T) {
	c := t.Open()
	first := c.lives()
	t.Want("a session lives for a while", time.Until(first) > time.Second, "until %v", first)
	c.Drop()
	again := c.Reopen()
	t.Want("who comes back has a new lease", again.lives().After(first), "it ended at %v, and now at %v", first, again.lives())
}

func sessionsTrust(_ context.Context, t *T) {
	level := t.Open().Accepted.Runtime.TrustLevel
	t.Want("a level of trust is one of four", slices.Contains([]string{"untrusted", "constrained", "trusted", "privileged"}, level), "it is %q", level)
}
