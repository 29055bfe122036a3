package conn

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of the subscriptions of a connection (SPEC.md §5.9).
const (
	maxSubscriptions = 64
	maxFeedLag       = 10_000 // events behind the feed; beyond it, events with priority low are skipped
	maxVisible       = 1024   // size of subscription.visible
	maxExamined      = 4096   // events of a subscription that a turn compares with the filter
)

// subscriptions are the subscriptions of a connection (SPEC.md §5.9). They end with the connection.
type subscriptions struct {
	c           *conn
	slots       subscriptionSlots
	list        []*subscription
	limiter     *rate.Limiter // nil: any rate
	room        uint64        // bytes that the client can take, if roomBounded
	roomBounded bool
	due         time.Time // when the limiter admits the next event; zero: no event waits
}

var subscriptionRoutes = map[arcp.Type]handler{
	arcp.Subscribe:    on(subscriptionsOf, (*subscriptions).subscribe),
	arcp.Unsubscribe:  on(subscriptionsOf, (*subscriptions).unsubscribe),
	arcp.Backpressure: on(subscriptionsOf, (*subscriptions).backpressure),
}

func subscriptionsOf(c *conn) *subscriptions { return &c.subscriptions }

// subscriptionSlots counts the subscriptions of a connection, including those that are being
// opened. Every limit of the number of subscriptions is enforced here.
type subscriptionSlots struct{ taken int }

// acquire takes a slot for a new subscription. It refuses the subscription if no slot is free.
func (ss *subscriptionSlots) acquire() *arcp.Error {
	if ss.taken >= maxSubscriptions {
		return arcp.Errorf(arcp.CodeResourceExhausted,
			"a connection has at most %d subscriptions; unsubscribe from some", maxSubscriptions).RetryAfter(1)
	}
	ss.taken++
	return nil
}

// release frees n slots. Every slot is freed once: when the subscription is refused, when it ends,
// or with the connection.
func (ss *subscriptionSlots) release(n int) { ss.taken -= n }

// subscription is a cursor on the feed of a principal, with a filter.
type subscription struct {
	id          arcp.SubscriptionID
	owner       string // principal of the feed
	filter      eventFilter
	cursor      *eventlog.Cursor
	backfilling bool         // the end of the backfill is not announced yet
	backfillEnd uint64       // position of the last event of the backfill
	gap         arcp.FeedGap // skipped events that are not announced

	framePrefix []byte // see subscribePrefix
	head        []byte // start of the frames of the events of session headOf
	headOf      arcp.SessionID

	held     *eventlog.Item      // next event, which waits for the limiter or the store; nil: the cursor has it
	reading  bool                // data for the next event is being read
	heldRead *store.Event        // event of held, if its data was read
	visible  map[arcp.JobID]bool // jobs of another principal: whether their events may be shown
}

// subscribe handles subscribe. The client receives subscribe.accepted, the events after the message
// that it named, if any, and then new events.
func (s *subscriptions) subscribe(now time.Time, env *arcp.Envelope, p *arcp.SubscribePayload) error {
	if err := checkFilter(p.Filter, len(env.Payload)); err != nil {
		return err
	}
	if refused := s.slots.acquire(); refused != nil {
		s.c.nack(now, env.ID, refused)
		return nil
	}
	viewer := s.c.principal.actor()
	s.c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		sub := &subscription{id: arcp.SubscriptionID(arcp.NewID(arcp.SubscriptionPrefix))}
		after, refused := s.c.srv.newSubscription(ctx, &viewer, p, sub)
		return func(now time.Time) {
			if refused != nil {
				s.refuse(now, env.ID, refused)
				return
			}
			s.attach(env.ID, p, sub, after)
		}
	})
	return nil
}

// refuse refuses a subscription that has a slot.
func (s *subscriptions) refuse(now time.Time, request arcp.MessageID, err *arcp.Error) {
	s.slots.release(1)
	s.c.nack(now, request, err)
}

// newSubscription sets the filter and the owner of a subscription, and returns the position in the
// feed to start after. It reads the store.
func (s *Server) newSubscription(ctx context.Context, viewer *approval.Actor, p *arcp.SubscribePayload,
	sub *subscription) (after uint64, refused *arcp.Error) {
	if sub.filter, sub.owner, refused = (&filterResolver{s, viewer}).resolve(ctx, p.Filter); refused != nil {
		return 0, refused
	}
	if p.Since == nil || p.Since.AfterMessageID == "" {
		return math.MaxUint64, nil
	}
	sub.backfilling = true
	return s.startPosition(ctx, sub.owner, p.Since.AfterMessageID)
}

// attach attaches the cursor of a new subscription to its feed.
func (s *subscriptions) attach(request arcp.MessageID, p *arcp.SubscribePayload, sub *subscription, after uint64) {
	s.audit(p.Filter, sub.owner)
	s.c.unanswered.add()
	s.c.srv.opts.Log.AttachFeed(sub.owner, after, s.c.session.loop(), func(cursor *eventlog.Cursor, last uint64) {
		sub.cursor, sub.backfillEnd = cursor, last
		if !s.c.inbox.runOnLoop(func(now time.Time) { s.attached(now, request, sub) }) && cursor != nil {
			cursor.Close()
		}
		s.c.unanswered.done()
	})
}

// attached completes attach.
func (s *subscriptions) attached(now time.Time, request arcp.MessageID, sub *subscription) {
	if sub.cursor == nil {
		s.refuse(now, request, errUnreadable())
		return
	}
	sub.framePrefix = subscribePrefix(s.c.id, sub.id)
	s.list = append(s.list, sub)
	env := arcp.Frame(arcp.SubscribeAccepted, arcp.SubscribeAcceptedPayload{SubscriptionID: sub.id})
	env.SubscriptionID, env.CorrelationID = sub.id, request
	s.c.send(now, env)
}

// startPosition returns the position of a message in a feed. A message that is not stored is
// DATA_LOSS.
func (s *Server) startPosition(ctx context.Context, principal string, id arcp.MessageID) (uint64, *arcp.Error) {
	st := s.opts.Store
	pos, err := st.FeedPosition(ctx, principal, id)
	switch {
	case err == nil:
		return pos, nil
	case !errors.Is(err, store.ErrNotFound):
		s.opts.Logger.Error().Err(err).Msg("look for a position in a feed")
		return 0, errUnreadable()
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

// audit audits a subscription to the events of other sessions.
func (s *subscriptions) audit(f *arcp.EventFilter, owner string) {
	var sessions []arcp.SessionID
	var jobs []arcp.JobID
	if f != nil {
		sessions, jobs = f.SessionID, f.JobID
	}
	if len(sessions) == 1 && sessions[0] == s.c.id {
		return
	}
	ev := s.c.principal.audit("subscribe").Str("owner", owner).Strs("sessions", stringsOf(sessions))
	if owner != s.c.principal.identity.Principal {
		ev = ev.Strs("jobs", stringsOf(jobs))
	}
	ev.Str("decision", "allowed").Msg("audit")
}

func stringsOf[T ~string](ids []T) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = string(id)
	}
	return list
}

// unsubscribe handles unsubscribe.
func (s *subscriptions) unsubscribe(now time.Time, env *arcp.Envelope, p *arcp.UnsubscribePayload) error {
	if !arcp.HasPrefix(string(p.SubscriptionID), arcp.SubscriptionPrefix) {
		s.c.refuseID(now, env, "subscription_id", arcp.SubscriptionPrefix)
		return nil
	}
	i := s.find(p.SubscriptionID)
	if i < 0 {
		s.c.nack(now, env.ID, arcp.Errorf(arcp.CodeNotFound, "no such subscription on this connection"))
		return nil
	}
	s.drop(i)
	return nil
}

// find returns the index of a subscription; -1: there is none.
func (s *subscriptions) find(id arcp.SubscriptionID) int {
	return slices.IndexFunc(s.list, func(o *subscription) bool { return o.id == id })
}

// drop ends the subscription at index i.
func (s *subscriptions) drop(i int) {
	s.list[i].cursor.Close()
	s.list = slices.Delete(s.list, i, i+1)
	s.slots.release(1)
}

// close ends all subscriptions, including those that are being opened.
func (s *subscriptions) close() {
	for len(s.list) > 0 {
		s.drop(0)
	}
	s.slots.release(s.slots.taken)
}
