package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

func testFollowDeliversHistoryAndLaterEvents(t *testing.T, open Open) {
	d := openEmpty(t, open)
	owner, other := d.session("sess_owner"), d.session("sess_other")
	d.submit("job_1", owner)
	d.submit("job_x", other)
	d.emit("job_x", arcp.JobAccepted)
	d.emit("job_1", arcp.JobAccepted, arcp.JobCheckpoint, arcp.JobStarted)
	d.emit("job_1", arcp.JobProgress)

	r := d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: "c1", From: 1, Forwarded: true}))
	if r.LastSeq != 3 || len(r.Runs) != 1 || r.Runs[0].First != 2 || len(r.Runs[0].Events) != 2 {
		t.Fatalf("follow from 1 gave LastSeq %d and %+v; want 3 and two events from 2", r.LastSeq, r.Runs)
	}
	if !r.Runs[0].Forwarded || r.Runs[0].CorrelationID != "c1" || r.Runs[0].Session != other {
		t.Errorf("run = %+v", r.Runs[0])
	}
	for i, e := range r.Runs[0].Events {
		if diff := cmp.Diff(d.jobLog("job_1", 2)[i], e); diff != "" {
			t.Errorf("history differs from the log (-log +given):\n%s", diff)
		}
	}
	if r := d.emit("job_1", arcp.Log); len(r.Runs) != 2 {
		t.Errorf("an event went to %d sessions, want 2", len(r.Runs))
	}
	d.finish("job_1")
	d.want(other, arcp.JobAccepted, arcp.JobStarted, arcp.JobProgress, arcp.Log, arcp.JobCompleted)
	d.want(owner, arcp.JobAccepted, arcp.JobStarted, arcp.JobProgress, arcp.Log, arcp.JobCompleted)
	if x := d.sessionLog(other, 3)[0]; !x.Forwarded || x.CorrelationID != "c1" || x.Event.OriginSeq != 4 {
		t.Errorf("a forwarded copy is %+v", x)
	}
}

func testFollowOfAnEndedJobDeliversItsHistory(t *testing.T, open Open) {
	d := openEmpty(t, open)
	late := d.session("sess_late")
	d.submit("job_1", "")
	d.emit("job_1", arcp.JobAccepted, arcp.JobCheckpoint, arcp.JobStarted)
	d.finish("job_1")
	r := d.do(store.NewWrite(&store.Follow{Session: late, Job: "job_1", CorrelationID: "c2"}))
	if r.LastSeq != 3 {
		t.Errorf("following an ended job gave %d events, want 3", r.LastSeq)
	}
	d.want(late, arcp.JobAccepted, arcp.JobStarted, arcp.JobCompleted)
	d.refuse(store.NewWrite(&store.Follow{Session: late, Job: "job_none"}), store.ErrNotFound)
	d.refuse(store.NewWrite(&store.Follow{Session: "sess_none", Job: "job_1"}), store.ErrNotFound)
	r = d.do(store.NewWrite(&store.Follow{Session: late, Job: "job_1", CorrelationID: "c2", From: 99}))
	if len(r.Runs) != 0 {
		t.Errorf("history after the end = %+v", r.Runs)
	}
}

func testFollowDeliversItsTypes(t *testing.T, open Open) {
	d := openEmpty(t, open)
	owner, retry := d.session("sess_owner"), d.session("sess_retry")
	d.submit("job_1", owner)
	d.emit("job_1", arcp.JobAccepted, arcp.JobStarted)
	types := arcp.Lookup(arcp.JobAccepted).Bit | arcp.Lookup(arcp.JobCompleted).Bit | arcp.Lookup(arcp.JobCheckpoint).Bit
	d.do(store.NewWrite(&store.Follow{Session: retry, Job: "job_1", CorrelationID: "retry", Types: types}))
	d.emit("job_1", arcp.JobProgress, arcp.JobCheckpoint)
	d.finish("job_1")
	d.want(retry, arcp.JobAccepted, arcp.JobCompleted)
}

// testSessionFollowsAJobTwice checks that a session may follow a job more than once.
func testSessionFollowsAJobTwice(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_1", s)
	d.do(store.NewWrite(&store.Follow{Session: s, Job: "job_1", CorrelationID: "again"}))
	r := d.emit("job_1", arcp.JobStarted)
	if len(r.Runs) != 2 || r.Runs[0].First != 1 || r.Runs[1].First != 2 || r.Runs[1].CorrelationID != "again" {
		t.Fatalf("runs = %+v, want two of one session", r.Runs)
	}
	d.want(s, arcp.JobStarted, arcp.JobStarted)
	r = d.do(store.NewWrite(&store.Follow{Session: s, Job: "job_1", CorrelationID: "again", Types: arcp.Lookup(arcp.Log).Bit}))
	if len(r.Runs) != 0 {
		t.Errorf("history = %+v, want none of the type", r.Runs)
	}
	d.emit("job_1", arcp.JobProgress, arcp.Log)
	d.want(s, arcp.JobStarted, arcp.JobStarted, arcp.JobProgress, arcp.Log, arcp.JobProgress, arcp.Log) // it loses no type
}

// testFollowNewDeliversNothingTwice checks that a Follow with New of an existing follow delivers
// nothing. After the job has ended there is no follow.
func testFollowNewDeliversNothingTwice(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_1", "")
	d.emit("job_1", arcp.JobAccepted)
	w := store.NewWrite(&store.Follow{Session: s, Job: "job_1", CorrelationID: "c1", Forwarded: true, New: true})
	for n, want := range []int{1, 0} {
		if r := d.do(w); len(r.Runs) != want || r.LastSeq != 1 {
			t.Errorf("time %d gave %+v, want %d runs", n+1, r.Runs, want)
		}
	}
	d.emit("job_1", arcp.JobStarted)
	d.want(s, arcp.JobAccepted, arcp.JobStarted)
	d.finish("job_1")
	d.do(w)
	d.want(s, arcp.JobAccepted, arcp.JobStarted, arcp.JobCompleted, arcp.JobAccepted, arcp.JobStarted, arcp.JobCompleted)
}

// testFollowNewIsForAllCorrelations checks that a session with a follow of all types gets no second
// one by New, and that the part of it without Forwarded outlives the subscription.
func testFollowNewIsForAllCorrelations(t *testing.T, open Open) {
	d := openEmpty(t, open)
	owner, other := d.session("sess_owner"), d.session("sess_other")
	d.submit("job_1", owner)
	d.emit("job_1", arcp.JobAccepted)
	ends := arcp.Lookup(arcp.JobCompleted).Bit
	repetition := func(s arcp.SessionID) *store.Write {
		return store.NewWrite(&store.Follow{Session: s, Job: "job_1", Types: ends, New: true})
	}
	d.do(repetition(owner))
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", Forwarded: true, New: true}))
	d.do(repetition(other))
	d.emit("job_1", arcp.JobStarted)
	d.do(store.NewWrite(&store.Unfollow{Session: other, Job: "job_1", Forwarded: true}))
	d.emit("job_1", arcp.JobProgress)
	d.finish("job_1")
	d.want(owner, arcp.JobAccepted, arcp.JobStarted, arcp.JobProgress, arcp.JobCompleted)
	d.want(other, arcp.JobAccepted, arcp.JobStarted, arcp.JobCompleted)
	d.do(repetition(owner))
	d.want(owner, arcp.JobAccepted, arcp.JobStarted, arcp.JobProgress, arcp.JobCompleted, arcp.JobCompleted)
}

// testFollowExtendsItsTypes checks that a follow of some types becomes one of all types, also with
// New, and never the reverse.
func testFollowExtendsItsTypes(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_1", "")
	d.emit("job_1", arcp.JobAccepted, arcp.JobStarted)
	some := &store.Follow{Session: s, Job: "job_1", CorrelationID: "c1",
		Types: arcp.Lookup(arcp.JobAccepted).Bit | arcp.Lookup(arcp.JobCompleted).Bit}
	all := &store.Follow{Session: s, Job: "job_1", CorrelationID: "c1", Forwarded: true, New: true}
	d.do(store.NewWrite(some))
	d.want(s, arcp.JobAccepted)
	d.do(store.NewWrite(all))
	d.want(s, arcp.JobAccepted, arcp.JobAccepted, arcp.JobStarted)
	d.do(store.NewWrite(some))
	d.do(store.NewWrite(all))
	r := d.emit("job_1", arcp.Log)
	if len(r.Runs) != 1 || !r.Runs[0].Forwarded {
		t.Errorf("runs = %+v, want one of a forwarded event", r.Runs)
	}
	d.finish("job_1")
	d.want(s, arcp.JobAccepted, arcp.JobAccepted, arcp.JobStarted, arcp.JobAccepted, arcp.Log, arcp.JobCompleted)
}

// testFollowIsLimited checks that a session follows at most Limit live jobs of others. Its
// own jobs, ended jobs and jobs that it has unfollowed do not count.
func testFollowIsLimited(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	follow := func(id arcp.JobID, corr arcp.MessageID) *store.Write {
		return store.NewWrite(&store.Follow{Session: s, Job: id, CorrelationID: corr, Limit: 2})
	}
	d.submit("job_own", s)
	for _, id := range []arcp.JobID{"job_1", "job_2", "job_3", "job_4"} {
		d.submit(id, "")
		d.emit(id, arcp.JobAccepted)
	}
	d.do(follow("job_1", "c"))
	d.do(follow("job_2", "c"))
	d.refuse(follow("job_3", "c"), store.ErrTooMany)
	d.do(follow("job_1", "again"))
	d.do(follow("job_own", "c"))
	d.do(store.NewWrite(&store.Unfollow{Session: s, Job: "job_1", CorrelationID: "c"}))
	d.refuse(follow("job_3", "c"), store.ErrTooMany)
	d.do(store.NewWrite(&store.Unfollow{Session: s, Job: "job_1", CorrelationID: "again"}))
	d.do(follow("job_3", "c"))
	d.refuse(follow("job_4", "c"), store.ErrTooMany)
	d.finish("job_2")
	d.do(follow("job_2", "late"))
	d.do(follow("job_4", "c"))
	d.refuse(follow("job_1", "c"), store.ErrTooMany)
	both := store.NewWrite(&store.SubmitJob{Row: jobRow("job_5", "")})
	d.refuse(both.Add(follow("job_5", "c").Ops...), store.ErrTooMany)
	if r := d.batch(d.completion("job_3", 1), follow("job_1", "c"), d.completion("job_own", 1), follow("job_own", "d")); r[1].Err != nil || r[3].Err != nil {
		t.Errorf("behind the end of another in the same batch: %v, %v", r[1].Err, r[3].Err)
	}
	d.refuse(follow("job_5", "c"), store.ErrNotFound)
}

// testFollowReturnsTheStateOfTheJob checks the state and the LastSeq of the job in the result of a
// Follow.
func testFollowReturnsTheStateOfTheJob(t *testing.T, open Open) {
	d := openEmpty(t, open)
	owner, s := d.session("sess_1"), d.session("sess_2")
	d.submit("job_1", owner)
	d.emit("job_1", arcp.JobAccepted, arcp.JobStarted)
	follow := func() *store.Write {
		return store.NewWrite(&store.Follow{Session: s, Job: "job_1", CorrelationID: "c", From: 1})
	}
	progress := store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: d.events("job_1", arcp.JobProgress),
		State: arcp.StateRunning})
	got := d.batch(follow(), progress, follow(), d.completion("job_1", 1), follow())
	got = append(got, d.do(follow()))
	want := []struct {
		state arcp.JobState
		seq   uint64
	}{0: {arcp.StateAccepted, 2}, 2: {arcp.StateRunning, 3}, 4: {arcp.StateCompleted, 4}, 5: {}}
	for i, w := range want {
		if r := got[i]; r.JobState != w.state || r.JobSeq != w.seq {
			t.Errorf("write %d: %q up to %d, want %q up to %d", i, r.JobState, r.JobSeq, w.state, w.seq)
		}
	}
}

// testUnfollowForwardedEndsTheForwardedPart checks that Unfollow with Forwarded ends only the
// forwarded part of a follow.
func testUnfollowForwardedEndsTheForwardedPart(t *testing.T, open Open) {
	d := openEmpty(t, open)
	unfollowForwarded(d, func() {})
}

// testReopenedStoreHasUnfollowedForwarded is testUnfollowForwardedEndsTheForwardedPart with restarts.
func testReopenedStoreHasUnfollowedForwarded(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	unfollowForwarded(d, func() { d.reopen(open, dir) })
}

func unfollowForwarded(d *db, pause func()) {
	d.Helper()
	s := d.session("sess_1")
	some := store.Follow{Session: s, Job: "job_1", CorrelationID: "c1", Types: arcp.Lookup(arcp.JobCompleted).Bit}
	all := store.Follow{Session: s, Job: "job_1", CorrelationID: "c1", Forwarded: true}
	d.submit("job_1", "")
	for _, order := range [][]store.Follow{{some, all}, {all, some}} {
		for _, f := range order {
			d.do(store.NewWrite(&f))
			pause()
		}
		if r := d.emit("job_1", arcp.Log); len(r.Runs) != 1 || !r.Runs[0].Forwarded {
			d.Errorf("runs = %+v, want one of a forwarded event", r.Runs)
		}
		d.do(store.NewWrite(&store.Unfollow{Session: s, Job: "job_1", CorrelationID: "c1", Forwarded: true}))
		pause()
		if r := d.emit("job_1", arcp.Log); len(r.Runs) != 0 {
			d.Errorf("runs = %+v after the end of the follow, want none", r.Runs)
		}
		d.do(store.NewWrite(&store.Unfollow{Session: s, Job: "job_1", CorrelationID: "c1", Forwarded: true})) // it is not there
		pause()
	}
	if r := d.finish("job_1"); len(r.Runs) != 1 || r.Runs[0].Forwarded {
		d.Errorf("runs = %+v, want one of an event that is not forwarded", r.Runs)
	}
}

// testFollowSeesEarlierWritesOfTheBatch checks that the history of a follow includes the events of
// earlier writes in the batch.
func testFollowSeesEarlierWritesOfTheBatch(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_old", "")
	d.emit("job_old", arcp.JobAccepted)
	follow := func(id arcp.JobID) *store.Write {
		return store.NewWrite(&store.Follow{Session: s, Job: id, CorrelationID: "c"})
	}
	results := d.batch(
		store.NewWrite(&store.AppendEvents{Job: "job_old", Attempt: 1, Events: d.events("job_old", arcp.JobStarted)}),
		follow("job_old"),
		d.completion("job_old", 1),
		follow("job_old"),
		store.NewWrite(&store.SubmitJob{Row: jobRow("job_new", "")},
			&store.Follow{Session: s, Job: "job_new", CorrelationID: "n"},
			&store.AppendEvents{Events: d.events("job_new", arcp.JobAccepted)}),
	)
	for i, n := range []uint64{0, 2, 0, 6, 7} {
		if r := results[i]; r.Err != nil || r.LastSeq != n {
			t.Errorf("write %d: LastSeq %d, %v; want %d", i, r.LastSeq, r.Err, n)
		}
	}
	d.want(s, arcp.JobAccepted, arcp.JobStarted, arcp.JobCompleted,
		arcp.JobAccepted, arcp.JobStarted, arcp.JobCompleted, arcp.JobAccepted)
}

func testUnfollowEndsDelivery(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_1", s)
	d.do(store.NewWrite(&store.Follow{Session: s, Job: "job_1", CorrelationID: "c1"}))
	d.emit("job_1", arcp.JobStarted)
	d.do(store.NewWrite(&store.Unfollow{Session: s, Job: "job_1", CorrelationID: "c1"}))
	d.do(store.NewWrite(&store.Unfollow{Session: s, Job: "job_1", CorrelationID: "never"}))
	d.emit("job_1", arcp.JobProgress)
	d.want(s, arcp.JobStarted, arcp.JobStarted, arcp.JobProgress)

	d.do(store.NewWrite(&store.Unfollow{Session: s, Job: "job_1", CorrelationID: "submit-job_1"}))
	d.emit("job_1", arcp.Log)
	d.want(s, arcp.JobStarted, arcp.JobStarted, arcp.JobProgress)
	if e := d.jobLog("job_1", 2)[0]; e.OriginSeq != 3 {
		t.Errorf("an event that the submitting session is not given has OriginSeq %d, want 3", e.OriginSeq)
	}
	d.do(store.NewWrite(&store.Follow{Session: s, Job: "job_1", CorrelationID: "submit-job_1", From: 2}))
	d.finish("job_1")
	d.want(s, arcp.JobStarted, arcp.JobStarted, arcp.JobProgress, arcp.Log, arcp.JobCompleted)
	d.do(store.NewWrite(&store.Unfollow{Session: s, Job: "job_1", CorrelationID: "c1"}))
	d.refuse(store.NewWrite(&store.Unfollow{Session: s, Job: "job_none"}), store.ErrNotFound)
}

// testFollowOnceDeliversOnlyHistory checks that a Follow with Once delivers the history and changes
// nothing else.
func testFollowOnceDeliversOnlyHistory(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s, other := d.session("sess_1"), d.session("sess_2")
	d.submit("job_1", s)
	d.emit("job_1", arcp.JobAccepted, arcp.JobStarted, arcp.Log)
	types := arcp.Lookup(arcp.JobAccepted).Bit | arcp.Lookup(arcp.Log).Bit
	once := func(corr arcp.MessageID, from uint64) *store.Write {
		return store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: corr, From: from, Types: types, Once: true})
	}
	if r := d.do(once("a", 1)); r.LastSeq != 1 || len(r.Runs) != 1 || r.Runs[0].CorrelationID != "a" {
		t.Errorf("once = %+v", r)
	}
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: "b", From: 3}))
	d.do(once("b", 2))
	d.emit("job_1", arcp.JobProgress)
	d.want(other, arcp.Log, arcp.Log, arcp.JobProgress)
	d.finish("job_1")
	d.do(once("c", 0))
	d.want(other, arcp.Log, arcp.Log, arcp.JobProgress, arcp.JobCompleted, arcp.JobAccepted, arcp.Log)
}

// testFollowInPiecesEqualsFollowAtOnce checks that a history in pieces is the same as a history at once,
// whatever happens between the pieces.
func testFollowInPiecesEqualsFollowAtOnce(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s, other := d.session("sess_1"), d.session("sess_2")
	d.submit("job_1", s)
	d.emit("job_1", arcp.JobAccepted, arcp.JobStarted, arcp.Log, arcp.Log)
	f := store.Follow{Session: other, Job: "job_1", CorrelationID: "c", Max: 3}
	r := d.do(store.NewWrite(&f))
	if !r.More || r.From != 3 || r.LastSeq != 3 {
		t.Fatalf("the first piece = %+v", r)
	}
	d.emit("job_1", arcp.JobProgress)
	f.From = r.From
	if r = d.do(store.NewWrite(&f)); r.More {
		t.Fatalf("the last piece = %+v", r)
	}
	d.emit("job_1", arcp.JobProgress)
	d.want(other, arcp.JobAccepted, arcp.JobStarted, arcp.Log, arcp.Log, arcp.JobProgress, arcp.JobProgress)
}
