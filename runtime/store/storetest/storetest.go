// Package storetest is the suite that every store.Store passes.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Open opens the store in a directory. It is called again for the same directory after
// the store was closed or its process was killed.
type Open func(t testing.TB, dir string) store.Store

// Run runs the suite. durable says that committed data survives Close and the end of the
// process.
func Run(t *testing.T, open Open, durable bool) {
	for _, test := range tests {
		if durable || !test.durable {
			t.Run(test.name, func(t *testing.T) { test.run(t, open) })
		}
	}
}

var tests = []struct {
	name    string
	durable bool // only for durable stores
	run     func(*testing.T, Open)
}{
	{"SessionRowsAreStored", false, testSessionRowsAreStored},
	{"NumbersHaveNoGap", false, testNumbersHaveNoGap},
	{"SessionsGetTheTypesOfTheirView", false, testSessionsGetTheTypesOfTheirView},
	{"RouteSelectsReceivers", false, testRouteSelectsReceivers},
	{"OriginSeqIsTheSubmittersNumber", false, testOriginSeqIsTheSubmittersNumber},
	{"FramesAreDecodable", false, testFramesAreDecodable},
	{"FollowDeliversHistoryAndLaterEvents", false, testFollowDeliversHistoryAndLaterEvents},
	{"FollowOfAnEndedJobDeliversItsHistory", false, testFollowOfAnEndedJobDeliversItsHistory},
	{"FollowDeliversItsTypes", false, testFollowDeliversItsTypes},
	{"SessionFollowsAJobTwice", false, testSessionFollowsAJobTwice},
	{"FollowSeesEarlierWritesOfTheBatch", false, testFollowSeesEarlierWritesOfTheBatch},
	{"UnfollowEndsDelivery", false, testUnfollowEndsDelivery},
	{"UnloggedEventsAreNotStored", false, testUnloggedEventsAreNotStored},
	{"RuntimeMetricsAreNegotiated", false, testRuntimeMetricsAreNegotiated},
	{"ChunksInTheDraftDialect", false, testChunksInTheDraftDialect},
	{"TrimDeletesTheStartOfALog", false, testTrimDeletesTheStartOfALog},
	{"JobRowsAreStored", false, testJobRowsAreStored},
	{"FirstStartIsStored", false, testFirstStartIsStored},
	{"ReopenedStoreHasFirstStart", true, testReopenedStoreHasFirstStart},
	{"EarlierAttemptIsFenced", false, testEarlierAttemptIsFenced},
	{"EndedJobAcceptsNoEvents", false, testEndedJobAcceptsNoEvents},
	{"OneOfManyEndsHappens", false, testOneOfManyEndsHappens},
	{"IdempotencyKeySubmitsOneJob", false, testIdempotencyKeySubmitsOneJob},
	{"PagesNeitherRepeatNorSkipJobs", false, testPagesNeitherRepeatNorSkipJobs},
	{"NewestJobsAreListedFirst", false, testNewestJobsAreListedFirst},
	{"FiltersSelectJobsByTime", false, testFiltersSelectJobsByTime},
	{"LiveJobsHaveNotEnded", false, testLiveJobsHaveNotEnded},
	{"LiveQueryEqualsASlice", false, testLiveQueryEqualsASlice},
	{"LivePagesListAJobAtMostOnce", false, testLivePagesListAJobAtMostOnce},
	{"LiveQueryReadsNoEndedJobs", false, testLiveQueryReadsNoEndedJobs},
	{"RecordsHaveRevisions", false, testRecordsHaveRevisions},
	{"RecordsAreListedByPrefix", false, testRecordsAreListedByPrefix},
	{"GroupedWritesAllHappenOrNone", false, testGroupedWritesAllHappenOrNone},
	{"OneOfTwoAttachesSucceeds", false, testOneOfTwoAttachesSucceeds},
	{"ContradictoryWritesAreInvalid", false, testContradictoryWritesAreInvalid},
	{"EndedSessionLeavesItsJobs", false, testEndedSessionLeavesItsJobs},
	{"RecheckFindsTheRepeatedSubmit", false, testRecheckFindsTheRepeatedSubmit},
	{"FollowOnceDeliversOnlyHistory", false, testFollowOnceDeliversOnlyHistory},
	{"FollowInPiecesEqualsFollowAtOnce", false, testFollowInPiecesEqualsFollowAtOnce},
	{"FollowNewDeliversNothingTwice", false, testFollowNewDeliversNothingTwice},
	{"FollowNewIsForAllCorrelations", false, testFollowNewIsForAllCorrelations},
	{"FollowExtendsItsTypes", false, testFollowExtendsItsTypes},
	{"UnfollowForwardedEndsTheForwardedPart", false, testUnfollowForwardedEndsTheForwardedPart},
	{"FollowIsLimited", false, testFollowIsLimited},
	{"FollowReturnsTheStateOfTheJob", false, testFollowReturnsTheStateOfTheJob},
	{"FeedHasAllEventsOfAPrincipal", false, testFeedHasAllEventsOfAPrincipal},
	{"TrimFeedDeletesTheStartOfAFeed", false, testTrimFeedDeletesTheStartOfAFeed},
	{"AnnouncedEventsAreOnlyInTheFeed", false, testAnnouncedEventsAreOnlyInTheFeed},
	{"TrimmedAnnouncedEventsAreDeleted", false, testTrimmedAnnouncedEventsAreDeleted},
	{"FeedsAreListedInOrder", false, testFeedsAreListedInOrder},
	{"LongFeedIsReadFromAnyPosition", false, testLongFeedIsReadFromAnyPosition},
	{"DeletedJobLeavesNothing", false, testDeletedJobLeavesNothing},
	{"TrimmedErrorSkipsADeletedJob", false, testTrimmedErrorSkipsADeletedJob},
	{"JobIsSubmittedAndDeletedInOneBatch", false, testJobIsSubmittedAndDeletedInOneBatch},
	{"EndedJobsAreListedByTimeOfEnd", false, testEndedJobsAreListedByTimeOfEnd},
	{"CloseEndsReads", false, testCloseEndsReads},
	{"RefusedWriteChangesNothing", false, testRefusedWriteChangesNothing},
	{"WriteSeesEarlierWritesOfTheBatch", false, testWriteSeesEarlierWritesOfTheBatch},
	{"IDsAscend", false, testIDsAscend},
	{"LongLogIsReadFromAnyPosition", false, testLongLogIsReadFromAnyPosition},
	{"ManyWritersUseEachNumberOnce", false, testManyWritersUseEachNumberOnce},
	{"ReadersSeeNoGap", false, testReadersSeeNoGap},
	{"StoreEqualsTheModel", false, testStoreEqualsTheModel},
	{"ReopenedStoreHasAllData", true, testReopenedStoreHasAllData},
	{"ReopenedStoreHasFollows", true, testReopenedStoreHasFollows},
	{"ReopenedStoreHasUnfollowedForwarded", true, testReopenedStoreHasUnfollowedForwarded},
	{"NumbersContinueAfterReopen", true, testNumbersContinueAfterReopen},
	{"ReopenedStoreHasEndedSessions", true, testReopenedStoreHasEndedSessions},
	{"ReopenedStoreHasFeeds", true, testReopenedStoreHasFeeds},
	{"ReopenedStoreHasAnnouncedEvents", true, testReopenedStoreHasAnnouncedEvents},
	{"ReopenedStoreEqualsTheModel", true, testReopenedStoreEqualsTheModel},
	{"ReopenedLiveQueryEqualsASlice", true, testReopenedLiveQueryEqualsASlice},
	{"IDsAscendWhenTheClockStepsBack", true, testIDsAscendWhenTheClockStepsBack},
	{"KilledProcessLosesNoAcknowledgedEvent", true, testKilledProcessLosesNoAcknowledgedEvent},
}

// t0 is the time of the tests.
var t0 = time.Date(2030, 5, 6, 7, 8, 9, 123456789, time.UTC)

// db is a store with short methods for tests. A failure ends the test.
type db struct {
	testing.TB
	store.Store
	now time.Time
}

func openEmpty(t testing.TB, open Open) *db { return at(t, open, t.TempDir()) }

func at(t testing.TB, open Open, dir string) *db {
	d := &db{TB: t, Store: open(t, dir), now: t0}
	t.Cleanup(func() { _ = d.Store.Close() }) // may be closed already
	return d
}

// batch commits writes together.
func (d *db) batch(writes ...*store.Write) []store.Result {
	d.Helper()
	results := make([]store.Result, len(writes))
	if err := d.Commit(writes, results); err != nil {
		d.Fatalf("Commit = %v", err)
	}
	return results
}

// do commits a write that succeeds.
func (d *db) do(w *store.Write) store.Result {
	d.Helper()
	r := d.batch(w)[0]
	if r.Err != nil {
		d.Fatalf("a write was refused: %v", r.Err)
	}
	return r
}

// refuse commits a write that is refused.
func (d *db) refuse(w *store.Write, want error) {
	d.Helper()
	if r := d.batch(w)[0]; !errors.Is(r.Err, want) {
		d.Fatalf("result = %v, want %v", r.Err, want)
	}
}

// session creates a session that sees the types without a feature and those of features.
func (d *db) session(id arcp.SessionID, features ...arcp.Feature) arcp.SessionID {
	d.Helper()
	d.do(store.NewWrite(&store.OpenSession{Row: sessionRow(id, features...)}))
	return id
}

func sessionRow(id arcp.SessionID, features ...arcp.Feature) *store.Session {
	return &store.Session{ID: id, Principal: "ann", Version: "1.1", ClientKind: "test", Negotiated: features,
		TokenHash: [32]byte{1, 2, 3}, CreatedAt: t0}
}

func jobRow(id arcp.JobID, sess arcp.SessionID) *store.Job {
	return &store.Job{ID: id, Principal: "ann", Session: sess, SubmitID: arcp.MessageID("submit-" + id),
		Agent: "echo@1", Arguments: arcp.Raw(`{"text":"hi"}`), CreatedAt: t0, State: arcp.StateAccepted}
}

// submit creates a job of principal ann.
func (d *db) submit(id arcp.JobID, sess arcp.SessionID) arcp.JobID {
	d.Helper()
	d.do(store.NewWrite(&store.SubmitJob{Row: jobRow(id, sess)}))
	return id
}

// events returns events of a job, a millisecond apart.
func (d *db) events(id arcp.JobID, types ...arcp.Type) []*store.Event {
	out := make([]*store.Event, len(types))
	for i, t := range types {
		d.now = d.now.Add(time.Millisecond + 7)
		out[i] = store.NewEvent(t, d.now, &store.JobContext{JobID: id, TraceID: "t1"}, "", fmt.Appendf(nil, `{"at":%d}`, d.now.UnixNano()))
	}
	return out
}

// emit appends events to a job in its first attempt.
func (d *db) emit(id arcp.JobID, types ...arcp.Type) store.Result {
	d.Helper()
	return d.do(store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, Events: d.events(id, types...)}))
}

// finish completes a job in its first attempt.
func (d *db) finish(id arcp.JobID) store.Result {
	d.Helper()
	return d.do(d.completion(id, 1))
}

func (d *db) completion(id arcp.JobID, attempt uint32) *store.Write {
	return store.NewWrite(&store.AppendEvents{Job: id, Attempt: attempt, Events: d.events(id, arcp.JobCompleted), State: arcp.StateCompleted})
}

// sessionLog reads a session's log after a position and checks that the numbers have no gap.
func (d *db) sessionLog(id arcp.SessionID, after uint64) []store.Delivery {
	d.Helper()
	var out []store.Delivery
	err := d.SessionEvents(context.Background(), id, after, func(x store.Delivery) bool {
		out = append(out, x)
		return true
	})
	if err != nil {
		d.Fatalf("SessionEvents(%s, %d) = %v", id, after, err)
	}
	for i, x := range out {
		if x.Seq != after+uint64(i)+1 || x.Session != id {
			d.Fatalf("SessionEvents(%s, %d)[%d] has seq %d of %s", id, after, i, x.Seq, x.Session)
		}
	}
	return out
}

// jobLog reads a job's events after a position.
func (d *db) jobLog(id arcp.JobID, after uint64) []*store.Event {
	d.Helper()
	var out []*store.Event
	err := d.JobEvents(context.Background(), id, after, func(e *store.Event) bool {
		out = append(out, e)
		return true
	})
	if err != nil {
		d.Fatalf("JobEvents(%s, %d) = %v", id, after, err)
	}
	for i, e := range out {
		if e.JSeq != after+uint64(i)+1 {
			d.Fatalf("JobEvents(%s, %d)[%d] has position %d", id, after, i, e.JSeq)
		}
	}
	return out
}

func (d *db) job(id arcp.JobID) store.Job {
	d.Helper()
	j, err := d.Job(context.Background(), id)
	if err != nil {
		d.Fatalf("Job(%s) = %v", id, err)
	}
	return j
}

func (d *db) row(id arcp.SessionID) store.Session {
	d.Helper()
	s, err := d.Session(context.Background(), id)
	if err != nil {
		d.Fatalf("Session(%s) = %v", id, err)
	}
	return s
}

// want checks that a session's log has these types from the first number on.
func (d *db) want(id arcp.SessionID, types ...arcp.Type) {
	d.Helper()
	got := d.sessionLog(id, d.row(id).TrimmedTo)
	for i := range max(len(got), len(types)) {
		switch {
		case i >= len(got):
			d.Fatalf("the log of %s has %d events, want %d; %s is missing", id, len(got), len(types), types[i])
		case i >= len(types):
			d.Fatalf("the log of %s also has %s", id, got[i].Event.Type)
		case got[i].Event.Type != types[i]:
			d.Fatalf("the log of %s has %s as number %d, want %s", id, got[i].Event.Type, got[i].Seq, types[i])
		}
	}
}
