package conformance

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Checks run at the same time as one principal, so they look only at their own
// agents.

// hostAgent is what the tools say of an agent.
type hostAgent struct {
	ID           string         `json:"id"`
	Name         string         `json:"name"`
	Kind         string         `json:"kind"`
	Capabilities arcp.Raw       `json:"capabilities"`
	Project      string         `json:"project"`
	PID          int64          `json:"pid"`
	Display      arcp.Raw       `json:"display"`
	Metadata     arcp.Raw       `json:"metadata"`
	Status       string         `json:"status"`
	CurrentTask  string         `json:"current_task"`
	SessionID    arcp.SessionID `json:"session_id"`
}

// hostEvent is an event of agents and approvals.
type hostEvent struct {
	ID        string    `json:"id"`
	Timestamp time.Time `json:"timestamp"`
	Kind      string    `json:"kind"`
	AgentID   string    `json:"agent_id"`
	Message   string    `json:"message"`
	Payload   arcp.Raw  `json:"payload"`
}

// agentID is an id that no other check has.
func agentID() string { return "conformance-" + string(arcp.NewMessageID()) }

// registered registers an agent.
func (c *Conn) registered(id string, with ...func(map[string]any)) (a hostAgent) {
	args := map[string]any{"id": id, "name": "tester", "kind": "test"}
	for _, change := range with {
		change(args)
	}
	c.call(&a, "host.register_agent", args)
	return a
}

// does says what an agent does.
func (c *Conn) does(id, status string, with ...func(map[string]any)) (a hostAgent) {
	args := map[string]any{"agent_id": id, "status": status}
	for _, change := range with {
		change(args)
	}
	c.call(&a, "host.set_status", args)
	return a
}

func (c *Conn) unregister(id string) {
	var result any
	c.call(&result, "host.unregister_agent", map[string]any{"agent_id": id})
}

// agents lists every agent of the principal, page by page.
func (c *Conn) agents(limit int) (all []hostAgent) {
	args := map[string]any{"limit": limit}
	for {
		var page struct {
			Items      []hostAgent `json:"items"`
			NextCursor string      `json:"next_cursor"`
		}
		c.call(&page, "host.agents", args)
		c.t.Want("a page holds no more than was asked for", len(page.Items) <= limit, "it holds %d", len(page.Items))
		for _, a := range page.Items {
			c.t.Want("an agent is listed once", !slices.ContainsFunc(all, func(b hostAgent) bool { return a.ID == b.ID }), "%s is listed twice", a.ID)
			all = append(all, a)
		}
		if page.NextCursor == "" {
			return all
		}
		args["cursor"] = page.NextCursor
	}
}

// agent is an agent as it is listed; zero if it is not.
func (c *Conn) agent(id string) hostAgent {
	all := c.agents(1000)
	if i := slices.IndexFunc(all, func(a hostAgent) bool { return a.ID == id }); i >= 0 {
		return all[i]
	}
	return hostAgent{}
}

// refusesHost wants a tool of the host to fail with a code.
func (c *Conn) refusesHost(why, tool string, args map[string]any, code arcp.Code) *Frame {
	f := c.Invoke("host."+tool, args).End()
	want(c.t, why, f.Type, arcp.JobFailed)
	c.t.wantCode(why, f, code)
	return f
}

func hostRegister(_ context.Context, t *T) {
	c, id := t.Open(), agentID()
	got := c.registered(id, argument("capabilities", []string{"go", "sql"}), argument("project", "site"), argument("pid", 4711),
		argument("display", arcp.Raw(`{"label":"T","icon":"i","accent":"#fff"}`)), argument("metadata", arcp.Raw(`{"n":1.50}`)))
	for _, a := range []hostAgent{got, t.Open().agent(id)} {
		want(t, "it has its id", a.ID, id)
		want(t, "and name", a.Name, "tester")
		want(t, "and kind", a.Kind, "test")
		want(t, "and capabilities", string(a.Capabilities), `["go","sql"]`)
		want(t, "and project", a.Project, "site")
		want(t, "and process", a.PID, 4711)
		want(t, "and display", string(a.Display), `{"label":"T","icon":"i","accent":"#fff"}`)
		want(t, "and metadata, to the digit", string(a.Metadata), `{"n":1.50}`)
		want(t, "it is idle", a.Status, "idle")
		want(t, "it is its session's", a.SessionID, c.Session)
	}
	c.unregister(id)
	want(t, "one that is unregistered is not listed", c.agent(id).ID, "")
	c.refusesHost("it is not there any more", "unregister_agent", map[string]any{"agent_id": id}, arcp.CodeNotFound)
}

var newAgentID = regexp.MustCompile(`^agent-[0-9a-f]{12}$`)

func hostNewID(_ context.Context, t *T) {
	c := t.Open()
	var a, b hostAgent
	c.call(&a, "host.register_agent", map[string]any{"name": "tester", "kind": "test"})
	c.call(&b, "host.register_agent", map[string]any{"name": "tester", "kind": "test"})
	t.Want("an id is agent- and 12 hex digits", newAgentID.MatchString(a.ID), "it is %q", a.ID)
	t.Want("two agents have two ids", a.ID != b.ID, "both are %s", a.ID)
	c.unregister(a.ID)
	c.unregister(b.ID)
}

func hostWrong(_ context.Context, t *T) {
	c, id := t.Open(), agentID()
	for what, args := range map[string]map[string]any{
		"no name": {"kind": "k"}, "no kind": {"name": "n"}, "an id with a space": {"id": "a b", "name": "n", "kind": "k"},
		"metadata that is no object": {"name": "n", "kind": "k", "metadata": 1}, "capabilities that are a text": {"name": "n", "kind": "k", "capabilities": "go"},
		"large metadata":      {"name": "n", "kind": "k", "metadata": map[string]any{"x": strings.Repeat("x", 16<<10)}},
		"a name of no tool":   {"name": "n", "kind": "k", "executes": []string{"a@b@c"}},
		"a tool of no number": {"name": "n", "kind": "k", "executes": []string{"tool"}},
	} {
		c.refusesHost(what, "register_agent", args, arcp.CodeInvalidArgument)
	}
	c.registered(id)
	c.refusesHost("a status that is none", "set_status", map[string]any{"agent_id": id, "status": "busy"}, arcp.CodeInvalidArgument)
	want(t, "it changes nothing", c.agent(id).Status, "idle")
	c.refusesHost("a cursor that is none", "agents", map[string]any{"cursor": "AAAA"}, arcp.CodeInvalidArgument)
	c.refusesHost("more events than are kept", "events", map[string]any{"limit": 501}, arcp.CodeInvalidArgument)
	c.unregister(id)
}

func hostStatus(_ context.Context, t *T) {
	c, other, id := t.Open(), t.Open(), agentID()
	c.registered(id)
	task := argument("current_task", "tests")
	want(t, "the task is returned", c.does(id, "running", task).CurrentTask, "tests")
	for _, status := range []string{"waiting_for_approval", "paused", "completed", "errored", "stopped", "running", "idle"} {
		want(t, "the status is returned", c.does(id, status).Status, status)
		a := other.agent(id)
		want(t, "and seen by others", a.Status, status)
		want(t, "a task that is left out stays", a.CurrentTask, "tests")
	}
	c.does(id, "idle", argument("current_task", ""))
	want(t, "an empty one is none", other.agent(id).CurrentTask, "")
	c.unregister(id)
}

func hostOwner(_ context.Context, t *T) {
	c, other, id := t.Open(), t.Open(), agentID()
	c.registered(id)
	c.does(id, "running")
	for tool, args := range map[string]map[string]any{"register_agent": {"id": id, "name": "n", "kind": "k"},
		"set_status": {"agent_id": id, "status": "idle"}, "unregister_agent": {"agent_id": id}} {
		f := other.refusesHost("only its session changes an agent: "+tool, tool, args, arcp.CodePermissionDenied)
		message := payload[arcp.ErrorPayload](t, f).Message
		t.Want("the refusal says why", strings.Contains(message, "owned by another session"), "it says %q", message)
	}
	a := c.agent(id)
	want(t, "it is not touched", fmt.Sprint(a.Status, " ", a.Name, " ", a.SessionID), fmt.Sprint("running tester ", c.Session))
	c.unregister(id)
}

func hostAgain(_ context.Context, t *T) {
	c, id := t.Open(), agentID()
	c.registered(id, argument("project", "site"))
	c.does(id, "errored", argument("current_task", "tests"))
	c.registered(id)
	a := c.agent(id)
	want(t, "registering again makes it idle", a.Status, "idle")
	want(t, "without a task", a.CurrentTask, "")
	want(t, "and replaces what it was", a.Project, "")
	c.unregister(id)
}

func hostUnknown(_ context.Context, t *T) {
	c := t.Open()
	c.refusesHost("no such agent", "set_status", map[string]any{"agent_id": agentID(), "status": "idle"}, arcp.CodeNotFound)
	c.refusesHost("no such agent", "unregister_agent", map[string]any{"agent_id": agentID()}, arcp.CodeNotFound)
}

func hostForeign(_ context.Context, t *T) {
	c, stranger, id := t.Open(), t.Open(as(t.target.OtherToken)), agentID()
	c.registered(id)
	want(t, "nobody sees another principal's agents", stranger.agent(id).ID, "")
	stranger.refusesHost("what one may not see is not there", "set_status", map[string]any{"agent_id": id, "status": "idle"}, arcp.CodeNotFound)
	stranger.refusesHost("what one may not see is not there", "unregister_agent", map[string]any{"agent_id": id}, arcp.CodeNotFound)
	for _, e := range stranger.hostEvents(500) {
		t.Want("nor its events", e.AgentID != id, "%s is there", e.ID)
	}
	want(t, "an id belongs to one principal", stranger.registered(id).SessionID, stranger.Session)
	want(t, "and its namesake is not touched", c.agent(id).SessionID, c.Session)
	stranger.unregister(id)
	c.unregister(id)
}

func hostPages(_ context.Context, t *T) {
	c := t.Open()
	var ids []string
	for i := range 5 {
		ids = append(ids, agentID())
		c.registered(ids[i], argument("name", "pages"))
	}
	all := c.agents(2)
	sorted := slices.IsSortedFunc(all, func(a, b hostAgent) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	t.Want("agents are listed by name, then id", sorted, "they are not")
	for _, id := range ids {
		t.Want("every agent is listed", slices.ContainsFunc(all, func(a hostAgent) bool { return a.ID == id }), "%s is not", id)
		c.unregister(id)
	}
}

func hostReconnect(_ context.Context, t *T) {
	c, other, id := t.Open(), t.Open(), agentID()
	c.registered(id)
	c.Drop()
	other.refusesHost("it is owned also without a connection", "set_status", map[string]any{"agent_id": id, "status": "running"}, arcp.CodePermissionDenied)
	c = c.Resume(c.rec.last())
	want(t, "its session goes on with it", c.does(id, "running").Status, "running")
	c.unregister(id)
}

func hostSessionEnd(_ context.Context, t *T) {
	c, other, id := t.Open(), t.Open(), agentID()
	c.registered(id)
	c.does(id, "running")
	c.Await("session.close is answered", arcp.SessionClosed, c.Send(arcp.SessionClose, arcp.SessionClosePayload{Reason: "done", Forget: true}))
	c.Drop()
	for late := t.late(); other.agent(id).Status != "stopped" && time.Now().Before(late); {
		continue
	}
	want(t, "an agent whose session has ended is stopped", other.agent(id).Status, "stopped")
	other.refusesHost("nobody says what it does", "set_status", map[string]any{"agent_id": id, "status": "running"}, arcp.CodePermissionDenied)
	want(t, "its id is free", other.registered(id).SessionID, other.Session)
	other.unregister(id)
}

// hostEvents is what host.events returns.
func (c *Conn) hostEvents(limit int) []hostEvent {
	var page struct {
		Items []hostEvent `json:"items"`
	}
	c.call(&page, "host.events", map[string]any{"limit": limit})
	c.t.Want("there are no more events than were asked for", len(page.Items) <= limit, "there are %d", len(page.Items))
	for _, e := range page.Items {
		c.complete(e)
	}
	return page.Items
}

// complete wants an event to be complete.
func (c *Conn) complete(e hostEvent) {
	c.t.Want("an event has an id of its own kind", strings.HasPrefix(e.ID, "event-"), "it is %q", e.ID)
	c.t.Want("an event has a time, a kind, a message and a payload", !e.Timestamp.IsZero() && e.Kind != "" && e.Message != "" && len(e.Payload) > 0, "it is %+v", e)
}

// of are the events of an agent.
func eventsOf(events []hostEvent, id string) (list []hostEvent) {
	return slices.DeleteFunc(slices.Clone(events), func(e hostEvent) bool { return e.AgentID != id })
}

func kinds(events []hostEvent) string {
	var list []string
	for _, e := range events {
		list = append(list, e.Kind)
	}
	return strings.Join(list, " ")
}

func hostEvents(_ context.Context, t *T) {
	c, other, id := t.Open(), t.Open(), agentID()
	c.registered(id)
	c.does(id, "running")
	c.unregister(id)
	want(t, "the newest event is the first", kinds(eventsOf(other.hostEvents(500), id)), "agent.unregistered agent.status_changed agent.registered")
	want(t, "no more are returned than were asked for", len(other.hostEvents(1)), 1)
}

func hostPayload(_ context.Context, t *T) {
	c, id := t.Open(), agentID()
	c.registered(id)
	c.does(id, "running")
	c.does(id, "paused", argument("message", "lunch"), argument("payload", arcp.Raw(`{"until":1.50}`)))
	events := eventsOf(c.hostEvents(500), id)
	want(t, "there is an event of each", kinds(events), "agent.status_changed agent.status_changed agent.registered")
	want(t, "a message is the one that was given", events[0].Message, "lunch")
	want(t, "and so is a payload", string(events[0].Payload), `{"until":1.50}`)
	for i, status := range map[int]string{1: "running", 2: "idle"} {
		var a hostAgent
		if err := arcp.Unmarshal(events[i].Payload, &a); err != nil {
			t.Failf("the payload of %s: %v", events[i].Kind, err)
		}
		want(t, "without one it is the agent", a.ID+" "+a.Status, id+" "+status)
	}
	c.unregister(id)
}

// watching is a job of host.subscribe.
type watching struct {
	c   *Conn
	job arcp.JobID
	ids map[string]bool
}

// watched begins a subscription and returns what there was.
func (c *Conn) watched() (w *watching, agents []hostAgent, approvals []approval, events []hostEvent) {
	w = &watching{c, c.AwaitAccepted(c.Submit("host.subscribe", map[string]any{"limit": 500})), map[string]bool{}}
	for more := true; more; {
		var part struct {
			Agents    []hostAgent `json:"agents"`
			Approvals []approval  `json:"approvals"`
			Events    []hostEvent `json:"events"`
			More      bool        `json:"more"`
		}
		name := w.emitted(&part)
		want(c.t, "a snapshot comes first", name, "host.snapshot")
		agents, approvals, events = append(agents, part.Agents...), append(approvals, part.Approvals...), append(events, part.Events...)
		more = part.More
	}
	for _, e := range events {
		w.note(e)
	}
	return w, agents, approvals, events
}

// emitted reads the next event.emit of the subscription.
func (w *watching) emitted(data any) (name string) {
	p := payload[arcp.EventEmitPayload](w.c.t, w.c.about("host.subscribe goes on", arcp.EventEmit, w.job))
	if err := arcp.Unmarshal(p.Data, data); err != nil {
		w.c.t.Failf("%s is %s: %v", p.Name, p.Data, err)
	}
	return p.Name
}

// note wants an event to be new and complete.
func (w *watching) note(e hostEvent) {
	w.c.complete(e)
	w.c.t.Want("an event comes once", !w.ids[e.ID], "%s comes twice", e.ID)
	w.ids[e.ID] = true
}

// until reads until an event comes that selects picks.
func (w *watching) until(selects func(e hostEvent) bool) hostEvent {
	for {
		var e hostEvent
		want(w.c.t, "events follow", w.emitted(&e), "host.event")
		w.note(e)
		if selects(e) {
			return e
		}
	}
}

// stop cancels the subscription.
func (w *watching) stop() {
	w.c.Cancel(w.job, 1000)
	w.c.about("a subscription ends when it is cancelled", arcp.JobCancelled, w.job)
}

func hostSubscribe(_ context.Context, t *T) {
	c, watcher, id := t.Open(), t.Open(), agentID()
	c.registered(id)
	w, agents, _, events := watcher.watched()
	t.Want("the snapshot has the agent", slices.ContainsFunc(agents, func(a hostAgent) bool { return a.ID == id }), "it has not")
	want(t, "and its event", kinds(eventsOf(events, id)), "agent.registered")
	mine := func(e hostEvent) bool { return e.AgentID == id }
	for i := range 20 {
		c.does(id, "running", argument("payload", i))
	}
	c.unregister(id)
	for i := range 20 {
		e := w.until(mine)
		want(t, "events come in order", e.Kind+" "+string(e.Payload), fmt.Sprint("agent.status_changed ", i))
	}
	want(t, "up to the last", w.until(mine).Kind, "agent.unregistered")
	w.stop()
}

func hostApprovals(_ context.Context, t *T) {
	c, watcher := t.Open(), t.Open()
	before := c.requested()
	w, _, approvals, _ := watcher.watched()
	t.Want("the snapshot has what is pending", slices.ContainsFunc(approvals, func(a approval) bool { return a.ID == before.ID && a.Status == "pending" }), "it has not")
	after := c.requested()
	about := func(id string) func(e hostEvent) bool {
		return func(e hostEvent) bool { return strings.Contains(string(e.Payload), id) }
	}
	want(t, "an approval that is asked for is told of", w.until(about(after.ID)).Kind, "approval.requested")
	c.approval("resolve", before.ID, argument("approved", true))
	e := w.until(about(before.ID))
	var a approval
	if err := arcp.Unmarshal(e.Payload, &a); err != nil {
		t.Failf("%s: %v", e.Payload, err)
	}
	want(t, "and so is one that is resolved", e.Kind+" "+a.Resolution, "approval.resolved approve")
	c.approval("resolve", after.ID, argument("approved", false))
	w.until(about(after.ID))
	w.stop()
}

// hostFrames reads the next n events of the host that the subscription brings of
// an agent, and what it brings between them of the jobs that the calls of c were.
func (d *Feed) hostFrames(c *Conn, id string, n int) (frames []*Frame) {
	for seen := 0; seen < n; {
		in := d.next("what happens to an agent comes")
		switch {
		case in.isHost() && d.c.hostEvent(in).AgentID == id:
			seen++
			frames = append(frames, in)
		case in.Type == arcp.JobCompleted && in.SessionID == c.Session:
			frames = append(frames, in)
		}
	}
	return frames
}

// hostEvent is the event in an envelope, which is to be complete.
func (c *Conn) hostEvent(in *Frame) (e hostEvent) {
	p := payload[arcp.EventEmitPayload](c.t, in)
	if err := arcp.Unmarshal(p.Data, &e); err != nil {
		c.t.Failf("%s is %s: %v", p.Name, p.Data, err)
	}
	c.complete(e)
	return e
}

var ofHost = arcp.EventFilter{Types: []arcp.Type{arcp.EventEmit, arcp.JobCompleted}}

func hostFeed(_ context.Context, t *T) {
	c, stranger, id := t.Open(), t.Open(as(t.target.OtherToken)), agentID()
	feed, foreign := t.Open().feed(ofHost), t.Open(as(t.target.OtherToken)).feed(arcp.EventFilter{Types: []arcp.Type{arcp.EventEmit}})
	c.registered(id)
	for i := range 5 {
		c.does(id, "running", argument("payload", i))
	}
	c.unregister(id)
	frames := feed.hostFrames(c, id, 7)
	want(t, "each is followed by the end of the call that made it", len(frames), 13)
	feed.c.Drop() // who is sent what everybody does must read it, or go
	ids := map[arcp.MessageID]bool{}
	for i, f := range frames {
		t.Want("each comes once", !ids[f.ID], "%s comes twice", f)
		ids[f.ID] = true
		if want(t, "each is followed by the end of the call that made it", f.isHost(), i%2 == 0); !f.isHost() {
			continue
		}
		e := c.hostEvent(f)
		switch i {
		case 0:
			want(t, "events come in order", e.Kind, "agent.registered")
		case 12:
			want(t, "up to the last", e.Kind, "agent.unregistered")
		default:
			want(t, "events come in order", e.Kind+" "+string(e.Payload), fmt.Sprint("agent.status_changed ", i/2-1))
		}
	}
	stranger.registered(id)
	in := foreign.next("another principal's own events come to it")
	for !in.isHost() || c.hostEvent(in).AgentID != id {
		in = foreign.next("another principal's own events come to it")
	}
	var a hostAgent
	if err := arcp.Unmarshal(c.hostEvent(in).Payload, &a); err != nil {
		t.Failf("%s: %v", in, err)
	}
	want(t, "and nobody else's before them", a.SessionID, stranger.Session)
	stranger.unregister(id)
}

func hostFeedFilter(_ context.Context, t *T) {
	c, watcher, id, trace := t.Open(), t.Open(), agentID(), newTrace()
	for _, filter := range []arcp.EventFilter{{JobID: []arcp.JobID{nobodysJob}}, {SessionID: []arcp.SessionID{watcher.Session}}, ofTrace(newTrace()),
		{Types: []arcp.Type{"x-none"}}} {
		watcher.feed(filter)
	}
	feed := watcher.feed(ofTrace(trace)) // the clock of the others
	c.registered(id)
	c.unregister(id)
	feed.Expect("a filter that an event does not agree with brings nothing", c.echo(trace).Events...)
}

func hostFeedSince(_ context.Context, t *T) {
	c, watcher, id := t.Open(), t.Open(), agentID()
	feed := watcher.feed(ofHost)
	c.registered(id)
	for i := range 3 {
		c.does(id, "running", argument("payload", i))
	}
	frames := feed.hostFrames(c, id, 4)
	watcher.Drop() // who is sent what everybody does must read it, or go
	for _, i := range []int{0, 2, 3} {
		again := t.Open().feed(ofHost, frames[i].ID)
		n := 0
		for _, f := range frames[i+1:] {
			if f.isHost() {
				n++
			}
		}
		for k, f := range again.hostFrames(c, id, n) {
			t.wantOriginal("what came after it comes again, as it was", f, frames[i+1+k])
		}
		again.c.Drop()
	}
	last := t.Open().feed(arcp.EventFilter{TraceID: []string{newTrace()}}, frames[len(frames)-1].ID)
	last.ExpectMarker()
	c.unregister(id)
}

func hostLeash(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	w, _, _, _ := c.watched()
	c.Drop()
	var j struct {
		Status string `json:"status"`
	}
	for late := t.late(); j.Status != "cancelled" && time.Now().Before(late); {
		other.call(&j, "jobs.get", map[string]any{"job_id": w.job})
	}
	want(t, "a subscription ends with its connection", j.Status, "cancelled")
}

func hostRestart(ctx context.Context, t *T) {
	c, id := t.Open(), agentID()
	c.registered(id)
	c.does(id, "running", argument("current_task", "tests"))
	t.Restart(ctx)
	other := t.Open()
	a := other.agent(id)
	want(t, "an agent outlives the server, and its session has no connection", a.Status+" "+a.CurrentTask, "disconnected tests")
	other.refusesHost("with its owner", "set_status", map[string]any{"agent_id": id, "status": "idle"}, arcp.CodePermissionDenied)
	c = c.Cut()
	want(t, "what it does is known again with its session", other.agent(id).Status, "running")
	want(t, "which goes on with it", c.does(id, "idle").Status, "idle")
	c.unregister(id)
}
