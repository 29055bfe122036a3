package conn

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/store"
)

// notObserved is the reason for which subscriptions and follows end when a permission ends.
const notObserved = "the principal may not be observed any more"

// endUnobserved ends the follows of jobs whose principal the client may not observe any more
// (SPEC.md §5.4).
func (fl *follows) endUnobserved() {
	viewer := fl.c.principal.actor()
	var ids []arcp.JobID
	for id, from := range fl.jobs {
		if !viewer.Observes(from.principal) {
			ids = append(ids, id)
		}
	}
	for _, id := range fl.c.ack.followed { // their principals are read from the store
		if _, known := fl.jobs[id]; !known {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	fl.c.tasks.backgroundThenLoop(func(ctx context.Context) func(time.Time) {
		jobs, err := unobserved(ctx, fl.c.srv.opts.Store, &viewer, ids)
		return func(now time.Time) {
			if err != nil { // show still omits the events of these jobs
				fl.c.srv.opts.Logger.Error().Err(err).Str("session_id", string(fl.c.id)).Msg("read followed jobs")
				return
			}
			for i := range jobs {
				if !fl.c.principal.mayObserve(jobs[i].Principal) { // it may have changed again
					fl.end(now, &jobs[i])
				}
			}
		}
	})
}

// unobserved returns the jobs among ids whose principal the viewer may not observe. It reads the store.
func unobserved(ctx context.Context, st store.Store, viewer *approval.Actor, ids []arcp.JobID) (jobs []store.Job, err error) {
	for _, id := range ids {
		j, err := st.Job(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound): // deleted
		case err != nil:
			return nil, err
		case !viewer.Observes(j.Principal):
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// end ends the follow of a live job that the client may not observe any more. In the place of the last event of
// an ended job, show does the same.
func (fl *follows) end(now time.Time, j *store.Job) {
	if j.State.Terminal() {
		return
	}
	fl.drop(j.ID)
	fl.unfollow(j)
	fl.sendEnded(now, j.ID, j.Principal)
}

// sendEnded informs the client that a follow has ended.
func (fl *follows) sendEnded(now time.Time, id arcp.JobID, owner string) {
	fl.c.principal.audit("job.subscribe").Str("target", string(id)).Str("owner", owner).
		Str("decision", "denied").Str("reason", notObserved).Msg("audit")
	env := arcp.Frame(arcp.Nack, arcp.Errorf(arcp.CodePermissionDenied, notObserved))
	env.JobID = id
	fl.c.send(now, env)
}

// show changes a forwarded event to what the client may see of it. It reports false for an event
// without a number that the client may not see.
func (fl *follows) show(now time.Time, item *eventlog.Item) bool {
	owner := fl.origin.principal
	if fl.c.principal.mayObserve(owner) {
		item.Event = thoughtViewOf(&fl.c.principal.identity).show(owner, item.Event)
		return true
	}
	if id := item.Event.JobID(); item.Event.Type.Terminal() {
		if _, follows := fl.jobs[id]; follows {
			fl.drop(id)
			fl.sendEnded(now, id, owner)
		}
	}
	item.Event = omittedEvent(item.Event)
	return item.Seq != 0
}

// omittedEvent returns an event with the id and the time of e that tells nothing of it, so that the
// numbers of the session have no gap.
func omittedEvent(e *store.Event) *store.Event {
	payload := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: eventOmitted, Data: arcp.Raw(arcp.AppendString(nil, notObserved))}).Payload
	omitted := store.NewEvent(arcp.EventEmit, e.Time, &store.JobContext{JobID: e.JobID()}, arcp.PriorityNormal, payload)
	id, _, _ := e.CutBody()
	_, typeAndTime, rest := omitted.CutBody()
	omitted.Body = slices.Concat(id, typeAndTime, rest)
	omitted.JSeq, omitted.OriginSeq = e.JSeq, e.OriginSeq
	return omitted
}
