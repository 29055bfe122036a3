package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// announcement returns a write of n announced events of principal ann.
func (d *db) announcement(n int) *store.Write {
	types := make([]arcp.Type, n)
	for i := range types {
		types[i] = arcp.EventEmit
	}
	return store.NewWrite(&store.Announce{Principal: "ann", Events: d.events("", types...)})
}

// testAnnouncedEventsAreOnlyInTheFeed checks that announced events are in the feed in the order of
// the commits, and in no session's log.
func testAnnouncedEventsAreOnlyInTheFeed(t *testing.T, open Open) {
	d := openEmpty(t, open)
	checkAnnounced(d, func() {})
}

func testReopenedStoreHasAnnouncedEvents(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	checkAnnounced(d, func() { d.reopen(open, dir) })
}

func checkAnnounced(d *db, between func()) {
	s := d.session("sess_1")
	record := d.announcement(2)
	record.Put(store.Record{Key: "x", Value: []byte("one")})
	results := d.batch(d.announcement(1),
		store.NewWrite(&store.SubmitJob{Row: jobRow("job_1", s)}, &store.AppendEvents{Events: d.events("job_1", arcp.JobAccepted)}),
		record, d.announcement(1), store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: d.events("job_1", arcp.Log)}))
	for i, want := range []store.FeedRun{{First: 1}, {First: 2, Job: "job_1"}, {First: 3}, {First: 5}, {First: 6, Job: "job_1"}} {
		if r := results[i]; r.Err != nil || r.Feed.First != want.First || r.Feed.Job != want.Job || r.Feed.Principal != "ann" {
			d.Errorf("write %d: %v, feed %+v; want %+v", i, r.Err, r.Feed, want)
		}
	}
	late := d.announcement(1)
	late.Put(store.Record{Key: "x", Value: []byte("two")})
	d.refuse(late, store.ErrConflict)
	between()
	if r := d.do(d.announcement(1)); r.Feed.First != 7 || len(r.Runs) > 0 {
		d.Errorf("announced at %d to %v", r.Feed.First, r.Runs)
	}
	between()
	d.want(s, arcp.JobAccepted, arcp.Log)
	var jobs []arcp.JobID
	for _, x := range d.feed("ann", 0) {
		jobs = append(jobs, x.Job)
		position, err := d.FeedPosition(context.Background(), "ann", x.Event.ID())
		if err != nil || position != x.Position {
			d.Errorf("FeedPosition = %d, %v; want %d", position, err, x.Position)
		}
		if x.Job == "" && (x.Session != "" || x.CorrelationID != "" || x.Event.JSeq != x.Position || x.Event.OriginSeq != 0 || x.Event.JobID() != "") {
			d.Errorf("announced event %+v", x)
		}
	}
	if diff := cmp.Diff([]arcp.JobID{"", "job_1", "", "", "", "job_1", ""}, jobs); diff != "" {
		d.Errorf("jobs (-want +got):\n%s", diff)
	}
	for from := range uint64(7) {
		if n := len(d.feed("ann", from)); n != 7-int(from) {
			d.Errorf("%d events after %d", n, from)
		}
	}
	for name, w := range map[string]*store.Write{
		"of nobody":  store.NewWrite(&store.Announce{Events: d.events("", arcp.Log)}),
		"of nothing": store.NewWrite(&store.Announce{Principal: "ann"}),
		"with those of a job": store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: d.events("job_1", arcp.Log)},
			d.announcement(1).Ops[0]),
	} {
		if r := d.batch(w)[0]; !errors.Is(r.Err, store.ErrInvalid) {
			d.Errorf("an announcement %s: %v", name, r.Err)
		}
	}
}

// testTrimmedAnnouncedEventsAreDeleted checks that trimmed announced events are deleted, and later
// ones not.
func testTrimmedAnnouncedEventsAreDeleted(t *testing.T, open Open) {
	d := openEmpty(t, open)
	d.submit("job_1", "")
	for range 1200 {
		d.batch(d.announcement(1), store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: d.events("job_1", arcp.Log)}))
	}
	all := d.feed("ann", 0)
	for _, position := range []uint64{100, 1501, 2399} {
		d.do(&store.Write{Ops: []store.Op{&store.TrimFeed{Principal: "ann", Position: position}}, NoSync: true})
		rest := d.feed("ann", position)
		if len(rest) != len(all)-int(position) || !sameEvent(rest[0].Event, all[position].Event) {
			t.Fatalf("%d events after %d", len(rest), position)
		}
		if _, err := d.FeedPosition(t.Context(), "ann", all[position-1].Event.ID()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the position of what was trimmed: %v", err)
		}
	}
}
