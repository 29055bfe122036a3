package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// feed reads a principal's feed after a position and checks that it has no gap
// and that ids ascend.
func (d *db) feed(principal string, after uint64) []store.FeedEvent {
	d.Helper()
	var out []store.FeedEvent
	err := d.Feed(context.Background(), principal, after, func(x store.FeedEvent) bool {
		out = append(out, x)
		return true
	})
	if err != nil {
		d.Fatalf("Feed(%s, %d) = %v", principal, after, err)
	}
	for i, x := range out {
		if x.Position != after+uint64(i)+1 || i > 0 && x.Event.ID() <= out[i-1].Event.ID() {
			d.Fatalf("Feed(%s, %d)[%d] has position %d and id %s", principal, after, i, x.Position, x.Event.ID())
		}
	}
	return out
}

func (d *db) bounds(principal string) [2]uint64 {
	d.Helper()
	trimmed, last, err := d.FeedBounds(context.Background(), principal)
	if err != nil {
		d.Fatalf("FeedBounds(%s) = %v", principal, err)
	}
	return [2]uint64{trimmed, last}
}

// testFeedHasAllEventsOfAPrincipal checks that a feed has all events of a principal's jobs,
// whichever sessions see them, in the order of their commits.
func testFeedHasAllEventsOfAPrincipal(t *testing.T, open Open) {
	d := openEmpty(t, open)
	checkFeed(d, func() {})
}

func testReopenedStoreHasFeeds(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	checkFeed(d, func() { d.reopen(open, dir) })
}

func checkFeed(d *db, between func()) {
	s := d.session("sess_1")
	row := jobRow("job_free", "")
	nobody := jobRow("job_nobody", s)
	nobody.Principal = ""
	results := d.batch(
		store.NewWrite(&store.SubmitJob{Row: jobRow("job_1", s)},
			&store.AppendEvents{Events: d.events("job_1", arcp.JobAccepted, arcp.JobCheckpoint)}),
		store.NewWrite(&store.SubmitJob{Row: row}, &store.AppendEvents{Events: d.events("job_free", arcp.JobAccepted)}),
		store.NewWrite(&store.SubmitJob{Row: nobody}, &store.AppendEvents{Events: d.events("job_nobody", arcp.JobAccepted)}),
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: d.events("job_1", "arcpx.test.thing")}),
		store.NewWrite(&store.DeliverUnlogged{Job: "job_1", Attempt: 1, Event: d.events("job_1", arcp.JobHeartbeat)[0]}),
	)
	for i, first := range []uint64{1, 3, 0, 4, 0} {
		if r := results[i]; r.Err != nil || r.Feed.First != first || (first == 0) != (len(r.Feed.Events) == 0) {
			d.Errorf("write %d: %v, feed %+v; want from %d", i, r.Err, r.Feed, first)
		}
	}
	between()
	r := d.finish("job_1")
	want := store.FeedRun{Principal: "ann", First: 5, Job: "job_1", Session: s, CorrelationID: "submit-job_1", Events: r.Feed.Events}
	if diff := cmp.Diff(want, r.Feed); diff != "" || len(r.Feed.Events) != 1 {
		d.Errorf("FeedRun of the end of job_1 (-want +got):\n%s", diff)
	}
	d.finish("job_free")
	between()
	var jobs []arcp.JobID
	for _, x := range d.feed("ann", 0) {
		j := d.job(x.Job)
		if x.Session != j.Session || x.CorrelationID != j.SubmitID || !sameEvent(x.Event, d.jobLog(x.Job, x.Event.JSeq-1)[0]) {
			d.Errorf("feed event %+v; want the session, submit and event of its job %s", x, x.Job)
		}
		jobs = append(jobs, x.Job)
		position, err := d.FeedPosition(context.Background(), "ann", x.Event.ID())
		if err != nil || position != x.Position {
			d.Errorf("FeedPosition = %d, %v; want %d", position, err, x.Position)
		}
	}
	if diff := cmp.Diff([]arcp.JobID{"job_1", "job_1", "job_free", "job_1", "job_1", "job_free"}, jobs); diff != "" {
		d.Errorf("jobs of the feed, in the order of the commits (-want +got):\n%s", diff)
	}
	if got := d.bounds("ann"); got != [2]uint64{0, 6} {
		d.Errorf("FeedBounds(ann) = %v, want 0 trimmed and 6 last", got)
	}
	for _, id := range []arcp.MessageID{"", arcp.NewMessageID(), d.jobLog("job_nobody", 0)[0].ID(), "msg_zzz"} {
		if _, err := d.FeedPosition(context.Background(), "ann", id); !errors.Is(err, store.ErrNotFound) {
			d.Errorf("FeedPosition(%q) = %v, want ErrNotFound", id, err)
		}
	}
	if got := d.bounds("nobody"); got != [2]uint64{} || len(d.feed("nobody", 0)) != 0 {
		d.Errorf("FeedBounds(nobody) = %v, want zeros and no events", got)
	}
}

func testTrimFeedDeletesTheStartOfAFeed(t *testing.T, open Open) {
	d := openEmpty(t, open)
	d.submit("job_1", "")
	for range 10 {
		d.emit("job_1", arcp.Log, arcp.Log)
	}
	early := d.jobLog("job_1", 0)[3].ID()
	trim := func(position uint64) {
		d.do(&store.Write{Ops: []store.Op{&store.TrimFeed{Principal: "ann", Position: position}}, NoSync: true})
	}
	trim(7)
	trim(5)
	d.do(store.NewWrite(&store.TrimFeed{Principal: "nobody", Position: 5}))
	if got := d.bounds("ann"); got != [2]uint64{7, 20} {
		t.Errorf("FeedBounds(ann) = %v, want 7 trimmed and 20 last: a smaller trim changes nothing", got)
	}
	err := d.Feed(context.Background(), "ann", 6, func(store.FeedEvent) bool { return true })
	if !errors.Is(err, store.ErrTrimmed) {
		t.Errorf("Feed after 6 = %v, want ErrTrimmed", err)
	}
	if n := len(d.feed("ann", 7)); n != 13 {
		t.Errorf("the feed has %d events after 7, want 13", n)
	}
	if _, err := d.FeedPosition(context.Background(), "ann", early); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("FeedPosition of a trimmed event = %v, want ErrNotFound", err)
	}
	wantLast := func(principal string, want uint64) {
		t.Helper()
		if r := d.do(&store.Write{Ops: []store.Op{&store.ReadFeedPosition{Principal: principal}}, NoSync: true}); r.FeedLast != want {
			t.Errorf("ReadFeedPosition(%s) = %d, want %d", principal, r.FeedLast, want)
		}
	}
	wantLast("ann", 20)
	wantLast("stranger", 0)
	trim(1000)
	wantLast("ann", 20)
	if got := d.bounds("ann"); got != [2]uint64{20, 20} || len(d.feed("ann", 20)) != 0 {
		t.Errorf("FeedBounds after everything was trimmed = %v, want 20 and 20, and no events", got)
	}
	results := d.batch(&store.Write{Ops: []store.Op{&store.ReadFeedPosition{Principal: "ann"}}, NoSync: true},
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: d.events("job_1", arcp.Log)},
			&store.ReadFeedPosition{Principal: "ann"}))
	if first, r := results[0].FeedLast, results[1]; first != 20 || r.Feed.First != 21 || r.FeedLast != 21 {
		t.Errorf("ReadFeedPosition = %d before the event at %d, and %d in its write; want 20, 21 and 21", first, r.Feed.First, r.FeedLast)
	}
}

// testFeedsAreListedInOrder checks that principals are listed in order, whatever their names contain.
func testFeedsAreListedInOrder(t *testing.T, open Open) {
	d := openEmpty(t, open)
	want := []string{"\x00", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "a", "a\x00", "a\x00\x01", "ab", "b", "über"}
	for i := range want {
		id := arcp.NewJobID()
		row := jobRow(id, "")
		row.Principal = want[(i*3+1)%len(want)]
		d.do(store.NewWrite(&store.SubmitJob{Row: row}, &store.AppendEvents{Events: d.events(id, arcp.JobAccepted, arcp.Log)}))
	}
	var got []string
	if err := d.Feeds(context.Background(), func(p string) bool { got = append(got, p); return true }); err != nil {
		t.Fatalf("Feeds = %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Feeds (-want +got):\n%s", diff)
	}
	for _, p := range want {
		if n := len(d.feed(p, 0)); n != 2 {
			t.Errorf("the feed of %q has %d events, want 2", p, n)
		}
	}
}

// testLongFeedIsReadFromAnyPosition checks that a feed with many records, some of deleted jobs, is
// read and searched from any position.
func testLongFeedIsReadFromAnyPosition(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	var deleted []*store.Write
	for i := range 300 {
		var writes []*store.Write
		for range 5 {
			id := arcp.NewJobID()
			w := store.NewWrite(&store.SubmitJob{Row: jobRow(id, s)},
				&store.AppendEvents{Events: d.events(id, arcp.JobAccepted, arcp.JobStarted, arcp.JobCompleted), State: arcp.StateCompleted})
			if writes = append(writes, w); i < 100 || i%10 == 0 {
				deleted = append(deleted, store.NewWrite(&store.DeleteJob{Job: id}))
			}
		}
		d.batch(writes...)
	}
	all := d.feed("ann", 0)
	for _, r := range d.batch(deleted...) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	gone := map[arcp.JobID]bool{}
	for _, w := range deleted {
		gone[store.Find[*store.DeleteJob](w).Job] = true
	}
	for i := 0; i < len(all); i += 7 {
		x := all[i]
		position, err := d.FeedPosition(t.Context(), "ann", x.Event.ID())
		if gone[x.Job] != errors.Is(err, store.ErrNotFound) || err == nil && position != x.Position {
			t.Fatalf("FeedPosition of %d (deleted: %v) = %d, %v", x.Position, gone[x.Job], position, err)
		}
		next := uint64(0)
		err = d.Feed(t.Context(), "ann", x.Position-1, func(y store.FeedEvent) bool { next = y.Position; return false })
		if gone[x.Job] != errors.Is(err, store.ErrTrimmed) || err == nil && next != x.Position {
			t.Fatalf("Feed from %d (deleted: %v) begins at %d, %v", x.Position, gone[x.Job], next, err)
		}
	}
}
