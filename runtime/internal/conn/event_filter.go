package conn

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of a filter, because each event of the feed is compared with it.
const (
	maxFilterBytes = 64 << 10
	maxFilterTerms = 1000 // values of all members
	maxFilterJobs  = 1000 // jobs, if they may be of another principal
)

// checkFilter refuses a filter that is not valid or too large. size is the size of its payload in
// bytes.
func checkFilter(f *arcp.EventFilter, size int) error {
	switch {
	case f == nil:
	case f.MinPriority != "" && !f.MinPriority.Valid():
		return errInvalid("min_priority must be low, normal, high or critical")
	case size > maxFilterBytes:
		return errInvalid("the filter may have at most %d bytes; subscribe more than once, each with a part of it", maxFilterBytes)
	case len(f.SessionID)+len(f.TraceID)+len(f.JobID)+len(f.StreamID)+len(f.Types) > maxFilterTerms:
		return errInvalid("the filter may name at most %d values; subscribe more than once, each with some of them", maxFilterTerms)
	}
	return nil
}

// eventFilter is a compiled arcp.EventFilter. It selects an event that matches one value of each
// member. The zero value selects every event.
type eventFilter struct {
	sessions    filterSet[arcp.SessionID]
	jobs        filterSet[arcp.JobID]
	traces      filterSet[string]
	streams     filterSet[arcp.StreamID]
	types       filterSet[arcp.Type]
	minPriority arcp.Priority
}

// compileFilter compiles a filter.
func compileFilter(f *arcp.EventFilter) eventFilter {
	return eventFilter{
		sessions:    filterSetOf(f.SessionID),
		jobs:        filterSetOf(f.JobID),
		traces:      filterSetOf(f.TraceID),
		streams:     filterSetOf(f.StreamID),
		types:       filterSetOf(f.Types),
		minPriority: f.MinPriority,
	}
}

// filterSet is the set of values that a member of a filter selects; nil selects all values.
type filterSet[T ~string] map[T]struct{}

func filterSetOf[T ~string](list []T) filterSet[T] {
	if len(list) == 0 {
		return nil
	}
	set := make(filterSet[T], len(list))
	for _, v := range list {
		if v != "" { // an empty id would select the events without a job
			set[v] = struct{}{}
		}
	}
	return set
}

func (fs filterSet[T]) selects(v T) bool {
	if fs == nil {
		return true
	}
	_, ok := fs[v]
	return ok
}

// filterResolver finds the principal whose feed a filter of the viewer selects from.
type filterResolver struct {
	srv    *Server
	viewer *approval.Actor
}

// resolve compiles a filter. owner is the principal of the feed: the principal of the sessions
// and jobs that the filter names, or the viewer's.
func (r *filterResolver) resolve(ctx context.Context, f *arcp.EventFilter) (filter eventFilter, owner string, refused *arcp.Error) {
	if f == nil {
		return eventFilter{}, r.viewer.Principal, nil
	}
	if owner, refused = r.ownerOfSessions(f.SessionID); refused != nil {
		return eventFilter{}, "", refused
	}
	if !r.viewer.Admin && r.viewer.Sees == nil { // the feed has only jobs of the viewer's principal
		return compileFilter(f), r.viewer.Principal, nil
	}
	if owner, refused = r.ownerOfJobs(ctx, owner, f.JobID); refused != nil {
		return eventFilter{}, "", refused
	}
	if owner == "" && len(f.SessionID)+len(f.JobID) > 0 {
		// Their principal is not known: no feed would have their events.
		return eventFilter{}, "", arcp.Errorf(arcp.CodeNotFound, "no session or job that the filter names is there")
	}
	return compileFilter(f), cmp.Or(owner, r.viewer.Principal), nil
}

// ownerOfSessions returns the principal of the sessions that exist; "": none exists. It refuses
// sessions of a principal that the viewer may not observe, and sessions of several principals.
func (r *filterResolver) ownerOfSessions(ids []arcp.SessionID) (owner string, refused *arcp.Error) {
	for _, id := range ids {
		found := r.srv.opts.Sessions.Find(id)
		switch {
		case found == nil:
		case !r.viewer.Observes(found.Principal):
			r.srv.opts.Audit.Event("subscribe", r.viewer.Principal, r.viewer.Session).
				Str("target", string(id)).Str("decision", "denied").Msg("audit")
			return "", arcp.Errorf(arcp.CodePermissionDenied, "session %s is of a principal that this one may not observe", id)
		case owner != "" && owner != found.Principal:
			return "", errMixedFilter()
		default:
			owner = found.Principal
		}
	}
	return owner, nil
}

// ownerOfJobs returns owner or, if that is empty, the principal of the jobs that exist. A job of a
// principal that the viewer may not observe counts as one that does not exist. It refuses jobs of
// several principals.
func (r *filterResolver) ownerOfJobs(ctx context.Context, owner string, ids []arcp.JobID) (string, *arcp.Error) {
	if len(ids) > maxFilterJobs {
		return "", arcp.Errorf(arcp.CodeInvalidRequest, "a filter that may name jobs of other principals names at most %d", maxFilterJobs)
	}
	var denied []arcp.JobID
	defer func() {
		if len(denied) > 0 {
			r.srv.opts.Audit.Event("subscribe", r.viewer.Principal, r.viewer.Session).
				Strs("jobs", stringsOf(denied)).Str("decision", "denied").Msg("audit")
		}
	}()
	for _, id := range ids {
		j, err := r.srv.opts.Store.Job(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err == nil && !r.viewer.Observes(j.Principal):
			denied = append(denied, id)
		case err != nil:
			r.srv.opts.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read job")
			return "", errUnreadable()
		case owner != "" && owner != j.Principal:
			return "", errMixedFilter()
		default:
			owner = j.Principal
		}
	}
	return owner, nil
}

// errMixedFilter returns the refusal of a filter that names sessions or jobs of several principals.
func errMixedFilter() *arcp.Error {
	return arcp.Errorf(arcp.CodeInvalidRequest,
		"a subscription reads the events of one principal; subscribe once for each whose sessions and jobs the filter names")
}

// selects reports whether the filter selects an event.
func (f *eventFilter) selects(event *submitterEvent) bool {
	e := event.item.Event
	switch {
	case !f.sessions.selects(event.item.Session), !f.types.selects(e.Type), !f.jobs.selects(e.JobID()),
		f.traces != nil && !f.traces.selects(event.decoded().TraceID),
		f.streams != nil && !f.streams.selects(event.decoded().StreamID):
		return false
	}
	return f.minPriority == "" || event.priority().Rank() >= f.minPriority.Rank()
}

// submitterEvent is an event in the form for the session that submitted the job. It is encoded,
// and decoded again, on demand.
type submitterEvent struct {
	version string
	item    *eventlog.Item
	frame   []byte         // nil: not encoded yet
	env     *arcp.Envelope // nil: not decoded yet
}

// encoded returns the frame.
func (se *submitterEvent) encoded() []byte {
	if se.frame == nil {
		se.frame = se.append(nil, se.head())
	}
	return se.frame
}

// head returns the start of the frame, which is the same for all events of the session.
func (se *submitterEvent) head() []byte {
	if se.item.Session == "" {
		return append(arcp.AppendString([]byte(`{"arcp":`), se.version), ',')
	}
	return store.FrameHead(se.version, se.item.Session)
}

func (se *submitterEvent) append(dst, head []byte) []byte {
	return store.AppendFrame(dst, head, se.item.Event.OriginSeq, se.item.CorrelationID, se.item.Event)
}

func (se *submitterEvent) decoded() *arcp.Envelope {
	if se.env == nil {
		env, err := arcp.Decode(se.encoded())
		if err != nil { // it was encoded here
			env = arcp.Envelope{}
		}
		se.env = &env
	}
	return se.env
}

// hasLowPriority reports whether the event has priority low. It decodes only events that may have it.
func (se *submitterEvent) hasLowPriority() bool {
	return bytes.Contains(se.item.Event.Body, []byte(`"priority":"low"`)) && se.priority() == arcp.PriorityLow
}

func (se *submitterEvent) priority() arcp.Priority {
	if p := se.decoded().Priority; p != "" {
		return p
	}
	return arcp.PriorityNormal
}
