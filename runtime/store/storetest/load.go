package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// testManyWritersUseEachNumberOnce checks that 64 producers on 16 sessions, which also follow the
// jobs of another session, use every number once.
func testManyWritersUseEachNumberOnce(t *testing.T, open Open) {
	d := openEmpty(t, open)
	const producers, rounds = 64, 20
	sessions := make([]arcp.SessionID, 16)
	for i := range sessions {
		sessions[i] = d.session(arcp.SessionID(fmt.Sprintf("sess_%02d", i)))
	}
	c := startCommitter(d)
	var wg sync.WaitGroup
	for p := range producers {
		id, own, other := arcp.NewJobID(), sessions[p%16], sessions[(p+1)%16]
		batches := make([][]*store.Event, rounds)
		for i := range batches {
			batches[i] = d.events(id, arcp.JobProgress, arcp.JobCheckpoint, arcp.Log)
		}
		end := d.completion(id, 1)
		wg.Go(func() {
			c.do(store.NewWrite(&store.SubmitJob{Row: jobRow(id, own)}))
			c.do(store.NewWrite(&store.Follow{Session: other, Job: id, CorrelationID: "c"}))
			for _, events := range batches {
				if r := c.do(store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, Events: events})); r.Err != nil || len(r.Runs) != 2 {
					t.Errorf("result = %+v", r)
				}
			}
			c.do(end)
		})
	}
	wg.Wait()
	c.stop()
	const perSession = producers / 16 * 2 * (rounds*2 + 1)
	for _, s := range sessions {
		got := d.sessionLog(s, 0)
		if len(got) != perSession || d.row(s).LastSeq != perSession {
			t.Errorf("the log of %s has %d events, LastSeq %d; want %d", s, len(got), d.row(s).LastSeq, perSession)
		}
	}
}

// testReadersSeeNoGap checks that logs read during commits have no gap and only grow, and that an
// ended job has its terminal event.
func testReadersSeeNoGap(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	names := make([]arcp.JobID, 40)
	for i := range names {
		names[i] = arcp.NewJobID()
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { readSession(t, d.Store, s, &done) })
	}
	wg.Go(func() { readJobs(t, d.Store, &done) })
	for _, id := range names {
		d.batch(store.NewWrite(&store.SubmitJob{Row: jobRow(id, s)}, &store.AppendEvents{Events: d.events(id, arcp.JobAccepted)}))
		for range 5 {
			d.emit(id, arcp.JobProgress, arcp.Log)
		}
		d.batch(d.completion(id, 1), put(string(id), 0, "x"))
	}
	done.Store(true)
	wg.Wait()
	if n := len(d.sessionLog(s, 0)); n != len(names)*12 {
		t.Errorf("%d events in the log, want %d", n, len(names)*12)
	}
}

func readSession(t *testing.T, st store.Store, id arcp.SessionID, done *atomic.Bool) {
	after, last := uint64(0), false
	for !last {
		last = done.Load()
		row, err := st.Session(context.Background(), id)
		if err != nil {
			t.Errorf("Session = %v", err)
		}
		from := after
		err = st.SessionEvents(context.Background(), id, after, func(x store.Delivery) bool {
			if x.Seq != after+1 {
				t.Errorf("number %d after %d", x.Seq, after)
			}
			after = x.Seq
			return after%3 != 0
		})
		if err != nil || (after < row.LastSeq && after%3 != 0) || after < from {
			t.Errorf("read to %d although LastSeq is %d: %v", after, row.LastSeq, err)
			return
		}
	}
}

func readJobs(t *testing.T, st store.Store, done *atomic.Bool) {
	for !done.Load() {
		err := st.Jobs(context.Background(), store.JobQuery{Principal: "ann"}, func(j store.Job) bool {
			var last *store.Event
			err := st.JobEvents(context.Background(), j.ID, 0, func(e *store.Event) bool { last = e; return true })
			if err != nil || last == nil || j.State.Terminal() && !last.Type.Terminal() || last.JSeq < j.LastJSeq {
				t.Errorf("job %+v has the last event %+v, %v", j, last, err)
			}
			return true
		})
		live := st.Jobs(context.Background(), store.JobQuery{Principal: "ann", Live: true}, func(j store.Job) bool {
			if j.State.Terminal() {
				t.Errorf("job %+v is listed as live", j)
			}
			return true
		})
		if err := errors.Join(err, live); err != nil {
			t.Errorf("Jobs = %v", err)
		}
	}
}
