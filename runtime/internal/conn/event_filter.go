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

// Bounds of a filter: each event is compared with it, as long as the subscription lasts.
const (
	maxFilterBytes = 64 << 10
	maxFilterTerms = 1000
)

// checkFilter refuses a filter, of a payload of some bytes, that is not valid or too large.
func checkFilter(f *arcp.EventFilter, size int) error {
	switch {
	case f == nil:
	case f.MinPriority != "" && !f.MinPriority.Valid():
		return invalid("min_priority must be low, normal, high or critical")
	case size > maxFilterBytes:
		return invalid("the filter may have at most %d bytes; subscribe more than once, each with a part of it", maxFilterBytes)
	case len(f.SessionID)+len(f.TraceID)+len(f.JobID)+len(f.StreamID)+len(f.Types) > maxFilterTerms:
		return invalid("the filter may name at most %d values; subscribe more than once, each with some of them", maxFilterTerms)
	}
	return nil
}

// eventFilter is arcp.EventFilter with sets. An event has to match each member, and one value of
// it. The zero value selects every event.
type eventFilter struct {
	sessions    filterSet[arcp.SessionID]
	jobs        filterSet[arcp.JobID]
	traces      filterSet[string]
	streams     filterSet[arcp.StreamID]
	types       filterSet[arcp.Type]
	minPriority arcp.Priority
}

func compileFilter(f *arcp.EventFilter) eventFilter {
	return eventFilter{sessions: filterSetOf(f.SessionID), jobs: filterSetOf(f.JobID), traces: filterSetOf(f.TraceID), streams: filterSetOf(f.StreamID),
		types: filterSetOf(f.Types), minPriority: f.MinPriority}
}

// filterSet is the set of values that a member of a filter selects; nil selects all values.
type filterSet[T ~string] map[T]struct{}

func filterSetOf[T ~string](list []T) filterSet[T] {
	if len(list) == 0 {
		return nil
	}
	set := make(filterSet[T], len(list))
	for _, v := range list {
		if v != "" { // an event of the host has no job, and is not selected by an empty id
			set[v] = struct{}{}
		}
	}
	return set
}

func (t filterSet[T]) selects(v T) bool {
	if t == nil {
		return true
	}
	_, ok := t[v]
	return ok
}

// newFilter compiles a filter. owner is the principal of the feed: the one whose sessions or jobs
// the filter names, or the viewer's. It refuses sessions of a principal that the viewer may not
// observe; jobs of such a principal do not exist for the viewer.
func (s *Server) newFilter(ctx context.Context, viewer *approval.Actor, f *arcp.EventFilter) (filter eventFilter, owner string, refused *arcp.Error) {
	own := viewer.Principal
	if f == nil {
		return eventFilter{}, own, nil
	}
	for _, id := range f.SessionID {
		own := s.opts.Sessions.Find(id)
		switch {
		case own == nil:
		case !viewer.Observes(own.Principal):
			s.opts.Audit.Event("subscribe", viewer.Principal, viewer.Session).Str("target", string(id)).Str("decision", "denied").Msg("audit")
			return eventFilter{}, "", arcp.Errorf(arcp.CodePermissionDenied, "session %s is of a principal that this one may not observe", id)
		case owner != "" && owner != own.Principal:
			return eventFilter{}, "", errMixedFilter()
		default:
			owner = own.Principal
		}
	}
	if !viewer.Admin && viewer.Sees == nil {
		return compileFilter(f), own, nil // the feed has only its own jobs
	}
	if len(f.JobID) > maxNamed {
		return eventFilter{}, "", arcp.Errorf(arcp.CodeInvalidRequest, "a filter that may name jobs of other principals names at most %d", maxNamed)
	}
	var unseen []arcp.JobID
	defer func() {
		if len(unseen) > 0 {
			s.opts.Audit.Event("subscribe", viewer.Principal, viewer.Session).Strs("jobs", texts(unseen)).Str("decision", "denied").Msg("audit")
		}
	}()
	for _, id := range f.JobID {
		j, err := s.opts.Store.Job(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err == nil && !viewer.Observes(j.Principal):
			unseen = append(unseen, id)
		case err != nil:
			s.opts.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read job")
			return eventFilter{}, "", unreadable()
		case owner != "" && owner != j.Principal:
			return eventFilter{}, "", errMixedFilter()
		default:
			owner = j.Principal
		}
	}
	if owner == "" && len(f.SessionID)+len(f.JobID) > 0 {
		// Their principal is not known: no feed would have their events.
		return eventFilter{}, "", arcp.Errorf(arcp.CodeNotFound, "no session or job that the filter names is there")
	}
	return compileFilter(f), cmp.Or(owner, own), nil
}

func errMixedFilter() *arcp.Error {
	return arcp.Errorf(arcp.CodeInvalidRequest, "a subscription reads the events of one principal; subscribe once for each whose sessions and jobs the filter names")
}

// selects reports whether the filter selects an event.
func (f *eventFilter) selects(o *original) bool {
	e := o.item.Event
	switch {
	case !f.sessions.selects(o.item.Session), !f.types.selects(e.Type), !f.jobs.selects(e.JobID()),
		f.traces != nil && !f.traces.selects(o.decoded().TraceID),
		f.streams != nil && !f.streams.selects(o.decoded().StreamID):
		return false
	}
	return f.minPriority == "" || o.priority().Rank() >= f.minPriority.Rank()
}

// original is an event as the submitting session received it. It is encoded, and decoded again,
// on demand.
type original struct {
	version string
	item    *eventlog.Item
	frame   []byte
	env     *arcp.Envelope
}

func (o *original) encoded() []byte {
	if o.frame == nil {
		o.frame = o.append(nil, o.head())
	}
	return o.frame
}

// head returns the start of the frames of all events of the session.
func (o *original) head() []byte {
	if o.item.Session == "" {
		return append(arcp.AppendString([]byte(`{"arcp":`), o.version), ',')
	}
	return store.FrameHead(o.version, o.item.Session)
}

func (o *original) append(dst, head []byte) []byte {
	return store.AppendFrame(dst, head, o.item.Event.OriginSeq, o.item.CorrelationID, o.item.Event)
}

func (o *original) decoded() *arcp.Envelope {
	if o.env == nil {
		env, err := arcp.Decode(o.encoded())
		if err != nil { // it was encoded here
			env = arcp.Envelope{}
		}
		o.env = &env
	}
	return o.env
}

// isLow reports whether the event has priority low. Few have: the others are not decoded.
func (o *original) isLow() bool {
	return bytes.Contains(o.item.Event.Body, []byte(`"priority":"low"`)) && o.priority() == arcp.PriorityLow
}

func (o *original) priority() arcp.Priority {
	if p := o.decoded().Priority; p != "" {
		return p
	}
	return arcp.PriorityNormal
}
