package conformance

import (
	"context"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Feed is a subscription of a connection.
type Feed struct {
	ID arcp.SubscriptionID

	c *Conn
}

// feed subscribes to the filter, since a message if one is given.
func (c *Conn) feed(filter arcp.EventFilter, since ...arcp.MessageID) *Feed {
	p := arcp.SubscribePayload{Filter: &filter}
	if len(since) > 0 {
		p.Since = &arcp.Since{AfterMessageID: since[0]}
	}
	return c.feedOf(c.Send(arcp.Subscribe, p))
}

// feedOf wants subscribe.accepted next.
func (c *Conn) feedOf(id arcp.MessageID) *Feed {
	f := c.Expect("subscribe is answered before anything it brings", arcp.SubscribeAccepted, id)
	return &Feed{payload[arcp.SubscribeAcceptedPayload](c.t, f).SubscriptionID, c}
}

// next is the next envelope that the subscription brings. Events of the
// session itself may come between, those of other subscriptions not.
func (d *Feed) next(why string) *Frame {
	for {
		f := d.c.event(why)
		if f.EventSeq > 0 {
			continue
		}
		d.c.match(why, f, arcp.SubscribeEvent, "")
		want(d.c.t, why+", in its subscription", f.SubscriptionID, d.ID)
		in, err := f.forwarded()
		if err != nil {
			d.c.t.Failf("%s: %v", why, err)
		}
		return in
	}
}

// Expect wants exactly these events next, as they were.
func (d *Feed) Expect(why string, events ...*Frame) {
	for _, e := range events {
		d.c.t.wantOriginal(why, d.next(why), e)
	}
}

// wantOriginal wants in to be the event as its own session got it.
func (t *T) wantOriginal(why string, in, event *Frame) {
	want(t, why, in.ID, event.ID)
	if err := sameEvent(in, event); err != nil {
		t.Failf("an event in a subscription is the original: %v", err)
	}
}

// ExpectMarker wants the end of the backfill next.
func (d *Feed) ExpectMarker() {
	const why = "the end of the backfill is told after it"
	in := d.next(why)
	want(d.c.t, why, in.Type, arcp.EventEmit)
	want(d.c.t, why, payload[arcp.EventEmitPayload](d.c.t, in).Name, "subscription.backfill_complete")
}

// newTrace is a trace that only one check uses.
func newTrace() string { return "trace-" + string(arcp.NewMessageID()) }

func traced(trace string) func(*arcp.Envelope) {
	return func(env *arcp.Envelope) { env.TraceID = trace }
}

// echo runs demo.echo with a trace.
func (c *Conn) echo(trace string, with ...func(*arcp.Envelope)) *Job {
	return c.Invoke("demo.echo", map[string]any{}, append(with, traced(trace))...)
}

func ofTrace(trace string) arcp.EventFilter { return arcp.EventFilter{TraceID: []string{trace}} }

func feedAccepted(_ context.Context, t *T) {
	c := t.Open()
	for _, p := range []string{`{}`, `{"filter":{}}`, `{"filter":null,"since":null}`, `{"since":{}}`} {
		id := c.Send(arcp.Subscribe, arcp.Raw(p))
		for f := c.event("subscribe is answered: " + p); ; f = c.event("subscribe is answered: " + p) {
			if f.Type == arcp.SubscribeEvent {
				continue // of an earlier one
			}
			c.match("subscribe is answered: "+p, f, arcp.SubscribeAccepted, id)
			sub := payload[arcp.SubscribeAcceptedPayload](t, f).SubscriptionID
			t.Want("a subscription has an id", sub != "" && sub == f.SubscriptionID, "payload %q, envelope %q", sub, f.SubscriptionID)
			c.Send(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: sub})
			break
		}
	}
}

func feedWhole(_ context.Context, t *T) {
	trace := newTrace()
	a, b, watcher := t.Open(), t.Open(), t.Open()
	a.echoes(1) // so that the numbers of the sessions differ
	feed := watcher.feed(ofTrace(trace))
	for range 3 {
		for _, owner := range []*Conn{a, b} {
			job := owner.Invoke("demo.emit", map[string]any{"count": 5, "bytes": 30}, traced(trace))
			feed.Expect("every event comes, in its place", job.Events...)
		}
	}
}

func feedOwnSession(_ context.Context, t *T) {
	trace := newTrace()
	c := t.Open()
	feed := c.feed(ofTrace(trace))
	id := c.Submit("demo.echo", map[string]any{}, traced(trace))
	var own, copies []*Frame
	for len(own) < 3 || len(copies) < 3 {
		switch f := c.event("an event comes to its session and to the subscription"); {
		case f.EventSeq > 0:
			want(t, "the events are those of the job", f.CorrelationID, id)
			own = append(own, f)
		default:
			c.match("an event comes to the subscription too", f, arcp.SubscribeEvent, "")
			want(t, "the subscription is named", f.SubscriptionID, feed.ID)
			in, _ := f.forwarded() // the validator has read it
			copies = append(copies, in)
		}
	}
	for i, in := range copies {
		t.wantOriginal("the copies are in order", in, own[i])
	}
}

// watch opens a subscription and a session that submits.
func (t *T) watch(filter arcp.EventFilter) (owner *Conn, feed *Feed) {
	return t.Open(), t.Open().feed(filter)
}

func feedFilterJob(_ context.Context, t *T) {
	owner, watcher := t.Open(), t.Open()
	var submits []arcp.MessageID
	var jobs []arcp.JobID
	for range 3 {
		id := owner.Submit("demo.sleep", map[string]any{"ms": 60_000})
		submits, jobs = append(submits, id), append(jobs, owner.AwaitStarted(id))
	}
	feed := watcher.feed(arcp.EventFilter{JobID: []arcp.JobID{jobs[2], nobodysJob, jobs[0]}})
	for i, id := range submits {
		owner.Cancel(jobs[i], 5000)
		if end := owner.Follow(id).End(); i != 1 {
			feed.Expect("only events of the jobs come", end)
		}
	}
}

func feedFilterSession(_ context.Context, t *T) {
	a, b, watcher := t.Open(), t.Open(), t.Open()
	feed := watcher.feed(arcp.EventFilter{SessionID: []arcp.SessionID{a.Session}})
	for range 3 {
		b.echoes(1)
		feed.Expect("only events of the session come", a.Invoke("demo.echo", map[string]any{}).Events...)
	}
}

func feedFilterTrace(_ context.Context, t *T) {
	a, b := newTrace(), newTrace()
	owner, feed := t.watch(arcp.EventFilter{TraceID: []string{a, b}})
	for range 3 {
		owner.echo(newTrace())
		feed.Expect("only events of the traces come", owner.echo(a).Events...)
		feed.Expect("only events of the traces come", owner.echo(b).Events...)
	}
}

func feedFilterTypes(_ context.Context, t *T) {
	trace := newTrace()
	owner, feed := t.watch(arcp.EventFilter{TraceID: []string{trace}, Types: []arcp.Type{arcp.Log, arcp.JobCompleted}})
	for range 2 {
		owner.Invoke("demo.emit", map[string]any{"count": 1, "bytes": 1}) // of another trace
		job := owner.Invoke("demo.emit", map[string]any{"count": 3, "bytes": 1}, traced(trace))
		feed.Expect("only events that every member selects come", append(job.Of(arcp.Log), job.End())...)
	}
}

func feedFilterUnknownType(_ context.Context, t *T) {
	trace := newTrace()
	owner, watcher := t.Open(), t.Open()
	watcher.feed(arcp.EventFilter{TraceID: []string{trace}, Types: []arcp.Type{"job.exploded", "x-thing"}})
	feed := watcher.feed(ofTrace(trace))
	feed.Expect("the other subscription brings nothing", owner.echo(trace).Events...)
	feed.Expect("the other subscription brings nothing", owner.echo(trace).Events...)
}

func feedFilterEmpty(_ context.Context, t *T) {
	trace := newTrace()
	owner, watcher := t.Open(), t.Open()
	id := watcher.Send(arcp.Subscribe, arcp.Raw(`{"filter":{"session_id":[],"job_id":[],"stream_id":[],"types":[],"trace_id":["`+trace+`"]}}`))
	watcher.feedOf(id).Expect("an empty list excludes nothing", owner.echo(trace).Events...)
}

func feedFilterPriority(_ context.Context, t *T) {
	trace := newTrace()
	owner, watcher := t.Open(), t.Open()
	for _, test := range []struct {
		least, job arcp.Priority
		all        bool
	}{
		{arcp.PriorityNormal, "", true}, {arcp.PriorityHigh, arcp.PriorityNormal, false}, {arcp.PriorityNormal, arcp.PriorityLow, false},
		{arcp.PriorityLow, arcp.PriorityLow, true}, {arcp.PriorityHigh, arcp.PriorityHigh, true}, {arcp.PriorityCritical, arcp.PriorityHigh, false},
	} {
		filter := ofTrace(trace)
		filter.MinPriority = test.least
		feed := watcher.feed(filter)
		events := owner.echo(trace, func(env *arcp.Envelope) { env.Priority = test.job }).Events
		if !test.all {
			events = events[len(events)-1:]
		}
		feed.Expect("of a job of priority "+string(test.job)+" there come the events of at least "+string(test.least), events...)
		watcher.Send(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: feed.ID})
		watcher.ExpectNothing("and nothing else")
	}
}

func feedFilterMalformed(_ context.Context, t *T) {
	c := t.Open()
	for _, p := range []string{`{"filter":{"min_priority":"urgent"}}`, `{"filter":{"types":"log"}}`, `{"filter":[]}`, `{"since":"msg_1"}`} {
		c.ExpectNack("a filter that cannot be read is refused: "+p, c.Send(arcp.Subscribe, arcp.Raw(p)), arcp.CodeInvalidRequest, arcp.CodeInvalidArgument)
	}
}

func feedSince(_ context.Context, t *T) {
	trace := newTrace()
	owner, watcher := t.Open(), t.Open()
	job := owner.Invoke("demo.emit", map[string]any{"count": 5, "bytes": 30}, traced(trace))
	for _, i := range []int{0, 4} {
		feed := watcher.feed(ofTrace(trace), job.Event(i).ID)
		feed.Expect("what came after the message comes", job.EventsFrom(i+1)...)
		feed.ExpectMarker()
		live := owner.echo(trace)
		feed.Expect("then comes what happens", live.Events...)
		watcher.Send(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: feed.ID})
		watcher.ExpectNothing("each comes once")
		job.Events = append(job.Events, live.Events...)
	}
}

func feedSinceLive(_ context.Context, t *T) {
	trace := newTrace()
	owner, watcher := t.Open(), t.Open()
	const count = 150
	submit := owner.Submit("demo.emit", map[string]any{"count": count, "bytes": 30, "interval_ms": 1}, traced(trace))
	before := owner.Events("the job emits", 40)
	feed := watcher.feed(ofTrace(trace), before[0].ID)
	feed.Expect("what had happened comes first", before[1:]...)
	var got []*Frame
	markers := 0
	for markers == 0 || len(got) == 0 || !got[len(got)-1].Type.Terminal() { // the job may end before the backfill does
		if in := feed.next("every event comes"); in.SubscriptionID == "" {
			got = append(got, in)
		} else {
			markers++
		}
	}
	want(t, "the end of the backfill is told once", markers, 1)
	events := owner.Follow(submit).Events
	want(t, "every event comes once", len(got), len(events))
	for i, in := range got {
		t.wantOriginal("events come in order", in, events[i])
	}
	feed.Expect("what comes next is new", owner.echo(trace).Events...)
}

func feedSinceLast(_ context.Context, t *T) {
	trace := newTrace()
	owner, watcher := t.Open(), t.Open()
	job := owner.echo(trace)
	feed := watcher.feed(ofTrace(trace), job.End().ID)
	feed.ExpectMarker()
	watcher.Send(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: feed.ID})
	feed = watcher.feed(ofTrace(trace))
	feed.Expect("without a backfill there is no end of it", owner.echo(trace).Events...)
}

func feedSinceUnknown(_ context.Context, t *T) {
	c := t.Open()
	c.echoes(1)
	id := c.Send(arcp.Subscribe, arcp.SubscribePayload{Since: &arcp.Since{AfterMessageID: "msg_00000000000000000000000000"}})
	f := c.ExpectNack("what is not kept cannot be a position", id, arcp.CodeDataLoss)
	t.Want("the refusal says what is kept", hasMember(payload[arcp.ErrorPayload](t, f).Details, "oldest_message_id"), "got %s", f.Payload)
}

func feedForeignSession(_ context.Context, t *T) {
	owner, stranger := t.Open(), t.Open(as(t.target.OtherToken))
	id := stranger.Send(arcp.Subscribe, arcp.SubscribePayload{Filter: &arcp.EventFilter{SessionID: []arcp.SessionID{stranger.Session, owner.Session}}})
	stranger.ExpectNack("nobody may look at another principal's session", id, arcp.CodePermissionDenied)
}

func feedOtherPrincipal(_ context.Context, t *T) {
	trace := newTrace()
	owner, stranger, watcher := t.Open(), t.Open(as(t.target.OtherToken)), t.Open()
	feed := watcher.feed(ofTrace(trace))
	named := stranger.echo(trace)
	watcher.feed(arcp.EventFilter{JobID: []arcp.JobID{named.ID}})
	for range 2 {
		stranger.echo(trace)
		feed.Expect("only the principal's own events come", owner.echo(trace).Events...)
	}
	id := watcher.Send(arcp.Subscribe, arcp.SubscribePayload{Filter: new(ofTrace(trace)), Since: &arcp.Since{AfterMessageID: named.End().ID}})
	watcher.ExpectNack("another principal's message is no position", id, arcp.CodeDataLoss)
}

func feedNoControl(_ context.Context, t *T) {
	watcher := t.Open()
	feed := watcher.feed(arcp.EventFilter{})
	other := t.Open()
	other.ExpectNothing("a ping is answered")
	other.ack(0)
	other.entry("", other.Session)
	sub := other.feed(arcp.EventFilter{SessionID: []arcp.SessionID{other.Session}})
	job := other.Submit("demo.echo", map[string]any{})
	end := other.Await("the job ends", arcp.JobCompleted, job)
	other.Send(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: sub.ID})
	other.Drop()
	for { // the validator wants nothing but events of jobs
		in := feed.next("the events of every session come")
		t.Want("no token is in a subscription", !strings.Contains(string(in.Text), "resume_token"), "got %s", in)
		if in.ID == end.ID {
			return
		}
	}
}

func feedTwo(_ context.Context, t *T) {
	a, b := newTrace(), newTrace()
	owner, watcher := t.Open(), t.Open()
	first, second := watcher.feed(ofTrace(a)), watcher.feed(ofTrace(b))
	t.Want("a subscription has an id of its own", first.ID != second.ID, "both are %s", first.ID)
	first.Expect("an event comes to its subscription", owner.echo(a).Events...)
	second.Expect("an event comes to its subscription", owner.echo(b).Events...)
	third := watcher.feed(ofTrace(a))
	copies := map[arcp.SubscriptionID][]arcp.MessageID{}
	job := owner.echo(a)
	for range 2 * len(job.Events) {
		f := watcher.event("an event comes to each of its subscriptions")
		watcher.match("an event comes to each of its subscriptions", f, arcp.SubscribeEvent, "")
		in, _ := f.forwarded() // the validator has read it
		copies[f.SubscriptionID] = append(copies[f.SubscriptionID], in.ID)
	}
	t.Want("both get the same", slices.Equal(copies[first.ID], copies[third.ID]), "got %v", copies)
}

func feedUnsubscribe(_ context.Context, t *T) {
	trace := newTrace()
	owner, watcher := t.Open(), t.Open()
	feed := watcher.feed(ofTrace(trace))
	feed.Expect("the subscription works", owner.echo(trace).Events...)
	watcher.Send(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: feed.ID})
	watcher.ExpectNothing("unsubscribe has no answer")
	next := watcher.feed(ofTrace(trace)) // the clock of the old one
	for range 2 {
		next.Expect("nothing of the old subscription comes any more", owner.echo(trace).Events...)
	}
}

func feedUnsubscribeUnknown(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	foreign := other.feed(ofTrace(newTrace()))
	for _, id := range []arcp.SubscriptionID{"sub_00000000000000000000000000", foreign.ID} {
		c.ExpectNack("what is not there cannot end", c.Send(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: id}), arcp.CodeNotFound)
	}
	c.ExpectNack("an id has its prefix", c.Send(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: "nope"}), arcp.CodeInvalidArgument)
}

func feedConnection(_ context.Context, t *T) {
	trace := newTrace()
	owner, watcher := t.Open(), t.Open()
	feed := watcher.feed(ofTrace(trace))
	watcher = watcher.Cut()
	id := watcher.Send(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: feed.ID})
	watcher.ExpectNack("the subscription is gone", id, arcp.CodeNotFound)
	watcher.feed(ofTrace(trace)).Expect("nothing of the old subscription comes", owner.echo(trace).Events...)
}
