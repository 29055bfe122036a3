package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// testRefusedWriteChangesNothing checks that nothing of a refused write happens.
func testRefusedWriteChangesNothing(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_1", s)
	d.emit("job_1", arcp.JobStarted)
	events := d.events("job_1", arcp.JobCompleted)
	blank := string(events[0].Body)
	d.refuse(store.NewWrite(&store.OpenSession{Row: sessionRow("sess_2")},
		&store.Follow{Session: "sess_2", Job: "job_1"},
		&store.AppendEvents{Job: "job_1", Attempt: 1, NewAttempt: true, Events: events, State: arcp.StateCompleted},
		&store.TrimSession{Session: s, Seq: 1},
		&store.PutRecord{Key: "a", Value: []byte("x")},
		&store.PutRecord{Key: "b", Rev: 1, Value: []byte("x")}), store.ErrConflict)
	if string(events[0].Body) != blank || events[0].JSeq != 0 {
		t.Errorf("a refused event was changed: %s", events[0].Body)
	}
	if _, err := d.Session(context.Background(), "sess_2"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Session = %v", err)
	}
	if j := d.job("job_1"); j.Attempt != 1 || j.State != arcp.StateAccepted || j.LastJSeq != 1 {
		t.Errorf("job = %+v", j)
	}
	if rec := d.record("a"); rec.Rev != 0 {
		t.Errorf("record = %+v", rec)
	}
	d.want(s, arcp.JobStarted)
	for _, w := range []*store.Write{
		store.NewWrite(&store.AppendEvents{Events: events}), store.NewWrite(&store.AppendEvents{State: arcp.StateRunning}),
		store.NewWrite(&store.DeliverUnlogged{Event: events[0]}), store.NewWrite(&store.AppendEvents{NewAttempt: true}),
		store.NewWrite(&store.SubmitJob{Row: jobRow("job_9", "")}, &store.AppendEvents{Job: "job_1", Attempt: 1}),
		store.NewWrite(&store.SubmitJob{Row: jobRow("", "")}), store.NewWrite(&store.PutSession{Row: &store.Session{}}),
	} {
		d.refuse(w, store.ErrInvalid)
	}
	if err := d.Commit(make([]*store.Write, 2), make([]store.Result, 1)); err == nil {
		t.Error("Commit accepted too few results")
	}
}

// testWriteSeesEarlierWritesOfTheBatch checks that a write sees the writes before it in its batch,
// and that a refused write does not change the others.
func testWriteSeesEarlierWritesOfTheBatch(t *testing.T, open Open) {
	d := openEmpty(t, open)
	row := jobRow("job_1", "sess_1")
	results := d.batch(
		store.NewWrite(&store.OpenSession{Row: sessionRow("sess_1")}),
		store.NewWrite(&store.OpenSession{Row: sessionRow("sess_1")}),
		store.NewWrite(&store.SubmitJob{Row: row}, &store.AppendEvents{Events: d.events("job_1", arcp.JobAccepted)}),
		store.NewWrite(&store.SubmitJob{Row: row}),
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1,
			Events: d.events("job_1", arcp.JobStarted, arcp.JobProgress), State: arcp.StateRunning}),
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 2, Events: d.events("job_1", arcp.Log)}),
		store.NewWrite(&store.ReadPosition{Session: "sess_1"}),
		store.NewWrite(&store.TrimSession{Session: "sess_1", Seq: 2}),
		d.completion("job_1", 1),
		d.completion("job_1", 1),
	)
	for i, want := range []error{nil, store.ErrExists, nil, store.ErrExists, nil, store.ErrFenced, nil, nil, nil, store.ErrTerminal} {
		if !errors.Is(results[i].Err, want) {
			t.Errorf("write %d: %v, want %v", i, results[i].Err, want)
		}
	}
	if results[6].LastSeq != 3 {
		t.Errorf("ReadPosition gives %d, want 3", results[6].LastSeq)
	}
	d.want("sess_1", arcp.JobProgress, arcp.JobCompleted)
	if j := d.job("job_1"); j.State != arcp.StateCompleted || j.LastJSeq != 4 || j.LastSeq != 4 {
		t.Errorf("job = %+v", j)
	}
	if n := len(live(d)); n != 0 {
		t.Errorf("%d live jobs, want 0", n)
	}
}

func testContradictoryWritesAreInvalid(t *testing.T, open Open) {
	d := openEmpty(t, open)
	d.submit("job_1", d.session("sess_1"))
	for i, w := range []*store.Write{
		store.NewWrite(&store.OpenSession{}), store.NewWrite(&store.AttachSession{Row: new(store.Session)}),
		store.NewWrite(&store.OpenSession{Row: sessionRow("sess_2")}, &store.AttachSession{Row: sessionRow("sess_2")}),
		store.NewWrite(&store.EndSession{Session: "sess_2"}, &store.OpenSession{Row: sessionRow("sess_2")}),
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1}, &store.AppendEvents{Job: "job_1", Attempt: 1}),
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1}, &store.SubmitJob{Row: jobRow("job_2", "")}),
		store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", "")}, &store.AppendEvents{Job: "job_1", Attempt: 1}),
		store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", "")}, &store.AppendEvents{NewAttempt: true}),
		store.NewWrite(&store.AppendEvents{Attempt: 1}), store.NewWrite(&store.DeliverUnlogged{Event: d.events("", arcp.JobHeartbeat)[0]}),
		store.NewWrite(&store.OpenSession{Row: sessionRow("sess_2")}, &store.EndSession{Session: "sess_2"}),
		store.NewWrite(&store.TrimFeed{Position: 1}),
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1}, &store.DeleteJob{Job: "job_1"}),
		store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", "")}, &store.DeleteJob{Job: "job_2"}),
		store.NewWrite(&store.Follow{Session: "sess_1", Job: "job_1"}, &store.DeleteJob{Job: "job_1"}),
	} {
		if r := d.batch(w)[0]; !errors.Is(r.Err, store.ErrInvalid) {
			t.Errorf("write %d = %v, want ErrInvalid", i, r.Err)
		}
	}
}
