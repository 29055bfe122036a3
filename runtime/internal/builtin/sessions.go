package builtin

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// sessionsListIn are the arguments of sessions.list.
type sessionsListIn struct {
	Limit  int    `json:"limit,omitzero" jsonschema:"description=sessions a page,minimum=1,maximum=1000"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the page before"`
}

// sessionsEvictIn are the arguments of sessions.evict.
type sessionsEvictIn struct {
	SessionID string `json:"session_id" jsonschema:"description=the session whose connection is ended"`
	Forget    bool   `json:"forget,omitzero" jsonschema:"description=end the session as well: it cannot be resumed"`
	Reason    string `json:"reason,omitzero" jsonschema:"description=told to its client,maxLength=256"`
}

type sessionsEvicted struct {
	Evicted bool `json:"evicted"`
}

var errNoCaller = errors.New("a built-in tool needs a caller")

func (b *Tools) sessionsList(ctx context.Context, job tool.Job, in sessionsListIn) (page arcp.Page[arcp.SessionView], err error) {
	who, err := b.caller(job)
	if err != nil {
		return page, err
	}
	list := b.Sessions.Of(who.Observes)
	slices.SortFunc(list, compareSessions)
	bound := []byte("sessions\x00" + who.Principal)
	if in.Cursor != "" {
		at, id, ok := b.Cursors.OpenTime(in.Cursor, bound)
		if !ok {
			return page, paging.ErrCursor()
		}
		from := &session.Session{ID: arcp.SessionID(id), CreatedAt: at}
		i, found := slices.BinarySearchFunc(list, from, compareSessions)
		if found {
			i++
		}
		list = list[i:]
	}
	limit := cmp.Or(in.Limit, paging.DefaultLen)
	page.Items = []arcp.SessionView{}
	for i := range list {
		if len(page.Items) == limit {
			last := list[i-1]
			page.NextCursor = b.Cursors.SealTime(last.CreatedAt, string(last.ID), bound)
			break
		}
		d, err := b.describe(ctx, list[i])
		if errors.Is(err, store.ErrNotFound) {
			continue // it has ended, or is being made
		}
		if err != nil {
			return page, err
		}
		page.Items = append(page.Items, d)
	}
	return page, nil
}

func compareSessions(a, b *session.Session) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
}

func (b *Tools) describe(ctx context.Context, s *session.Session) (arcp.SessionView, error) {
	row, err := b.Store.Session(ctx, s.ID)
	if err != nil {
		return arcp.SessionView{}, err
	}
	d := arcp.SessionView{SessionID: s.ID, Principal: s.Principal, State: arcp.SessionConnected, CreatedAt: s.CreatedAt.UTC(),
		LastEventSeq: row.LastSeq, AckedSeq: row.TrimmedTo, ClientKind: row.ClientKind}
	if since, detached := s.DetachedSince(); detached {
		d.State, d.DetachedAt = arcp.SessionDetached, since.UTC()
	} else if c := s.Conn(); c != nil {
		d.Transport, d.Remote = c.Transport()
	}
	return d, nil
}

func (b *Tools) sessionsEvict(ctx context.Context, job tool.Job, in sessionsEvictIn) (sessionsEvicted, error) {
	who, err := b.caller(job)
	if err != nil {
		return sessionsEvicted{}, err
	}
	id := arcp.SessionID(in.SessionID)
	s := b.Sessions.Find(id)
	if s == nil {
		return sessionsEvicted{}, arcp.Errorf(arcp.CodeNotFound, "no such session: %s", in.SessionID)
	}
	decision := "allowed"
	if !who.Admin && s.Principal != who.Principal {
		decision = "denied"
	}
	b.Audit.Event("evict", who.Principal, who.Session).Str("job_id", string(job.ID())).Str("target", in.SessionID).
		Str("owner", s.Principal).Str("decision", decision).Msg("audit")
	if decision == "denied" {
		return sessionsEvicted{}, arcp.Errorf(arcp.CodeNotFound, "no such session: %s", in.SessionID)
	}
	evict := func() { b.evicted(s, cmp.Or(in.Reason, "evicted")) }
	if in.Forget {
		err = b.Sessions.EndWithCall(ctx, s, evict)
	} else {
		err = b.Changes.Commit(ctx, nil, func(err error) {
			if err == nil {
				evict()
			}
		})
	}
	if err != nil {
		return sessionsEvicted{}, txn.Refusal(b.Logger, err, "end a session")
	}
	return sessionsEvicted{true}, nil
}

// evicted counts an eviction, and closes the connection of the session if it has one.
func (b *Tools) evicted(s *session.Session, reason string) {
	b.Metrics.Evictions.WithLabelValues("evicted").Inc()
	if c := s.Conn(); c != nil {
		c.Evict(arcp.CodeCancelled, reason)
	}
}
