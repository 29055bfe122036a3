package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// observer opens a session that only observes.
func (t *T) observer(with ...func(*arcp.SessionOpenPayload)) *Conn {
	return t.Open(append(with, as(t.target.ObserverToken))...)
}

// observed opens a session of who is seen, one of who is not, and one that observes.
func (t *T) observed() (owner, stranger, watcher *Conn) {
	return t.Open(), t.Open(as(t.target.OtherToken)), t.observer()
}

// mayNot wants a command to be refused to who only observes, as the next thing that
// comes.
func (c *Conn) mayNot(id arcp.MessageID) {
	c.ExpectRefusal("who only observes commands nothing", id, arcp.CodePermissionDenied)
}

func ofSession(c *Conn) arcp.EventFilter {
	return arcp.EventFilter{SessionID: []arcp.SessionID{c.Session}}
}

func ofJobs(ids ...arcp.JobID) arcp.EventFilter { return arcp.EventFilter{JobID: ids} }

func observerSubmit(_ context.Context, t *T) {
	c := t.observer()
	tools := []string{"demo.echo", "sessions.list", "host.register_agent", "no.such.tool"}
	for _, tool := range tools {
		c.mayNot(c.Submit(tool, map[string]any{}))
	}
	for _, tool := range append(tools, "") { // the runtime's own are listed by name only
		filter := c.here()
		filter.Agent = tool
		t.wantJobs("there is no job", c.listAll(filter, 100))
	}
}

func observerCancel(_ context.Context, t *T) {
	owner, watcher := t.Human(), t.observer()
	submit, question := owner.asked()
	session := func(id arcp.SessionID) arcp.MessageID {
		return watcher.Send(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetSession, TargetID: string(id)})
	}
	watcher.mayNot(watcher.Cancel(question.JobID, 5000))
	watcher.mayNot(watcher.Cancel(nobodysJob, 5000))
	watcher.mayNot(session(owner.Session))
	watcher.mayNot(session(watcher.Session))
	if t.target.OtherToken != "" {
		stranger := t.Open(as(t.target.OtherToken))
		watcher.mayNot(session(stranger.Session))
		stranger.ExpectNothing("the session is not touched")
	}
	owner.taken(owner.respond(question, 1))
	owner.answered(submit, "1")
}

func observerInterrupt(_ context.Context, t *T) {
	owner, watcher := t.interrupter(), t.observer(offer(arcp.FeatureInterrupt))
	submit, job := owner.sleeps(arcp.SubmitOptions{})
	watcher.mayNot(watcher.sendInterrupt(job))
	watcher.mayNot(watcher.sendInterrupt(nobodysJob))
	question := owner.interrupt(job) // which one that is interrupted cannot be
	owner.taken(owner.respond(question, map[string]any{"action": "cancel"}))
	want(t, "the job is its owner's", owner.outcomeOf(submit).End().Type, arcp.JobCancelled)
}

func observerCheckpoints(_ context.Context, t *T) {
	owner, watcher := t.Open(offer(arcp.FeatureCheckpoints)), t.observer(offer(arcp.FeatureCheckpoints))
	submit, first := owner.startCount(100_000, 5)
	checkpoint := payload[arcp.JobCheckpointPayload](t, first).CheckpointID
	refused := func() {
		watcher.mayNot(watcher.Send(arcp.CheckpointCreate, arcp.CheckpointCreatePayload{}, about(first.JobID)))
		watcher.mayNot(watcher.restore(first.JobID, checkpoint))
	}
	refused()
	job := owner.finish(submit, first.JobID)
	want(t, "the job has one attempt", len(job.Of(arcp.JobStarted)), 1)
	refused() // now that it has ended, too
	t.wantJobs("there is no other", watcher.listAll(watcher.here(), 100))
}

func observerQuestions(_ context.Context, t *T) {
	owner, watcher := t.Human(), t.observer(offer(arcp.FeatureHumanInput))
	submit, question := owner.asked()
	choice, options := owner.chosen()
	late := t.observer(offer(arcp.FeatureHumanInput))
	for _, c := range []*Conn{watcher, late} {
		c.nothingAbout("who only observes is not asked", question.JobID)
		c.nothingAbout("who only observes is not asked", options.JobID)
		c.refuses("and answers nothing", c.respond(question, 1), arcp.CodePermissionDenied)
		c.refuses("and chooses nothing", c.choose(options, "a"), arcp.CodePermissionDenied)
	}
	owner.taken(owner.respond(question, 2))
	owner.answered(submit, "2")
	owner.taken(owner.choose(options, "b"))
	owner.outcomeOf(choice)
}

func observerQuestionsUnseen(_ context.Context, t *T) {
	stranger, watcher := t.Human(as(t.target.OtherToken)), t.observer(offer(arcp.FeatureHumanInput))
	submit, question := stranger.asked()
	watcher.nothingAbout("who is not seen does not ask", question.JobID)
	never := Frame{Envelope: arcp.Envelope{ID: "msg_00000000000000000000000000"}}
	there := watcher.Answer("an answer is answered", watcher.respond(question, 1))
	t.wantCode("what one may not see is not there", there, arcp.CodeNotFound)
	t.wantSame("a question that one may not see is as one that never was", there, watcher.Answer("an answer is answered", watcher.respond(&never, 1)),
		string(question.ID), string(never.ID))
	stranger.taken(stranger.respond(question, 2))
	stranger.answered(submit, "2")
}

// wantSame wants two refusals to say the same, but for what each is about.
func (t *T) wantSame(why string, a, b *Frame, ofA, ofB string) {
	want(t, why, strings.ReplaceAll(string(a.Payload), ofA, "…"), strings.ReplaceAll(string(b.Payload), ofB, "…"))
}

func observerPermissions(_ context.Context, t *T) {
	owner, watcher := t.Open(), t.observer(offer(arcp.FeatureHumanInput))
	submit, question := owner.permit(held)
	watcher.nothingAbout("who only observes is not asked", question.JobID)
	watcher.mayNot(watcher.grant(question, refund))
	watcher.mayNot(watcher.deny(question, "no"))
	l := owner.granted(question, refund)
	watcher.mayNot(watcher.refresh(l.LeaseID, 60))
	watcher.refuses("who has granted nothing takes nothing back", watcher.revoke(l.LeaseID), arcp.CodePermissionDenied, arcp.CodeNotFound)
	extended := payload[arcp.LeaseExtendedPayload](t, owner.Await("a refresh is answered with lease.extended", arcp.LeaseExtended, owner.refresh(l.LeaseID, 60)))
	t.Want("the lease is as it was granted", extended.ExpiresAt.Equal(l.ExpiresAt.Add(time.Minute)), "it ended at %v, and now at %v", l.ExpiresAt, extended.ExpiresAt)
	owner.finish(submit, question.JobID)
}

func observerApprovals(_ context.Context, t *T) {
	approver, owner, watcher := t.Human(), t.Open(), t.observer(offer(arcp.FeatureHumanInput))
	a := owner.requested(systemLevel)
	question := approver.gate(a)
	watcher.nothingAbout("who only observes is not asked", question.JobID)
	watcher.refuses("and approves nothing", watcher.choose(question, "approve"), arcp.CodePermissionDenied)
	t.observer(offer(arcp.FeatureHumanInput)).nothingAbout("nor is one that comes later", question.JobID)
	approver.taken(approver.choose(question, "deny"))
	want(t, "who may decide does", owner.outcome(a.ID), "Denied")
}

func observerTrust(_ context.Context, t *T) {
	c := t.observer()
	c.mayNot(c.elevate("privileged"))
	c.ExpectNothing("nobody is asked")
}

func observerExecutes(_ context.Context, t *T) {
	c := t.observer(offer(arcp.FeatureExecutes))
	t.Want("who only observes has not the capability", !c.Accepted.Capabilities.Flags[arcp.FeatureExecutes], "it has")
}

func observerSession(_ context.Context, t *T) {
	owner, watcher := t.Open(), t.observer()
	other := t.Open()
	owner.echoes(1) // so that the numbers of the sessions differ
	feed := watcher.feed(ofSession(owner))
	for range 3 {
		other.echoes(1)
		job := owner.Invoke("demo.emit", map[string]any{"count": 5, "bytes": 30})
		feed.Expect("every event of the session comes, in its place", job.Events...)
	}
	watcher.ExpectNothing("and nothing else")
}

func observerSessionQuestions(_ context.Context, t *T) {
	owner, person, watcher := t.Open(), t.Human(), t.observer()
	feed := watcher.feed(ofSession(owner))
	submit := owner.ask()
	question := person.about("sessions with a person are asked", arcp.HumanInputRequest, owner.AwaitStarted(submit))
	person.taken(person.respond(question, 1))
	events := owner.outcomeOf(submit).Events // that session has no person
	want(t, "the job is accepted, starts and ends", len(events), 3)
	feed.Expect("an event comes in its place", events[:2]...)
	in := feed.next("then the question comes")
	want(t, "then the question comes", in.ID, question.ID)
	want(t, "as it was asked", string(in.Payload), string(question.Payload))
	want(t, "with the session of the job", in.SessionID, owner.Session)
	want(t, "and the number of the event before", in.EventSeq, events[1].EventSeq)
	in = feed.next("then the job ends")
	for in.Type == arcp.HumanInputCancelled { // of others who were asked
		in = feed.next("then the job ends")
	}
	t.wantOriginal("then the job ends", in, events[2])
}

func observerJobs(_ context.Context, t *T) {
	owner, stranger, watcher := t.observed()
	submit, job := owner.sleeps(arcp.SubmitOptions{})
	foreign, unseen := stranger.sleeps(arcp.SubmitOptions{})
	feed := watcher.feed(ofJobs(unseen, job, nobodysJob))
	stranger.finish(foreign, unseen)
	owner.echoes(1)
	feed.Expect("events of the job that is seen come, and no others", owner.finish(submit, job).End())
	watcher.ExpectNothing("and nothing else")
}

func observerSince(_ context.Context, t *T) {
	owner, watcher := t.Open(), t.observer()
	job := owner.Invoke("demo.echo", map[string]any{})
	more := owner.Invoke("demo.echo", map[string]any{})
	feed := watcher.feed(ofSession(owner), job.Event(0).ID)
	feed.Expect("what came after the message comes", append(job.EventsFrom(1), more.Events...)...)
	feed.ExpectMarker()
	feed.Expect("then comes what happens", owner.Invoke("demo.echo", map[string]any{}).Events...)
	watcher.ExpectNothing("each comes once")
}

func observerOwnTools(_ context.Context, t *T) {
	owner, watcher, id := t.Open(), t.observer(), agentID()
	feed := watcher.feed(ofSession(owner))
	before := owner.Invoke("demo.echo", map[string]any{})
	feed.Expect("the job is seen", before.Events...)
	owner.registered(id)
	call := owner.Invoke("sessions.list", map[string]any{"limit": 1})
	owner.Completed("sessions.list ends well", call)
	owner.unregister(id)
	job := owner.Invoke("demo.echo", map[string]any{})
	feed.Expect("what is for the principal only is not brought", job.Events...)
	again := watcher.feed(ofSession(owner), before.End().ID)
	again.Expect("nor is it afterwards", job.Events...)
	again.ExpectMarker()
	named := watcher.feed(ofJobs(call.ID, job.ID), before.End().ID)
	named.Expect("nor when it is named", job.Events...)
	named.ExpectMarker()
}

func observerUnseen(_ context.Context, t *T) {
	owner, stranger, watcher := t.observed()
	job := stranger.Invoke("demo.echo", map[string]any{})
	subscribe := func(filter arcp.EventFilter, since ...arcp.MessageID) arcp.MessageID {
		p := arcp.SubscribePayload{Filter: &filter}
		if len(since) > 0 {
			p.Since = &arcp.Since{AfterMessageID: since[0]}
		}
		return watcher.Send(arcp.Subscribe, p)
	}
	watcher.ExpectNack("nobody looks at a session that is not seen", subscribe(ofSession(stranger)), arcp.CodePermissionDenied)
	both := arcp.EventFilter{SessionID: []arcp.SessionID{owner.Session, stranger.Session}}
	watcher.ExpectNack("nor beside one that is", subscribe(both), arcp.CodePermissionDenied)

	there := watcher.ExpectNack("nor at a job", subscribe(ofJobs(job.ID)), arcp.CodeNotFound)
	never := watcher.ExpectNack("nor at one that never was", subscribe(ofJobs(nobodysJob)), arcp.CodeNotFound)
	t.wantSame("a job that is not seen is as one that never was", there, never, string(job.ID), nobodysJob)

	owner.echoes(1)
	const nothing = "msg_00000000000000000000000000"
	there = watcher.ExpectNack("a message that is not seen is no position", subscribe(ofSession(owner), job.End().ID), arcp.CodeDataLoss)
	never = watcher.ExpectNack("nor is one that never was", subscribe(ofSession(owner), nothing), arcp.CodeDataLoss)
	want(t, "a message that is not seen is as one that never was", payload[arcp.ErrorPayload](t, there).Message, payload[arcp.ErrorPayload](t, never).Message)
}

func observerSeveral(_ context.Context, t *T) {
	owner, watcher := t.Open(), t.observer()
	refused := func(why string, filter arcp.EventFilter) {
		watcher.ExpectNack(why, watcher.Send(arcp.Subscribe, arcp.SubscribePayload{Filter: &filter}), arcp.CodeInvalidRequest)
	}
	refused("sessions of two principals are named", arcp.EventFilter{SessionID: []arcp.SessionID{owner.Session, watcher.Session}})
	refused("a session of one and a job of another are named", arcp.EventFilter{SessionID: []arcp.SessionID{watcher.Session}, JobID: owner.echoes(1)})
	many := make([]arcp.JobID, 1001)
	for i := range many {
		many[i] = arcp.JobID(fmt.Sprintf("job_%026d", i))
	}
	refused("very many jobs are named", ofJobs(many...))
}

func observerNoFilter(_ context.Context, t *T) {
	owner, stranger, watcher := t.observed()
	for _, p := range []string{`{}`, `{"filter":{}}`, `{"filter":{"types":["job.completed"]}}`} {
		watcher.feedOf(watcher.Send(arcp.Subscribe, arcp.Raw(p)))
	}
	feed := watcher.feed(ofSession(owner)) // the clock of the others
	for range 2 {
		stranger.echoes(1)
		feed.Expect("only the subscription that names it brings it", owner.Invoke("demo.echo", map[string]any{}).Events...)
	}
	watcher.ExpectNothing("and nothing else")
	watcher.Drop() // nobody reads it any more
}

func observerLists(_ context.Context, t *T) {
	owner, watcher := t.Open(), t.observer()
	job := owner.echoes(1)[0]
	for _, session := range []arcp.SessionID{"", owner.Session} {
		t.Want("without a name a principal's own jobs are listed", !watcher.lists(job, session), "%s is listed", job)
	}
	watcher.Await("a job of a principal that is seen is followed", arcp.JobSubscribed,
		watcher.Send(arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: job}))
	stranger := t.Open(as(t.target.OtherToken)).echoes(1)[0]
	follow := func(id arcp.JobID) *Frame {
		request := watcher.Send(arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: id, History: true})
		return watcher.ExpectNack("jobs of a principal that is not seen are not followed", request, arcp.CodeJobNotFound)
	}
	t.wantSame("a job of another principal is as one that never was", follow(stranger), follow(nobodysJob), string(stranger), nobodysJob)
}
