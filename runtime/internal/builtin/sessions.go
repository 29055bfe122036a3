package builtin

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

type sessionsListIn struct {
	Limit  int    `json:"limit,omitzero" jsonschema:"description=sessions of a page,minimum=1,maximum=1000"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the previous page"`
}

type sessionsEvictIn struct {
	SessionID arcp.SessionID `json:"session_id" jsonschema:"description=the session to evict"`
	Forget    bool           `json:"forget,omitzero" jsonschema:"description=also end the session so that it cannot be resumed"`
	Reason    string         `json:"reason,omitzero" jsonschema:"description=reason for the client,maxLength=256"`
}

type sessionsEvicted struct {
	Evicted bool `json:"evicted"`
}

type sessionTools struct {
	store    store.Store
	sessions *session.Directory
	changes  txn.Committer
	cursors  *paging.Cursors
	metrics  *metrics.Metrics
	audit    audit.Log
	logger   zerolog.Logger
}

func (t *sessionTools) register(r *registrar) {
	register(r, readTool("sessions.list", "the sessions that the caller may observe, the oldest first"), r.callers.find, t.list)
	register(r, writeTool("sessions.evict",
		"closes the connection of a session of the caller, or ends the session; an admin may evict any session"),
		r.callers.find, t.evict)
}

// list handles sessions.list. It omits sessions without a row.
func (t *sessionTools) list(ctx context.Context, caller *Caller, in sessionsListIn) (arcp.Page[arcp.SessionView], error) {
	request := paging.Request{Scope: "sessions\x00" + caller.Principal, Cursor: in.Cursor, Limit: in.Limit}
	return paging.Page(t.cursors, request, func(after string, add paging.Add[arcp.SessionView]) error {
		list := t.sessions.ByPrincipal(caller.Observes)
		slices.SortFunc(list, compareSessions)
		at, id := paging.ParseTimeKey(after)
		from := &session.Session{ID: arcp.SessionID(id), CreatedAt: at}
		for _, s := range list {
			if compareSessions(s, from) <= 0 {
				continue
			}
			item, err := t.describe(ctx, s)
			if err != nil {
				return err
			}
			size := 0
			if item != nil {
				size = len(item.ClientKind)
			}
			if !add(paging.TimeKey(s.CreatedAt, string(s.ID)), size, item) {
				break
			}
		}
		return nil
	})
}

func compareSessions(a, b *session.Session) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
}

// describe returns the view of a session; nil: its row is deleted or not written yet.
func (t *sessionTools) describe(ctx context.Context, s *session.Session) (*arcp.SessionView, error) {
	row, err := t.store.Session(ctx, s.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v := &arcp.SessionView{SessionID: s.ID, Principal: s.Principal, State: arcp.SessionConnected, CreatedAt: s.CreatedAt.UTC(),
		LastEventSeq: row.LastSeq, AckedSeq: row.TrimmedTo, ClientKind: row.ClientKind}
	if since, detached := s.DetachedSince(); detached {
		v.State, v.DetachedAt = arcp.SessionDetached, since.UTC()
	} else if c := s.Conn(); c != nil {
		v.Transport, v.Remote = c.Transport()
	}
	return v, nil
}

// evict handles sessions.evict. The session of another principal is NOT_FOUND, except for an
// admin. The connection is closed when the write of the call is durable.
func (t *sessionTools) evict(ctx context.Context, caller *Caller, in sessionsEvictIn) (sessionsEvicted, error) {
	unknown := arcp.Errorf(arcp.CodeNotFound, "no such session: %s", in.SessionID)
	s := t.sessions.Find(in.SessionID)
	if s == nil {
		return sessionsEvicted{}, unknown
	}
	decision := "allowed"
	if !caller.Admin && s.Principal != caller.Principal {
		decision = "denied"
	}
	t.audit.Event("evict", caller.Principal, caller.Session).Str("job_id", string(caller.Job.ID())).Str("target", string(in.SessionID)).
		Str("owner", s.Principal).Str("decision", decision).Msg("audit")
	if decision == "denied" {
		return sessionsEvicted{}, unknown
	}
	eviction := session.Eviction{Code: arcp.CodeCancelled, Reason: cmp.Or(in.Reason, "evicted")}
	count := t.metrics.Evictions.WithLabelValues("evicted").Inc
	var err error
	if in.Forget {
		if s.ID != caller.Session { // whose claims wait for the call
			t.sessions.AwaitClaims(ctx, s)
		}
		err = t.sessions.EndWithCall(ctx, s, eviction, count)
	} else {
		err = t.changes.Commit(ctx, nil, func(err error) {
			if err != nil {
				return
			}
			count()
			if c := s.Conn(); c != nil {
				c.Evict(eviction)
			}
		})
	}
	if err != nil {
		return sessionsEvicted{}, txn.Refusal(t.logger, err, "end a session")
	}
	return sessionsEvicted{true}, nil
}
