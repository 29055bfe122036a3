package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

func testStoreEqualsTheModel(t *testing.T, open Open) { runModel(openEmpty(t, open), t, func() {}) }

// testReopenedStoreEqualsTheModel closes and opens the store now and then.
func testReopenedStoreEqualsTheModel(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	batches := 0
	runModel(d, t, func() {
		if batches++; batches%40 == 0 {
			d.reopen(open, dir)
		}
	})
}

// runModel runs random scripts of batches against the model and calls between after each
// batch. All scripts use one store, each with its own names.
func runModel(d *db, t *testing.T, between func()) {
	deleted := uint64(0) // of the store: continues from script to script
	rapid.Check(t, func(rt *rapid.T) {
		s := &modelScript{t: rt, d: d, m: newModel(deleted), name: string(arcp.NewJobID()), last: map[string]int{}}
		defer func() { deleted = s.m.deleted }()
		for range rapid.IntRange(1, 12).Draw(rt, "batches") {
			s.batch()
			between()
		}
		s.compare()
	})
}

type modelScript struct {
	t    *rapid.T
	d    *db
	m    *model
	name string
	made int            // jobs
	last map[string]int // how often a session or job of a name has been deleted
}

func pick[T any](s *modelScript, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(s.t, label)
}

func (s *modelScript) session() arcp.SessionID {
	name := pick(s, "session", "a", "b", "c")
	for ; s.m.ended[s.sessionID(name)]; s.last["sess"+name]++ {
	}
	return s.sessionID(name)
}

func (s *modelScript) sessionID(name string) arcp.SessionID {
	return arcp.SessionID(fmt.Sprint("sess_", s.name, name, s.last["sess"+name]))
}

func (s *modelScript) job() arcp.JobID {
	name := pick(s, "job", "a", "b", "c", "d")
	for ; s.m.removed[s.jobID(name)]; s.last["job"+name]++ {
	}
	return s.jobID(name)
}

func (s *modelScript) jobID(name string) arcp.JobID {
	return arcp.JobID(fmt.Sprint("job_", s.name, name, s.last["job"+name]))
}

var modelTypes = []arcp.Type{arcp.JobProgress, arcp.Log, arcp.JobCheckpoint, arcp.StreamChunk, arcp.HumanInputRequest, "arcpx.test.thing"}

func (s *modelScript) events(id arcp.JobID, n int) []*store.Event {
	types := make([]arcp.Type, n)
	for i := range types {
		types[i] = pick(s, "type", modelTypes...)
	}
	events := s.d.events(id, types...)
	for _, e := range events {
		if pick(s, "routed", false, false, true) {
			e.Route = s.route()
		}
	}
	return events
}

func (s *modelScript) route() *store.Route {
	r := &store.Route{To: []arcp.SessionID{"sess_nobody"}}
	for range rapid.IntRange(0, 2).Draw(s.t, "to") {
		if id := s.session(); !slices.Contains(r.To, id) {
			r.To = append(r.To, id)
		}
	}
	if pick(s, "reply", false, true) {
		r.Reply = s.session()
	}
	if pick(s, "reply to", false, true) {
		r.ReplyTo = "reply"
	}
	return r
}

func (s *modelScript) drawDeliver(w *modelWrite) {
	w.Deliver = append(w.Deliver, store.DeliverEvent{Session: s.session(), Job: s.job(), JSeq: pick(s, "event", uint64(1), 2, 3, 5)})
}

// write draws a write with one to three operations.
func (s *modelScript) write() *modelWrite {
	w := new(modelWrite)
	for range rapid.IntRange(1, 3).Draw(s.t, "parts") {
		pick(s, "part", s.drawSession, s.drawSubmit, s.drawEvents, s.drawEvents, s.drawEvents, s.drawEnd,
			s.drawFollow, s.drawFollow, s.drawUnfollow, s.drawDeliver, s.drawTrim, s.drawRecord,
			s.drawEndSession, s.drawDelete, s.drawTrimFeed, s.drawAnnounce)(w)
	}
	return sensible(w)
}

// sensible removes operations that contradict others of the write.
func sensible(w *modelWrite) *modelWrite {
	if w.Session != nil && w.Session.ID == w.EndSession {
		w.EndSession = ""
	}
	if id := w.DeleteJob; w.Job == id || w.Submit != nil && w.Submit.ID == id ||
		w.Follow != nil && w.Follow.Job == id || w.Unfollow != nil && w.Unfollow.Job == id ||
		slices.ContainsFunc(w.Deliver, func(g store.DeliverEvent) bool { return g.Job == id }) {
		w.DeleteJob = ""
	}
	if len(w.Events) > 0 {
		w.Announce = nil
	}
	return w
}

func (s *modelScript) drawSession(w *modelWrite) {
	features := []arcp.Feature{arcp.FeatureStreaming, arcp.FeatureCheckpoints, arcp.FeatureHumanInput}
	w.Session = sessionRow(s.session(), features[:pick(s, "features", 0, 1, 2, 3)]...)
	how := pick(s, "how", "new", "new", "put", "attach")
	w.NewSession, w.Attach = how == "new", how == "attach"
	if known := s.m.sessions[w.Session.ID]; known != nil {
		w.Session.Epoch = pick(s, "epoch", known.epoch, known.epoch, known.epoch+1)
	}
}

func (s *modelScript) drawEndSession(w *modelWrite) { w.EndSession = s.session() }

func (s *modelScript) drawDelete(w *modelWrite) { w.DeleteJob = s.job() }

func (s *modelScript) drawTrimFeed(w *modelWrite) {
	w.TrimFeed = &store.TrimFeed{Principal: s.principal(), Position: pick(s, "trim", uint64(0), 1, 2, 3, 5, 100)}
}

func (s *modelScript) drawAnnounce(w *modelWrite) {
	types := []arcp.Type{arcp.Log, arcp.EventEmit, arcp.Log, "arcpx.test.thing", arcp.Log}
	w.Announce = &store.Announce{Principal: s.principal(), Events: s.d.events("", types[:pick(s, "announced", 1, 2, 5)]...)}
}

func (s *modelScript) principal() string { return s.name + pick(s, "principal", "ann", "bob") }

func (s *modelScript) drawSubmit(w *modelWrite) {
	if w.Job != "" {
		return
	}
	row := jobRow(s.job(), pick(s, "owner", s.session(), ""))
	row.Principal = s.principal()
	row.SubmitID = pick(s, "submit", row.SubmitID, row.SubmitID, "m1")
	w.Recheck = pick(s, "recheck", true, false)
	row.IdempotencyKey = pick(s, "key", "", "", "k1", "k2")
	row.Digest = fmt.Sprint("digest", s.made)
	s.made++
	w.Submit = row
	w.Events = s.events(row.ID, pick(s, "accepted", 0, 1, 2))
	w.State = ""
}

func (s *modelScript) drawEvents(w *modelWrite) {
	if w.Submit != nil || w.State != "" {
		return
	}
	w.Job, w.Attempt = s.job(), uint32(pick(s, "attempt", 1, 1, 1, 2))
	w.NewAttempt = pick(s, "takeover", false, false, false, true)
	w.Events = s.events(w.Job, pick(s, "events", 0, 1, 2, 5))
}

func (s *modelScript) drawEnd(w *modelWrite) {
	if w.Submit == nil {
		s.drawEvents(w)
	}
	if w.State == "" && (w.Job != "" || w.Submit != nil) {
		id := w.Job
		if w.Submit != nil {
			id = w.Submit.ID
		}
		w.Events = append(w.Events, s.d.events(id, arcp.JobCompleted)...)
		w.State = arcp.StateCompleted
	}
}

func (s *modelScript) drawFollow(w *modelWrite) {
	types := arcp.Lookup(arcp.Log).Bit | arcp.Lookup(arcp.JobCheckpoint).Bit
	w.Follow = &store.Follow{Session: s.session(), Job: s.job(), From: pick(s, "from", uint64(0), 0, 1, 3, 100),
		Types: pick(s, "types", 0, 0, types), Forwarded: pick(s, "forwarded", true, false), Once: pick(s, "once", false, false, true), New: pick(s, "new", false, true),
		Max: pick(s, "max", uint64(0), 0, 1, 2), Limit: pick(s, "limit", 0, 0, 1, 2)}
	w.Follow.CorrelationID = pick(s, "corr", "c1", "c2", arcp.MessageID("submit-"+w.Follow.Job))
}

func (s *modelScript) drawUnfollow(w *modelWrite) {
	w.Unfollow = &store.Unfollow{Session: s.session(), Job: s.job(), Forwarded: pick(s, "forwarded", true, false)}
	w.Unfollow.CorrelationID = pick(s, "corr", "c1", "c2", arcp.MessageID("submit-"+w.Unfollow.Job))
}

func (s *modelScript) drawTrim(w *modelWrite) {
	w.Trim = &store.TrimSession{Session: s.session(), Seq: pick(s, "trim", uint64(0), 1, 2, 3, 5, 8, 13, 100)}
}

func (s *modelScript) drawRecord(w *modelWrite) {
	key := s.name + pick(s, "record", "x", "y")
	if pick(s, "of a job", true, false) {
		key = store.JobRecordPrefix(s.job()) + pick(s, "record", "x", "y")
	}
	if slices.ContainsFunc(w.Records, func(r store.Record) bool { return r.Key == key }) {
		return
	}
	rev := s.m.records[key].rev
	r := store.Record{Key: key, Rev: pick(s, "rev", rev, rev, rev, 0, rev+1)}
	if value := pick(s, "value", "", "one", "two", "delete"); value != "delete" {
		r.Value = []byte(value)
	}
	w.Records = append(w.Records, r)
}

// batch commits one to four writes and compares their results.
func (s *modelScript) batch() {
	list := make([]*modelWrite, rapid.IntRange(1, 4).Draw(s.t, "writes"))
	writes := make([]*store.Write, len(list))
	for i := range list {
		list[i] = s.write()
		writes[i] = list[i].write()
	}
	results := make([]store.Result, len(writes))
	if err := s.d.Commit(writes, results); err != nil {
		s.t.Fatalf("Commit = %v", err)
	}
	for i, w := range list {
		s.check(w, &results[i])
	}
}

func (s *modelScript) check(w *modelWrite, r *store.Result) {
	before := s.m
	if id, repeated := s.m.existing(w); id != "" {
		if r.Err != nil || r.Existing != id || r.Repeated != repeated || r.Digest != s.m.jobs[id].digest {
			s.t.Fatalf("result = %+v, want existing %s", *r, id)
		}
		return
	}
	after, err := s.m.apply(w)
	if !sameRefusal(err, r.Err) {
		s.t.Fatalf("result = %v, want %v", r.Err, err)
	}
	if s.m = after; err != nil {
		return
	}
	s.checkRuns(before, r)
	s.checkFeed(before, w, r)
	if w.Session != nil && r.Epoch != after.sessions[w.Session.ID].epoch {
		s.t.Fatalf("Epoch = %d, want %d", r.Epoch, after.sessions[w.Session.ID].epoch)
	}
	if w.Follow != nil && r.LastSeq != uint64(len(after.sessions[w.Follow.Session].log)) {
		s.t.Fatalf("LastSeq = %d after a follow, want %d", r.LastSeq, len(after.sessions[w.Follow.Session].log))
	}
}

// checkRuns checks that the runs are the events that this write added to the logs of
// sessions, in order.
func (s *modelScript) checkRuns(before *model, r *store.Result) {
	next := map[arcp.SessionID]int{}
	for _, run := range r.Runs {
		if s.m.sessions[run.Session] == nil {
			s.t.Fatalf("run %+v is of a session that has ended", run)
		}
		log := s.m.sessions[run.Session].log
		i, ok := next[run.Session]
		if !ok && before.sessions[run.Session] != nil {
			i = len(before.sessions[run.Session].log)
		}
		for k, e := range run.Events {
			want := log[i+k]
			if run.First != uint64(i)+1 || e.JSeq != want.jseq || run.CorrelationID != want.corr || run.Forwarded != want.forwarded {
				s.t.Fatalf("run %+v has event %d, want %+v", run, e.JSeq, want)
			}
		}
		next[run.Session] = i + len(run.Events)
	}
	for id, sess := range s.m.sessions {
		was := 0
		if before.sessions[id] != nil {
			was = len(before.sessions[id].log)
		}
		if n, ok := next[id]; (ok || was != len(sess.log)) && n != len(sess.log) {
			s.t.Fatalf("%s: the runs go to %d, want %d", id, n, len(sess.log))
		}
	}
}

// checkFeed checks the events that this write added to a feed.
func (s *modelScript) checkFeed(before *model, w *modelWrite, r *store.Result) {
	want := store.FeedRun{}
	if len(w.Events) > 0 {
		want.Job, want.Events = w.Job, w.Events
		if w.Submit != nil {
			want.Job = w.Submit.ID
		}
		j := s.m.jobs[want.Job]
		want.Principal, want.Session, want.CorrelationID, want.First = j.principal, j.session, j.submitID, 1
		want.First += before.feedLen(j.principal)
	}
	if a := w.Announce; a != nil {
		want = store.FeedRun{Principal: a.Principal, First: before.feedLen(a.Principal) + 1, Events: a.Events}
	}
	if diff := cmp.Diff(want, r.Feed); diff != "" {
		s.t.Fatalf("feed (-want +got):\n%s", diff)
	}
}

// compare compares all readable data.
func (s *modelScript) compare() {
	for id, want := range s.m.sessions {
		s.compareSession(id, want)
	}
	for id, want := range s.m.jobs {
		s.compareJob(id, want)
	}
	for p, want := range s.m.feeds {
		s.compareFeed(p, want)
	}
	s.compareGone()
	s.compareEnded()
	s.compareRecords()
}

func (s *modelScript) compareGone() {
	for id := range s.m.ended {
		if _, err := s.d.Session(context.Background(), id); !errors.Is(err, store.ErrNotFound) {
			s.t.Fatalf("%s has ended: %v", id, err)
		}
	}
	for id := range s.m.removed {
		if _, err := s.d.Job(context.Background(), id); !errors.Is(err, store.ErrNotFound) {
			s.t.Fatalf("%s was deleted: %v", id, err)
		}
	}
}

// compareEnded checks that the ended jobs of the script are listed in order, among the
// jobs of earlier scripts.
func (s *modelScript) compareEnded() {
	var last time.Time
	n := 0
	err := s.d.EndedJobs(context.Background(), s.d.now.Add(time.Hour), func(j store.Job) bool {
		if j.EndedAt.Before(last) {
			s.t.Fatalf("%s ended at %s is listed after %s", j.ID, j.EndedAt, last)
		}
		if last = j.EndedAt; strings.Contains(string(j.ID), s.name) {
			if want := s.m.jobs[j.ID]; want == nil || !want.state.Terminal() {
				s.t.Fatalf("%s is listed as ended", j.ID)
			}
			n++
		}
		return true
	})
	for _, j := range s.m.jobs {
		if j.state.Terminal() {
			n--
		}
	}
	if err != nil || n != 0 {
		s.t.Fatalf("Ended lists %d too many: %v", n, err)
	}
}

func (s *modelScript) compareRecords() {
	got := map[string]modelRecord{}
	for _, prefix := range []string{s.name, "job/job_" + s.name} {
		last := ""
		err := s.d.Records(context.Background(), prefix, "", func(rec store.Record) bool {
			if rec.Key <= last {
				s.t.Fatalf("record %s after %s", rec.Key, last)
			}
			last, got[rec.Key] = rec.Key, modelRecord{rev: rec.Rev, value: string(rec.Value)}
			return true
		})
		if err != nil {
			s.t.Fatalf("Records = %v", err)
		}
	}
	if diff := cmp.Diff(s.m.records, got, cmp.AllowUnexported(modelRecord{})); diff != "" {
		s.t.Fatalf("records (-want +got):\n%s", diff)
	}
	for key, want := range got {
		if rec, err := s.d.Get(context.Background(), key); err != nil || rec.Rev != want.rev || rec.Value == nil {
			s.t.Fatalf("Get(%s) = %+v, %v; want %+v", key, rec, err, want)
		}
	}
}

// readable returns the events before the first event of a deleted job, and the error at
// their end.
func (m *model) readable(events []modelDelivery) ([]modelDelivery, error) {
	for i := range events {
		if events[i].job != "" && m.jobs[events[i].job] == nil {
			return events[:i], store.ErrTrimmed
		}
	}
	return events, nil
}

func (s *modelScript) compareFeed(principal string, want *modelFeed) {
	var got []modelDelivery
	ctx := context.Background()
	err := s.d.Feed(ctx, principal, want.trimmed, func(x store.FeedEvent) bool {
		j := s.m.jobs[x.Job]
		if x.Job == "" {
			j = new(modelJob)
			s.compareAnnounced(principal, x, want.trimmed)
		}
		if x.Position != want.trimmed+uint64(len(got))+1 || j == nil || x.Session != j.session || x.CorrelationID != j.submitID {
			s.t.Fatalf("%s: event %d is %+v", principal, len(got), x)
		}
		got = append(got, modelDelivery{job: x.Job, jseq: x.Event.JSeq})
		return true
	})
	events, wantErr := s.m.readable(want.events[want.trimmed:])
	if diff := cmp.Diff(events, got, cmp.AllowUnexported(modelDelivery{}), emptyIsNil); !errors.Is(err, wantErr) || diff != "" {
		s.t.Fatalf("%s: %v, want %v (-want +got):\n%s", principal, err, wantErr, diff)
	}
	trimmed, last, err := s.d.FeedBounds(ctx, principal)
	if err != nil || trimmed != want.trimmed || last != uint64(len(want.events)) {
		s.t.Fatalf("%s: bounds %d, %d, %v; want %d, %d", principal, trimmed, last, err, want.trimmed, len(want.events))
	}
	for i, x := range want.events {
		if s.m.jobs[x.job] != nil {
			s.comparePosition(principal, x, uint64(i)+1, want.trimmed)
		}
	}
}

// compareAnnounced checks the position of an announced event, and that it is found by its
// id.
func (s *modelScript) compareAnnounced(principal string, x store.FeedEvent, trimmed uint64) {
	got, err := s.d.FeedPosition(context.Background(), principal, x.Event.ID())
	if err != nil || got != x.Position || x.Event.JSeq != x.Position || x.Event.OriginSeq != 0 || x.Event.JobID() != "" {
		s.t.Fatalf("%s: announced %+v, found at %d, %v; trimmed to %d", principal, x, got, err, trimmed)
	}
}

func (s *modelScript) comparePosition(principal string, x modelDelivery, position, trimmed uint64) {
	id := s.d.jobLog(x.job, x.jseq-1)[0].ID()
	got, err := s.d.FeedPosition(context.Background(), principal, id)
	if position <= trimmed && errors.Is(err, store.ErrNotFound) {
		return
	}
	if position <= trimmed || err != nil || got != position {
		s.t.Fatalf("%s: the position of %s is %d, %v; want %d, trimmed to %d", principal, id, got, err, position, trimmed)
	}
}

func (s *modelScript) compareSession(id arcp.SessionID, want *modelSession) {
	var got []modelDelivery
	err := s.d.SessionEvents(context.Background(), id, want.trimmed, func(x store.Delivery) bool {
		k := int(x.Seq) - 1
		if k != len(got)+int(want.trimmed) || k >= len(want.log) || !bytes.Contains(x.Event.Body, []byte(want.log[k].job)) {
			s.t.Fatalf("%s: number %d after %d is %s", id, x.Seq, len(got), x.Event.Body)
		}
		got = append(got, modelDelivery{want.log[k].job, x.Event.JSeq, x.CorrelationID, x.Forwarded})
		return true
	})
	log, wantErr := s.m.readable(want.log[want.trimmed:])
	if diff := cmp.Diff(log, got, cmp.AllowUnexported(modelDelivery{}), emptyIsNil); !errors.Is(err, wantErr) || diff != "" {
		s.t.Fatalf("%s: %v, want %v (-want +got):\n%s", id, err, wantErr, diff)
	}
	if want.trimmed > 0 {
		err := s.d.SessionEvents(context.Background(), id, want.trimmed-1, func(store.Delivery) bool { return true })
		if !errors.Is(err, store.ErrTrimmed) {
			s.t.Fatalf("%s: reading what was trimmed = %v", id, err)
		}
	}
	row, err := s.d.Session(context.Background(), id)
	if err != nil || row.LastSeq != uint64(len(want.log)) || row.TrimmedTo != want.trimmed || row.Epoch != want.epoch {
		s.t.Fatalf("%s: row %+v, %v; want %d given, %d trimmed", id, row, err, len(want.log), want.trimmed)
	}
}

// emptyIsNil makes cmp treat an empty slice as nil.
var emptyIsNil = cmp.FilterValues(func(a, b []modelDelivery) bool { return len(a) == 0 && len(b) == 0 }, cmp.Ignore())

func (s *modelScript) compareJob(id arcp.JobID, want *modelJob) {
	var got []modelEvent
	err := s.d.JobEvents(context.Background(), id, 0, func(e *store.Event) bool {
		got = append(got, modelEvent{typ: e.Type, originSeq: e.OriginSeq})
		return true
	})
	if err != nil || len(got) != len(want.events) {
		s.t.Fatalf("%s has %d events, want %d: %v", id, len(got), len(want.events), err)
	}
	for i := range got {
		if got[i] != want.events[i] {
			s.t.Fatalf("%s: event %d = %+v, want %+v", id, i+1, got[i], want.events[i])
		}
	}
	j, err := s.d.Job(context.Background(), id)
	if err != nil || j.State != want.state || j.Attempt != want.attempt || j.LastJSeq != uint64(len(want.events)) {
		s.t.Fatalf("%s: row %+v, %v; want %+v", id, j, err, want)
	}
}
