package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// testEndedSessionLeavesItsJobs checks that a session is deleted with its log and follows. Its jobs go
// on, and their OriginSeq counts on from the last.
func testEndedSessionLeavesItsJobs(t *testing.T, open Open) {
	d := openEmpty(t, open)
	checkEndSession(d, func() {})
}

func testReopenedStoreHasEndedSessions(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	checkEndSession(d, func() { d.reopen(open, dir) })
}

func checkEndSession(d *db, between func()) {
	home, other := d.session("sess_1"), d.session("sess_2")
	d.submit("job_x", home)
	d.emit("job_x", arcp.JobProgress, arcp.JobProgress)
	d.submit("job_1", home)
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: "c"}))
	d.do(store.NewWrite(&store.Follow{Session: home, Job: "job_1", CorrelationID: "again"}))
	d.emit("job_1", arcp.JobStarted)
	last := d.job("job_1").LastSeq
	between()
	ended := d.do(store.NewWrite(&store.EndSession{Session: home},
		&store.AppendEvents{Job: "job_1", Attempt: 1, Events: d.events("job_1", arcp.JobProgress)}))
	if len(ended.Runs) != 1 || ended.Runs[0].Session != other || ended.Feed.Session != home {
		d.Errorf("with the end: runs %+v, feed %+v", ended.Runs, ended.Feed)
	}
	between()
	d.do(store.NewWrite(&store.EndSession{Session: home}))
	d.do(store.NewWrite(&store.EndSession{Session: "sess_none"}))
	d.emit("job_1", arcp.JobProgress, arcp.JobProgress)
	between()
	d.finish("job_1")
	for i, e := range d.jobLog("job_1", 1) {
		if e.OriginSeq != last+uint64(i)+1 {
			d.Errorf("event %d has OriginSeq %d, want %d", e.JSeq, e.OriginSeq, last+uint64(i)+1)
		}
	}
	if _, err := d.Session(context.Background(), home); !errors.Is(err, store.ErrNotFound) {
		d.Errorf("Session = %v", err)
	}
	if st := d.Stat(); st.Sessions != 1 || st.Jobs != 2 {
		d.Errorf("Stat = %+v", st)
	}
	d.refuse(store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", home)}), store.ErrNotFound)
	d.want(other, arcp.JobStarted, arcp.JobProgress, arcp.JobProgress, arcp.JobProgress, arcp.JobCompleted)
	between()
	d.do(store.NewWrite(&store.DeleteJob{Job: "job_1"}))
}
