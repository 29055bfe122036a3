package runtime

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
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

func (r *Runtime) sessionsList(ctx context.Context, job tool.Job, in sessionsListIn) (page arcp.Page[arcp.SessionView], err error) {
	who, err := r.caller(job)
	if err != nil {
		return page, err
	}
	list := r.members.of(who.Observes)
	slices.SortFunc(list, compareMembers)
	bound := []byte("sessions\x00" + who.Principal)
	if in.Cursor != "" {
		at, id, ok := r.openCursor(in.Cursor, bound)
		if !ok {
			return page, errCursor()
		}
		from := member{id: arcp.SessionID(id), created: at}
		i, found := slices.BinarySearchFunc(list, from, compareMembers)
		if found {
			i++
		}
		list = list[i:]
	}
	limit := cmp.Or(in.Limit, defaultPage)
	page.Items = []arcp.SessionView{}
	for i := range list {
		if len(page.Items) == limit {
			last := list[i-1]
			page.NextCursor = r.sealCursor(last.created, arcp.JobID(last.id), bound)
			break
		}
		d, err := r.describe(ctx, &list[i])
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

func compareMembers(a, b member) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.id, b.id))
}

func (r *Runtime) describe(ctx context.Context, e *member) (arcp.SessionView, error) {
	row, err := r.cfg.Store.Session(ctx, e.id)
	if err != nil {
		return arcp.SessionView{}, err
	}
	d := arcp.SessionView{SessionID: e.id, Principal: e.principal, State: arcp.SessionConnected, CreatedAt: e.created.UTC(),
		LastEventSeq: row.LastSeq, AckedSeq: row.TrimmedTo, ClientKind: row.ClientKind}
	if e.conn == nil {
		d.State, d.DetachedAt = arcp.SessionDetached, e.since.UTC()
		return d, nil
	}
	info := e.conn.tc.Info()
	d.Transport, d.Remote = info.Kind, info.RemoteAddr
	return d, nil
}

func (r *Runtime) sessionsEvict(ctx context.Context, job tool.Job, in sessionsEvictIn) (sessionsEvicted, error) {
	who, err := r.caller(job)
	if err != nil {
		return sessionsEvicted{}, err
	}
	id := arcp.SessionID(in.SessionID)
	e, ok := r.members.find(id)
	decision := "allowed"
	if !who.Admin && e.principal != who.Principal {
		decision = "denied"
	}
	if ok {
		r.audit("evict", who.Principal, who.Session).Str("job_id", string(job.ID())).Str("target", in.SessionID).
			Str("owner", e.principal).Str("decision", decision).Msg("audit")
	}
	if !ok || decision == "denied" {
		return sessionsEvicted{}, arcp.Errorf(arcp.CodeNotFound, "no such session: %s", in.SessionID)
	}
	return sessionsEvicted{true}, r.evictWithCall(ctx, eviction{id, "evicted", cmp.Or(in.Reason, "evicted"), in.Forget})
}

// evictWithCall is evict for the call of a built-in tool: what it does follows the
// commit of the call. With forget the session and its agents end in that commit.
func (r *Runtime) evictWithCall(ctx context.Context, e eviction) error {
	var w *store.Write
	if e.forget {
		if err := r.host.EndSession(ctx, e.id); err != nil {
			return r.hostFailed(ctx, err)
		}
		w = &store.Write{EndSession: e.id}
	}
	err := r.changes().Commit(ctx, w, func(err error) {
		if err == nil {
			r.evicted(e)
		}
	})
	if err != nil {
		return r.storeFailed(err, "end a session")
	}
	return nil
}

// evicted follows an eviction that is durable. It is called on the committer's
// goroutine, before anything of that write is delivered.
func (r *Runtime) evicted(e eviction) {
	m, ok := r.members.find(e.id)
	if ok && e.forget {
		m.conn, ok = r.members.drop(e.id)
		r.engine.CancelSession(e.id, "session ended", false)
		r.dropOverlay(e.id)
		r.endAgents(e.id)                                                                    // one that was registered meanwhile
		r.log.Append(&store.Write{NoSync: true}, func(*store.Result) { r.log.Forget(e.id) }) // behind what is delivered now
	}
	if !ok {
		return
	}
	r.metrics.Evictions.WithLabelValues(e.label).Inc()
	if m.conn != nil {
		m.conn.post(func(time.Time) { m.conn.m.Evict(arcp.CodeCancelled, e.reason) })
	}
}
