package conn

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of a connection's subscriptions (SPEC.md §5.9).
const (
	maxFeeds   = 64
	maxFeedLag = 10_000 // events; behind that what has priority low is skipped
	maxNamed   = 1000   // jobs that a filter names, if they may be another principal's
	maxShown   = 1024   // jobs of another principal that are remembered
	feedStep   = 4096   // events looked at in one turn, however few of them are wanted
)

// feeds are the subscriptions of a connection, which they end with.
type feeds struct {
	opening int // that are not in the list yet
	list    []*feed
	limiter *rate.Limiter // nil: any rate
	room    uint64        // bytes that the client has room for, if bounded
	bounded bool
	due     time.Time // when the limiter lets the next event through; zero: nothing waits
}

// feed is one subscription: a cursor of a principal's feed and a filter.
type feed struct {
	id     arcp.SubscriptionID
	owner  string // the principal
	filter eventFilter
	cursor *eventlog.Cursor
	marker bool         // the end of the backfill is still to be told
	until  uint64       // the last position of the backfill
	gap    arcp.FeedGap // what was skipped since something was last sent

	frame  []byte // see feedFrame
	head   []byte // the frame head of events of headOf
	headOf arcp.SessionID

	held    *eventlog.Item      // the next event, which waits for its time or for the store
	reading bool                // it waits for the store
	ready   *store.Event        // what of held was read from the store
	shown   map[arcp.JobID]bool // what is known of another principal's jobs; see shows
}

func (f *feed) next() (item eventlog.Item, ok bool, err error) {
	if f.held != nil {
		item, f.held = *f.held, nil
		return item, true, nil
	}
	return f.cursor.Next()
}

// slowFeeds handles backpressure. The numbered events of the session are held back by the
// acknowledgement window instead.
func (c *conn) slowFeeds(now time.Time, env *arcp.Envelope, p *arcp.BackpressurePayload) error {
	if env.StreamID != "" {
		c.note(machine.Note{Reason: "not_served", Type: env.Type})
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeUnimplemented, "streams are not offered by this runtime; without stream_id it slows subscriptions"))
		return nil
	}
	c.feeds.slow(p)
	return nil
}

// slow bounds the events a second of all subscriptions together, 0 for any number, and the
// bytes until the client sets a new bound.
func (f *feeds) slow(p *arcp.BackpressurePayload) {
	if p.DesiredRatePerSecond != nil {
		f.limiter, f.due = nil, time.Time{}
		if *p.DesiredRatePerSecond > 0 {
			f.limiter = rate.NewLimiter(rate.Limit(*p.DesiredRatePerSecond), 1)
		}
	}
	if p.BufferRemainingBytes != nil {
		f.room, f.bounded = *p.BufferRemainingBytes, true
	}
}

// fits takes the room for an event; one that is larger than all of it waits for
// more.
func (f *feeds) fits(size int) bool {
	if !f.bounded {
		return true
	}
	if uint64(size) > f.room {
		return false
	}
	f.room -= uint64(size)
	return true
}

func (f *feeds) find(id arcp.SubscriptionID) int {
	return slices.IndexFunc(f.list, func(o *feed) bool { return o.id == id })
}

// openFeed starts a subscription: subscribe.accepted, what came after a message
// if that was asked for, and then what comes.
func (c *conn) openFeed(now time.Time, env *arcp.Envelope, p *arcp.SubscribePayload) error {
	if err := checkFilter(p.Filter, len(env.Payload)); err != nil {
		return err
	}
	if len(c.feeds.list)+c.feeds.opening >= maxFeeds {
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeResourceExhausted, "a connection has at most %d subscriptions; unsubscribe from some", maxFeeds).RetryAfter(1))
		return nil
	}
	viewer := c.actor()
	c.read(func(ctx context.Context) func(time.Time) {
		f := &feed{id: arcp.SubscriptionID(arcp.NewID(arcp.SubscriptionPrefix))}
		after, refused := c.srv.newFeed(ctx, &viewer, p, f)
		return func(now time.Time) {
			if refused != nil {
				c.nack(now, env.ID, refused)
				return
			}
			c.attachFeed(env.ID, p, f, after)
		}
	})
	return nil
}

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

// newFeed sets the filter and the owner of a subscription of an actor, and returns the
// position at which it starts.
func (s *Server) newFeed(ctx context.Context, who *approval.Actor, p *arcp.SubscribePayload, f *feed) (after uint64, refused *arcp.Error) {
	if f.filter, f.owner, refused = s.newFilter(ctx, who, p.Filter); refused != nil {
		return 0, refused
	}
	if p.Since == nil || p.Since.AfterMessageID == "" {
		return math.MaxUint64, nil
	}
	f.marker = true
	return s.since(ctx, f.owner, p.Since.AfterMessageID)
}

func (c *conn) attachFeed(request arcp.MessageID, p *arcp.SubscribePayload, f *feed, after uint64) {
	c.auditSubscribe(p.Filter, f.owner)
	c.feeds.opening++
	c.pending.owed.Add(1)
	c.srv.opts.Log.AttachFeed(f.owner, after, c.loop(), func(cursor *eventlog.Cursor, last uint64) {
		f.cursor, f.until = cursor, last
		if !c.complete(func(now time.Time) { c.feedOpened(now, request, f) }) && cursor != nil {
			cursor.Close()
		}
		c.settle()
	})
}

func (c *conn) feedOpened(now time.Time, request arcp.MessageID, f *feed) {
	c.feeds.opening--
	if f.cursor == nil {
		c.nack(now, request, unreadable())
		return
	}
	f.frame = feedFrame(c.id, f.id)
	c.feeds.list = append(c.feeds.list, f)
	env := arcp.Frame(arcp.SubscribeAccepted, arcp.SubscribeAcceptedPayload{SubscriptionID: f.id})
	env.SubscriptionID, env.CorrelationID = f.id, request
	c.send(now, env)
}

// since is the position of a message; without one the feed has lost it.
func (s *Server) since(ctx context.Context, principal string, id arcp.MessageID) (uint64, *arcp.Error) {
	st := s.opts.Store
	pos, err := st.FeedPosition(ctx, principal, id)
	switch {
	case err == nil:
		return pos, nil
	case !errors.Is(err, store.ErrNotFound):
		s.opts.Logger.Error().Err(err).Msg("look for a position in a feed")
		return 0, unreadable()
	}
	lost := arcp.Errorf(arcp.CodeDataLoss, "the message is not among the events that are kept")
	trimmed, _, err := st.FeedBounds(ctx, principal)
	if err == nil {
		err = st.Feed(ctx, principal, trimmed, func(e store.FeedEvent) bool {
			lost = lost.WithDetails(arcp.LostDetails{OldestMessageID: e.Event.ID()})
			return false
		})
	}
	if err != nil {
		s.opts.Logger.Error().Err(err).Msg("oldest event of a feed")
	}
	return 0, lost
}

// auditSubscribe records that a session looks at others.
func (c *conn) auditSubscribe(f *arcp.EventFilter, owner string) {
	var sessions []arcp.SessionID
	var jobs []arcp.JobID
	if f != nil {
		sessions, jobs = f.SessionID, f.JobID
	}
	if len(sessions) == 1 && sessions[0] == c.id {
		return
	}
	ev := c.audit("subscribe").Str("owner", owner).Strs("sessions", texts(sessions))
	if owner != c.principal.identity.Principal {
		ev = ev.Strs("jobs", texts(jobs))
	}
	ev.Str("decision", "allowed").Msg("audit")
}

func texts[T ~string](ids []T) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = string(id)
	}
	return list
}

func (c *conn) closeFeed(now time.Time, env *arcp.Envelope, p *arcp.UnsubscribePayload) error {
	if !arcp.HasPrefix(string(p.SubscriptionID), arcp.SubscriptionPrefix) {
		c.badID(now, env, "subscription_id", arcp.SubscriptionPrefix)
		return nil
	}
	i := c.feeds.find(p.SubscriptionID)
	if i < 0 {
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeNotFound, "no such subscription on this connection"))
		return nil
	}
	c.dropFeed(i)
	return nil
}

func (c *conn) dropFeed(i int) {
	c.feeds.list[i].cursor.Close()
	c.feeds.list = slices.Delete(c.feeds.list, i, i+1)
}

func (c *conn) closeFeeds() {
	for len(c.feeds.list) > 0 {
		c.dropFeed(0)
	}
}

// pullFeeds moves events of the subscriptions into the batch, while there is
// room. They come behind the session's own events, and take turns.
func (c *conn) pullFeeds(now time.Time, room int) {
	c.feeds.due = time.Time{}
	for i := 0; i < len(c.feeds.list) && c.ending.close == nil; {
		f := c.feeds.list[i]
		if !c.observes(f.owner) {
			c.audit("subscribe").Str("owner", f.owner).Str("decision", "denied").Str("reason", "may not be observed any more").Msg("audit")
			c.endFeed(now, f, arcp.CodePermissionDenied, "the principal may not be observed any more")
			c.dropFeed(i)
			continue
		}
		more, err := c.pullFeed(now, f, room)
		if err != nil {
			c.feedFailed(now, f, err)
			c.dropFeed(i)
			continue
		}
		if !more {
			break
		}
		i++
	}
	if n := len(c.feeds.list); n > 1 { // another one begins next time
		c.feeds.list = append(c.feeds.list[1:n:n], c.feeds.list[0])
	}
}

// pullFeed reports whether there may be room for the next subscription.
func (c *conn) pullFeed(now time.Time, f *feed, room int) (more bool, err error) {
	if f.reading {
		return true, nil
	}
	late := f.cursor.Lag() > maxFeedLag
	for range feedStep {
		if len(c.batch().data) >= room {
			return false, nil
		}
		item, ok, err := f.next()
		if err != nil {
			return true, c.passDeleted(f, err)
		}
		if ok && c.blockFeed(f, &item) {
			return true, nil
		}
		if ok && !c.deliverFeed(now, f, &item, late) {
			return false, nil
		}
		if f.marker && f.cursor.Position() >= f.until {
			f.marker = false
			c.tellFeed(now, f, arcp.EventEmitPayload{Name: arcp.EventCaughtUp})
		}
		if !ok {
			c.fillGap(now, f)
			return true, nil
		}
	}
	c.wake() // there is more
	return false, nil
}

// passDeleted makes a subscription go on behind the events of jobs that were deleted. It
// returns err if the reason is another one: what is not kept any more was trimmed.
func (c *conn) passDeleted(f *feed, err error) error {
	gone, ok := errors.AsType[*store.TrimmedError](err)
	if !ok {
		return err
	}
	f.reading = true
	c.async(func() {
		trimmed, _, failed := c.srv.opts.Store.FeedBounds(context.Background(), f.owner)
		c.complete(func(now time.Time) {
			i := c.feeds.find(f.id)
			switch {
			case i < 0: // it was closed meanwhile
			case failed != nil || gone.After < trimmed:
				c.feedFailed(now, f, err)
				c.dropFeed(i)
			default:
				f.reading = false
				f.cursor.Move(gone.UpTo)
			}
		})
	})
	return nil
}

// blockFeed reads what an event of a subscription needs from the store, and reports
// whether there is such a thing. The subscription goes on with the event then.
func (c *conn) blockFeed(f *feed, item *eventlog.Item) bool {
	if item.Event == f.ready || c.hides(item.Event.Type) {
		return false
	}
	id := item.Event.JobID()
	_, known := f.shown[id]
	known = known || f.owner == c.principal.identity.Principal
	result := c.needsResult(item.Event)
	if known && !result || !f.filter.selects(&original{version: c.m.Version(), item: item}) {
		return false
	}
	f.held, f.reading = item, true
	c.async(func() {
		whole, err := item.Event, error(nil)
		if result {
			whole, err = c.srv.withResult(context.Background(), item.Event)
		}
		shown := known || c.srv.opts.Jobs.Shows(context.Background(), id)
		c.complete(func(now time.Time) {
			f.reading, f.ready, item.Event = false, whole, whole
			if !known {
				f.show(id, shown)
			}
			if err != nil {
				c.unreadable(now, err)
			}
		})
	})
	return true
}

// paced reports whether the subscriptions may carry an event now.
func (c *conn) paced(now time.Time) bool {
	l := c.feeds.limiter
	if l == nil || l.AllowN(now, 1) {
		return true
	}
	next := l.ReserveN(now, 1)
	c.feeds.due = now.Add(max(next.DelayFrom(now), time.Millisecond))
	next.CancelAt(now) // it was only asked when
	return false
}

// deliverFeed reports false if it is too soon for the event, which is then kept.
func (c *conn) deliverFeed(now time.Time, f *feed, item *eventlog.Item, late bool) bool {
	if c.hides(item.Event.Type) {
		return true
	}
	o := original{version: c.m.Version(), item: item}
	if !f.filter.selects(&o) || !c.shows(f, item.Event.JobID()) {
		return true
	}
	if late && o.priority() == arcp.PriorityLow {
		c.srv.opts.Metrics.SlowConsumers.WithLabelValues(slowSkipped).Inc()
		f.skip(item.Event.ID())
		return true
	}
	if !c.paced(now) || c.feeds.bounded && !c.feeds.fits(len(o.encoded())) {
		f.held = item
		return false
	}
	c.fillGap(now, f)
	c.appendFeed(now, f, &o)
	return true
}

// appendFeed appends a subscribe.event frame to the batch. The body of the event is
// encoded once and copied into the frame of each subscription.
func (c *conn) appendFeed(now time.Time, f *feed, o *original) {
	b := c.batch()
	start := len(b.data)
	b.data = append(arcp.AppendHead(b.data, o.version, arcp.NewMessageID(), arcp.SubscribeEvent, now), f.frame...)
	if o.frame != nil {
		b.data = append(b.data, o.frame...)
	} else {
		if f.head == nil || f.headOf != o.item.Session {
			f.head, f.headOf = o.head(), o.item.Session
		}
		b.data = o.append(b.data, f.head)
	}
	b.data = append(b.data, "}}"...)
	b.ends = append(b.ends, len(b.data))
	c.output.counts.add(arcp.SubscribeEvent, len(b.data)-start)
}

// feedFrame returns the part of a subscribe.event frame between its timestamp and the
// event, which is the same in all frames of a subscription.
func feedFrame(session arcp.SessionID, id arcp.SubscriptionID) []byte {
	b := arcp.AppendString([]byte(`,"session_id":`), string(session))
	b = arcp.AppendString(append(b, `,"subscription_id":`...), string(id))
	return append(b, `,"payload":{"event":`...)
}

// hides reports whether a subscription leaves out events of a type: chunks of results
// and checkpoints, for a client that did not negotiate them or cannot read them.
func (c *conn) hides(t arcp.Type) bool {
	switch t {
	case arcp.JobResultChunk:
		return !c.negotiated(arcp.FeatureResultChunk)
	case arcp.JobCheckpoint:
		return machine.ReadsNoCheckpoints(c.row.ClientKind)
	}
	return false
}

// skip leaves an event out.
func (f *feed) skip(id arcp.MessageID) {
	if f.gap.Skipped == 0 {
		f.gap.FirstID = id
	}
	f.gap.Skipped++
	f.gap.LastID = id
}

// fillGap says what was skipped.
func (c *conn) fillGap(now time.Time, f *feed) {
	if f.gap.Skipped == 0 {
		return
	}
	data, err := arcp.Marshal(f.gap)
	if err != nil { // a number and two strings
		panic("runtime: gap: " + err.Error())
	}
	f.gap = arcp.FeedGap{}
	c.tellFeed(now, f, arcp.EventEmitPayload{Name: arcp.EventGap, Data: data})
}

// tellFeed sends an event about the subscription itself.
func (c *conn) tellFeed(now time.Time, f *feed, p arcp.EventEmitPayload) {
	env := arcp.Frame(arcp.EventEmit, p)
	env.ARCP, env.ID, env.Timestamp, env.SubscriptionID = c.m.Version(), arcp.NewMessageID(), now, f.id
	c.sendFeed(now, f, env.Append(nil))
}

func (c *conn) sendFeed(now time.Time, f *feed, event []byte) {
	env := arcp.Frame(arcp.SubscribeEvent, arcp.SubscribeEventPayload{Event: event})
	env.SubscriptionID = f.id
	c.send(now, env)
}

// feedFailed ends a subscription that has fallen behind what is kept.
func (c *conn) feedFailed(now time.Time, f *feed, err error) {
	c.srv.opts.Metrics.SlowConsumers.WithLabelValues(slowClosed).Inc()
	if errors.Is(err, store.ErrTrimmed) {
		c.endFeed(now, f, arcp.CodeBackpressureOverflow, "events that were still to be sent are not kept any more")
		return
	}
	c.srv.opts.Logger.Error().Err(err).Msg("read feed")
	c.endFeed(now, f, arcp.CodeUnavailable, "the store cannot be read")
}

// endFeed says why a subscription is over.
func (c *conn) endFeed(now time.Time, f *feed, code arcp.Code, reason string) {
	env := arcp.Frame(arcp.SubscribeClosed, arcp.SubscribeClosedPayload{SubscriptionID: f.id, Code: code, Reason: reason})
	env.SubscriptionID = f.id
	c.send(now, env)
}

// original is an event as the submitting session got it. It is encoded, and
// decoded again, only if somebody wants to know.
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

// head is what the frames of all events of the session begin with.
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

func (o *original) priority() arcp.Priority {
	if p := o.decoded().Priority; p != "" {
		return p
	}
	return arcp.PriorityNormal
}

// eventFilter is arcp.EventFilter, ready for use: and across members, or inside
// one. The zero value selects every event.
type eventFilter struct {
	sessions    filterSet[arcp.SessionID]
	jobs        filterSet[arcp.JobID]
	traces      filterSet[string]
	streams     filterSet[arcp.StreamID]
	types       filterSet[arcp.Type]
	minPriority arcp.Priority
}

func readyFilter(f *arcp.EventFilter) eventFilter {
	return eventFilter{sessions: termsOf(f.SessionID), jobs: termsOf(f.JobID), traces: termsOf(f.TraceID), streams: termsOf(f.StreamID),
		types: termsOf(f.Types), minPriority: f.MinPriority}
}

// filterSet is the set of values that a member of a filter selects; nil selects all.
type filterSet[T ~string] map[T]struct{}

func termsOf[T ~string](list []T) filterSet[T] {
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

// newFilter makes a filter ready, and says whose feed it selects from: that of the
// principal whose sessions or jobs it names, or the connection's own. It refuses
// sessions of somebody whom the connection may not observe; jobs of such a
// principal do not exist for it.
func (s *Server) newFilter(ctx context.Context, who *approval.Actor, f *arcp.EventFilter) (filter eventFilter, owner string, refused *arcp.Error) {
	own := who.Principal
	if f == nil {
		return eventFilter{}, own, nil
	}
	for _, id := range f.SessionID {
		own := s.opts.Sessions.Find(id)
		switch {
		case own == nil:
		case !who.Observes(own.Principal):
			s.opts.Audit.Event("subscribe", who.Principal, who.Session).Str("target", string(id)).Str("decision", "denied").Msg("audit")
			return eventFilter{}, "", arcp.Errorf(arcp.CodePermissionDenied, "session %s is of a principal that this one may not observe", id)
		case owner != "" && owner != own.Principal:
			return eventFilter{}, "", errMixedFilter()
		default:
			owner = own.Principal
		}
	}
	if !who.Admin && who.Sees == nil {
		return readyFilter(f), own, nil // whatever jobs it names, it has its own only
	}
	if len(f.JobID) > maxNamed {
		return eventFilter{}, "", arcp.Errorf(arcp.CodeInvalidRequest, "a filter that may name jobs of other principals names at most %d", maxNamed)
	}
	var unseen []arcp.JobID
	defer func() {
		if len(unseen) > 0 {
			s.opts.Audit.Event("subscribe", who.Principal, who.Session).Strs("jobs", texts(unseen)).Str("decision", "denied").Msg("audit")
		}
	}()
	for _, id := range f.JobID {
		j, err := s.opts.Store.Job(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err == nil && !who.Observes(j.Principal):
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
		// They may have been somebody's whom it observes: it would wait in vain.
		return eventFilter{}, "", arcp.Errorf(arcp.CodeNotFound, "no session or job that the filter names is there")
	}
	return readyFilter(f), cmp.Or(owner, own), nil
}

func errMixedFilter() *arcp.Error {
	return arcp.Errorf(arcp.CodeInvalidRequest, "a subscription reads the events of one principal; subscribe once for each whose sessions and jobs the filter names")
}

// observes reports whether the connection may look at what is a principal's.
func (c *conn) observes(principal string) bool {
	if principal == c.principal.identity.Principal {
		return true
	}
	who := c.actor()
	return who.Observes(principal)
}

// shows reports whether a job's events may be in a subscription. Of another
// principal those of the runtime's own tools may not: their answers are of what is
// for that principal only.
func (c *conn) shows(f *feed, id arcp.JobID) bool {
	return f.owner == c.principal.identity.Principal || f.shown[id]
}

// show remembers whether events of a job of another principal may be in the subscription.
func (f *feed) show(id arcp.JobID, shown bool) {
	if f.shown == nil || len(f.shown) >= maxShown {
		f.shown = make(map[arcp.JobID]bool)
	}
	f.shown[id] = shown
}

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
