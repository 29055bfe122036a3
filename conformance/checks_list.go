package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// list asks for one page.
func (c *Conn) list(p arcp.SessionListJobsPayload) arcp.SessionJobsPayload {
	id := c.Send(arcp.SessionListJobs, p)
	f := c.Await("session.list_jobs is answered", arcp.SessionJobs, id)
	page := payload[arcp.SessionJobsPayload](c.t, f)
	want(c.t, "the page names its request", page.RequestID, id)
	return page
}

// listAll asks for all pages. A server that bounds its work may answer with a
// page that has few jobs or none, as long as the cursor moves on.
func (c *Conn) listAll(filter arcp.JobFilter, limit uint32) []arcp.JobEntry {
	var all []arcp.JobEntry
	p := arcp.SessionListJobsPayload{Filter: &filter, Limit: &limit}
	for {
		page := c.list(p)
		all = append(all, page.Jobs...)
		c.t.Want("a page is not longer than asked for", len(page.Jobs) <= int(limit), "got %d jobs, want at most %d", len(page.Jobs), limit)
		if page.NextCursor == nil {
			return all
		}
		c.t.Want("the cursor moves on", *page.NextCursor != "" && *page.NextCursor != p.Cursor, "it is %q again", p.Cursor)
		p.Cursor = *page.NextCursor
	}
}

// entry finds a job in the list, or returns nil.
func (c *Conn) entry(job arcp.JobID, session arcp.SessionID) *arcp.JobEntry {
	for _, e := range c.listAll(arcp.JobFilter{SessionID: session}, 1000) {
		if e.JobID == job {
			return &e
		}
	}
	return nil
}

// lists reports whether a job is listed.
func (c *Conn) lists(job arcp.JobID, session arcp.SessionID) bool {
	return c.entry(job, session) != nil
}

// here selects the jobs of the connection's own session, so that checks which
// run at the same time do not meet.
func (c *Conn) here() arcp.JobFilter { return arcp.JobFilter{SessionID: c.Session} }

// echoes runs demo.echo n times and returns the jobs.
func (c *Conn) echoes(n int) []arcp.JobID {
	var ids []arcp.JobID
	for range n {
		ids = append(ids, c.Invoke("demo.echo", map[string]any{}).ID)
	}
	return ids
}

// wantJobs wants a list to be exactly these jobs in this order.
func (t *T) wantJobs(why string, got []arcp.JobEntry, expected ...arcp.JobID) {
	ids := make([]arcp.JobID, len(got))
	for i, e := range got {
		ids[i] = e.JobID
	}
	want(t, why, fmt.Sprint(ids), fmt.Sprint(append([]arcp.JobID{}, expected...)))
}

func listAnswer(_ context.Context, t *T) {
	c := t.Open()
	filter := c.here()
	id := c.Send(arcp.SessionListJobs, arcp.SessionListJobsPayload{Filter: &filter})
	f := c.Expect("session.list_jobs is answered", arcp.SessionJobs, id)
	p := payload[arcp.SessionJobsPayload](t, f)
	want(t, "the page names its request", p.RequestID, id)
	t.Want("a page has a cursor or says with null that it is the last", hasMember(f.Payload, "next_cursor"), "got %s", f.Payload)
	c.ExpectNothing("one request has one answer")
	want(t, "a new session has no jobs", len(c.listAll(filter, 100)), 0)
}

func listEntry(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.echo", map[string]any{}, func(env *arcp.Envelope) { env.TraceID = "trace_list" })
	e := c.entry(job.ID, c.Session)
	t.Want("a job is listed", e != nil, "it is not")
	want(t, "the tool is resolved", e.Agent, "demo.echo@1.0.0")
	want(t, "the job has ended", e.Status, string(arcp.StateCompleted))
	want(t, "the last number is the end's", e.LastEventSeq, job.End().EventSeq)
	t.Want("a job knows when it was made", !e.CreatedAt.IsZero(), "created_at is %v", e.CreatedAt)
	if e.TraceID != "" {
		want(t, "the trace is the submit's", e.TraceID, "trace_list")
	}
}

func listOrder(_ context.Context, t *T) {
	c := t.Open()
	ids := c.echoes(5)
	t.wantJobs("jobs are listed oldest first", c.listAll(c.here(), 100), ids...)
}

func listAcrossSessions(_ context.Context, t *T) {
	a, b := t.Open(), t.Open()
	id := a.echoes(1)[0]
	t.Want("jobs belong to the principal", b.lists(id, a.Session), "another session does not list it")
	t.wantJobs("a filter by session leaves out the others", b.listAll(b.here(), 100))
}

func listOwnPrincipal(_ context.Context, t *T) {
	owner, stranger := t.Open(), t.Open(as(t.target.OtherToken))
	id := owner.echoes(1)[0]
	t.Want("jobs are seen by their principal only", !stranger.lists(id, "") && !stranger.lists(id, owner.Session), "a stranger lists it")
}

func listFilterStatus(_ context.Context, t *T) {
	c := t.Open()
	done := c.echoes(1)[0]
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	running := c.AwaitStarted(submit)
	by := func(status ...string) []arcp.JobEntry {
		f := c.here()
		f.Status = status
		return c.listAll(f, 100)
	}
	t.wantJobs("completed", by("completed"), done)
	t.wantJobs("running", by("running"), running)
	t.wantJobs("any of several", by("completed", "running"), done, running)
	t.wantJobs("a state without jobs", by("cancelled"))
	t.wantJobs("a word that is no state matches nothing", by("exploded"))
	t.wantJobs("an empty list is no filter", by(), done, running)
	c.Cancel(running, 5000)
	c.Follow(submit)
	t.wantJobs("cancelled", by("cancelled"), running)
}

func listFilterAgent(_ context.Context, t *T) {
	c := t.Open()
	current := c.echoes(1)[0]
	old := c.Invoke("demo.echo@0.9.0", map[string]any{}).ID
	sleep := c.Invoke("demo.sleep", map[string]any{"ms": 0}).ID
	by := func(agent string) []arcp.JobEntry {
		f := c.here()
		f.Agent = agent
		return c.listAll(f, 100)
	}
	t.wantJobs("a bare name means every version", by("demo.echo"), current, old)
	t.wantJobs("a version means this one", by("demo.echo@0.9.0"), old)
	t.wantJobs("another tool", by("demo.sleep"), sleep)
	t.wantJobs("no such tool", by("demo"))
}

func listFilterTime(_ context.Context, t *T) {
	c := t.Open()
	c.echoes(3)
	all := c.listAll(c.here(), 100)
	want(t, "all are listed", len(all), 3)
	first, last := all[0].CreatedAt, all[2].CreatedAt
	count := func(after, before time.Time) int {
		f := c.here()
		f.CreatedAfter, f.CreatedBefore = after, before
		return len(c.listAll(f, 100))
	}
	want(t, "after a time before all", count(first.Add(-time.Hour), time.Time{}), 3)
	want(t, "after the last", count(last, time.Time{}), 0)
	want(t, "before the first", count(time.Time{}, first), 0)
	want(t, "before a time after all", count(time.Time{}, last.Add(time.Hour)), 3)
	want(t, "between", count(first.Add(-time.Hour), last.Add(time.Hour)), 3)
	if first.Before(all[1].CreatedAt) && all[1].CreatedAt.Before(last) {
		want(t, "strictly between the first and the last", count(first, last), 1)
	}
}

func listPaging(_ context.Context, t *T) {
	c := t.Open()
	ids := c.echoes(7)
	for _, limit := range []uint32{1, 3, 7, 100} {
		t.wantJobs(fmt.Sprintf("pages of %d", limit), c.listAll(c.here(), limit), ids...)
	}

	limit, filter := uint32(3), c.here()
	page := c.firstJobs(&filter, limit)
	ids = append(ids, c.echoes(2)...)
	rest := page.Jobs
	for page.NextCursor != nil {
		page = c.list(arcp.SessionListJobsPayload{Filter: &filter, Limit: &limit, Cursor: *page.NextCursor})
		rest = append(rest, page.Jobs...)
	}
	t.wantJobs("jobs added meanwhile come after", rest, ids...)
}

func listLimitZero(_ context.Context, t *T) {
	c := t.Open()
	id := c.Send(arcp.SessionListJobs, arcp.Raw(`{"limit":0}`))
	c.ExpectNack("nothing is not a page", id, arcp.CodeInvalidRequest)
}

func listLimitLarge(_ context.Context, t *T) {
	c := t.Open()
	for _, limit := range []string{"1000", "1001", "4294967295"} {
		id := c.Send(arcp.SessionListJobs, arcp.Raw(`{"limit":`+limit+`}`))
		f := c.Expect("a large limit is reduced", arcp.SessionJobs, id)
		n := len(payload[arcp.SessionJobsPayload](t, f).Jobs)
		t.Want("a page has at most 1000 jobs", n <= 1000, "got %d", n)
	}
}

// halfway returns a cursor in the middle of the session's jobs.
func (c *Conn) halfway() (filter arcp.JobFilter, cursor string) {
	c.echoes(3)
	filter = c.here()
	return filter, *c.firstJobs(&filter, 1).NextCursor
}

// firstJobs returns the first page that has jobs; there must be more after it.
func (c *Conn) firstJobs(filter *arcp.JobFilter, limit uint32) arcp.SessionJobsPayload {
	p := arcp.SessionListJobsPayload{Filter: filter, Limit: &limit}
	for {
		page := c.list(p)
		c.t.Want("there is more", page.NextCursor != nil && *page.NextCursor != p.Cursor, "the page says it is the last, or does not move on")
		if len(page.Jobs) > 0 {
			return page
		}
		p.Cursor = *page.NextCursor
	}
}

// badCursor wants a list with the cursor to be refused.
func (c *Conn) badCursor(why string, filter *arcp.JobFilter, cursor string) {
	id := c.Send(arcp.SessionListJobs, arcp.SessionListJobsPayload{Filter: filter, Limit: new(uint32(1)), Cursor: cursor})
	c.ExpectNack(why, id, arcp.CodeInvalidRequest)
}

func listCursorBad(_ context.Context, t *T) {
	c := t.Open()
	filter, cursor := c.halfway()
	for _, bad := range []string{"x", "not a cursor", "AAAA", "e30", "é"} {
		c.badCursor("a cursor is not made up", &filter, bad)
	}
	for i := 0; i < len(cursor)-2; i += max(1, len(cursor)/8) { // the last digits may carry unused bits
		changed := []byte(cursor)
		changed[i] ^= 'A' ^ 'B'
		c.badCursor("a cursor is not changed", &filter, string(changed))
	}
	c.badCursor("a cursor is not cut", &filter, cursor[:len(cursor)/2])
}

func listCursorOtherFilter(_ context.Context, t *T) {
	c := t.Open()
	filter, cursor := c.halfway()
	other := filter
	other.Agent = "demo.echo"
	c.badCursor("a cursor goes with its filter", &other, cursor)
	page := c.list(arcp.SessionListJobsPayload{Filter: &filter, Limit: new(uint32(1)), Cursor: cursor})
	want(t, "and is still good with it", len(page.Jobs), 1)
}

func listCursorOtherPrincipal(_ context.Context, t *T) {
	owner, stranger := t.Open(), t.Open(as(t.target.OtherToken))
	filter, cursor := owner.halfway()
	stranger.badCursor("a cursor goes with its principal", &filter, cursor)
}

func listUnnumbered(_ context.Context, t *T) {
	c := t.Open()
	first := c.Invoke("demo.echo", map[string]any{})
	for range 3 {
		c.list(arcp.SessionListJobsPayload{})
	}
	second := c.Invoke("demo.echo", map[string]any{})
	want(t, "lists use up no number", second.Event(0).EventSeq, first.End().EventSeq+1)
}
