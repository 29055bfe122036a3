package storetest

import (
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// calling returns a write in which a job begins and ends.
func (d *db) calling(id arcp.JobID, s arcp.SessionID) *store.Write {
	return store.NewWrite(&store.SubmitJob{Row: jobRow(id, s)},
		&store.AppendEvents{Events: d.events(id, arcp.JobAccepted, arcp.JobCompleted), State: arcp.StateCompleted})
}

// testGroupedWritesAllHappenOrNone checks that a write and its With all happen, or none.
func testGroupedWritesAllHappenOrNone(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_other", s)

	change := put("a", 0, "one")
	change.With = []*store.Write{d.calling("job_1", s), d.completion("job_other", 1)}
	r := d.do(change)
	if len(r.With) != 2 || len(r.With[0].Runs) != 1 || len(r.With[1].Runs) != 1 || len(r.Runs) != 0 {
		t.Errorf("result = %+v, want a run of each of the writes with it", r)
	}
	d.want(s, arcp.JobAccepted, arcp.JobCompleted, arcp.JobCompleted)
	rec := d.record("a")
	if string(rec.Value) != "one" || d.job("job_1").State != arcp.StateCompleted || d.job("job_other").State != arcp.StateCompleted {
		t.Errorf("record %q, jobs %s and %s", rec.Value, d.job("job_1").State, d.job("job_other").State)
	}

	// If one is refused, none happens.
	conflict := put("a", rec.Rev+1, "two")
	conflict.With = []*store.Write{d.calling("job_2", s)}
	if r := d.batch(conflict)[0]; r.Err == nil || r.With[0].Err != nil || len(r.With[0].Runs) > 0 {
		t.Errorf("a conflict of the write itself: %v, with it %+v", r.Err, r.With[0])
	}
	repeated := d.calling("job_3", s)
	submit := store.Find[*store.SubmitJob](repeated)
	submit.Row.SubmitID, submit.Recheck = "submit-job_1", true
	again := put("a", rec.Rev, "two")
	again.With = []*store.Write{d.calling("job_2", s), repeated}
	d.refuse(again, store.ErrTogether)
	if r := d.batch(again)[0]; r.With[1].Existing != "job_1" || !r.With[1].Repeated || r.With[0].Existing != "" || r.With[0].Err != nil {
		t.Errorf("a repeated submit with it = %+v", r.With)
	}
	lost := put("a", rec.Rev, "two")
	lost.With = []*store.Write{d.completion("job_1", 1)}
	d.refuse(lost, store.ErrTogether)
	if got := d.record("a"); string(got.Value) != "one" || got.Rev != rec.Rev {
		t.Errorf("half of a refused write happened: %+v", got)
	}
	d.want(s, arcp.JobAccepted, arcp.JobCompleted, arcp.JobCompleted)

	// A session gets the events of the writes that happen together with its end.
	end := &store.Write{Ops: []store.Op{&store.EndSession{Session: s}}, With: []*store.Write{d.calling("job_4", s)}}
	want := []arcp.Type{arcp.JobAccepted, arcp.JobCompleted}
	if r := d.do(end); len(r.With[0].Runs) != 1 || !slices.Equal(typesOf(r.With[0].Runs[0].Events), want) {
		t.Errorf("runs with the end of the session = %+v, want one of %v", r.With[0].Runs, want)
	}
	if d.job("job_4").State != arcp.StateCompleted {
		t.Errorf("job_4 is %s", d.job("job_4").State)
	}

	d.submit("job_5", "")
	same := d.emitting("job_5")
	same.With = []*store.Write{d.completion("job_5", 1)}
	d.refuse(same, store.ErrInvalid)
	nested := put("b", 0, "x")
	nested.With = []*store.Write{{With: []*store.Write{put("c", 0, "y")}}}
	d.refuse(nested, store.ErrInvalid)
	two := put("b", 0, "x")
	two.With = []*store.Write{put("b", 0, "y")}
	d.refuse(two, store.ErrInvalid)
	parts := put("b", 0, "x")
	parts.With = []*store.Write{put("c", 0, "y"), put("c", 0, "z")}
	d.refuse(parts, store.ErrInvalid)
}

func (d *db) emitting(id arcp.JobID) *store.Write {
	return store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, Events: d.events(id, arcp.JobProgress)})
}

func typesOf(events []*store.Event) (types []arcp.Type) {
	for _, e := range events {
		types = append(types, e.Type)
	}
	return types
}
