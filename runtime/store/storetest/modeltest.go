package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

func testModel(t *testing.T, open Open) { runModel(fresh(t, open), t, func() {}) }

// testModelReopen closes and opens the store now and then.
func testModelReopen(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	batches := 0
	runModel(d, t, func() {
		if batches++; batches%40 == 0 {
			d.reopen(open, dir)
		}
	})
}

// runModel runs random scripts of batches against the model, each with names
// of its own in one store, and calls between after each batch.
func runModel(d *db, t *testing.T, between func()) {
	deleted := uint64(0) // goes on from script to script, as the store does
	rapid.Check(t, func(rt *rapid.T) {
		s := &modelScript{t: rt, d: d, m: newModel(deleted), name: string(arcp.NewJobID())}
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
	made int // jobs
}

func pick[T any](s *modelScript, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(s.t, label)
}

func (s *modelScript) session() arcp.SessionID {
	return arcp.SessionID("sess_" + s.name + pick(s, "session", "a", "b", "c"))
}

func (s *modelScript) job() arcp.JobID {
	return arcp.JobID("job_" + s.name + pick(s, "job", "a", "b", "c", "d"))
}

var modelTypes = []arcp.Type{arcp.JobProgress, arcp.Log, arcp.JobCheckpoint, arcp.StreamChunk, arcp.HumanInputRequest, "arcpx.test.thing"}

func (s *modelScript) events(id arcp.JobID, n int) []*store.Event {
	types := make([]arcp.Type, n)
	for i := range types {
		types[i] = pick(s, "type", modelTypes...)
	}
	return s.d.events(id, types...)
}

// write draws a write with one to three parts.
func (s *modelScript) write() *store.Write {
	w := new(store.Write)
	for range rapid.IntRange(1, 3).Draw(s.t, "parts") {
		pick(s, "part", s.drawSession, s.drawSubmit, s.drawEvents, s.drawEvents, s.drawEvents, s.drawEnd,
			s.drawFollow, s.drawFollow, s.drawUnfollow, s.drawTrim, s.drawRecord)(w)
	}
	return w
}

func (s *modelScript) drawSession(w *store.Write) {
	features := []arcp.Feature{arcp.FeatureStreaming, arcp.FeatureCheckpoints, arcp.FeatureHumanInput}
	w.Session = sessionRow(s.session(), features[:pick(s, "features", 0, 1, 2, 3)]...)
	w.NewSession = pick(s, "new", true, true, false)
}

func (s *modelScript) drawSubmit(w *store.Write) {
	if w.Job != "" {
		return
	}
	row := jobRow(s.job(), pick(s, "owner", s.session(), ""))
	row.Principal = s.name + pick(s, "principal", "ann", "bob")
	row.IdempotencyKey = pick(s, "key", "", "", "k1", "k2")
	row.Digest = fmt.Sprint("digest", s.made)
	s.made++
	w.Submit = row
	w.Events = s.events(row.ID, pick(s, "accepted", 0, 1, 2))
	w.State = ""
}

func (s *modelScript) drawEvents(w *store.Write) {
	if w.Submit != nil || w.State != "" {
		return
	}
	w.Job, w.Attempt = s.job(), uint32(pick(s, "attempt", 1, 1, 1, 2))
	w.NewAttempt = pick(s, "takeover", false, false, false, true)
	w.Events = s.events(w.Job, pick(s, "events", 0, 1, 2, 5))
}

func (s *modelScript) drawEnd(w *store.Write) {
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

func (s *modelScript) drawFollow(w *store.Write) {
	types := arcp.Lookup(arcp.Log).Bit | arcp.Lookup(arcp.JobCheckpoint).Bit
	w.Follow = &store.Follow{Session: s.session(), Job: s.job(), From: pick(s, "from", uint64(0), 0, 1, 3, 100),
		Types: pick(s, "types", 0, 0, types), Origin: pick(s, "origin", true, false)}
	w.Follow.CorrelationID = pick(s, "corr", "c1", "c2", arcp.MessageID("submit-"+w.Follow.Job))
}

func (s *modelScript) drawUnfollow(w *store.Write) {
	w.Unfollow = &store.Follow{Session: s.session(), Job: s.job()}
	w.Unfollow.CorrelationID = pick(s, "corr", "c1", "c2", arcp.MessageID("submit-"+w.Unfollow.Job))
}

func (s *modelScript) drawTrim(w *store.Write) {
	w.Trim = &store.Trim{Session: s.session(), Seq: pick(s, "trim", uint64(0), 1, 2, 3, 5, 8, 13, 100)}
}

func (s *modelScript) drawRecord(w *store.Write) {
	key := s.name + pick(s, "record", "x", "y")
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

// batch commits one to four writes and compares what came of them.
func (s *modelScript) batch() {
	writes := make([]*store.Write, rapid.IntRange(1, 4).Draw(s.t, "writes"))
	for i := range writes {
		writes[i] = s.write()
	}
	results := make([]store.Result, len(writes))
	if err := s.d.Commit(writes, results); err != nil {
		s.t.Fatalf("Commit = %v", err)
	}
	for i, w := range writes {
		s.check(w, &results[i])
	}
}

func (s *modelScript) check(w *store.Write, r *store.Result) {
	before := s.m
	if id := s.m.existing(w); id != "" {
		if r.Err != nil || r.Existing != id || r.Digest != s.m.jobs[id].digest {
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
	if w.Follow != nil && r.LastSeq != uint64(len(after.sessions[w.Follow.Session].given)) {
		s.t.Fatalf("LastSeq = %d after a follow, want %d", r.LastSeq, len(after.sessions[w.Follow.Session].given))
	}
}

// checkRuns checks that the runs are what the sessions have been given by this
// write, in order.
func (s *modelScript) checkRuns(before *model, r *store.Result) {
	next := map[arcp.SessionID]int{}
	for _, run := range r.Runs {
		given := s.m.sessions[run.Session].given
		i, ok := next[run.Session]
		if !ok && before.sessions[run.Session] != nil {
			i = len(before.sessions[run.Session].given)
		}
		for k, e := range run.Events {
			want := given[i+k]
			if run.First != uint64(i)+1 || e.JSeq != want.jseq || run.CorrelationID != want.corr || run.Origin != want.origin {
				s.t.Fatalf("run %+v has event %d, want %+v", run, e.JSeq, want)
			}
		}
		next[run.Session] = i + len(run.Events)
	}
	for id, sess := range s.m.sessions {
		was := 0
		if before.sessions[id] != nil {
			was = len(before.sessions[id].given)
		}
		if n, ok := next[id]; (ok || was != len(sess.given)) && n != len(sess.given) {
			s.t.Fatalf("%s: the runs go to %d, want %d", id, n, len(sess.given))
		}
	}
}

// compare checks everything that can be read.
func (s *modelScript) compare() {
	for id, want := range s.m.sessions {
		s.compareSession(id, want)
	}
	for id, want := range s.m.jobs {
		s.compareJob(id, want)
	}
	for _, k := range []string{"x", "y"} {
		want := s.m.records[s.name+k]
		rec, err := s.d.Get(context.Background(), s.name+k)
		if err != nil || rec.Rev != want.rev || string(rec.Value) != want.value || (rec.Value == nil) != (want.rev == 0) {
			s.t.Fatalf("record %s = %+v, %v; want %+v", k, rec, err, want)
		}
	}
}

func (s *modelScript) compareSession(id arcp.SessionID, want *modelSession) {
	var got []modelDelivery
	err := s.d.SessionEvents(context.Background(), id, want.trimmed, func(x store.Delivery) bool {
		k := int(x.Seq) - 1
		if k != len(got)+int(want.trimmed) || k >= len(want.given) || !bytes.Contains(x.Event.Body, []byte(want.given[k].job)) {
			s.t.Fatalf("%s: number %d after %d is %s", id, x.Seq, len(got), x.Event.Body)
		}
		got = append(got, modelDelivery{want.given[k].job, x.Event.JSeq, x.CorrelationID, x.Origin})
		return true
	})
	if diff := cmp.Diff(want.given[want.trimmed:], got, cmp.AllowUnexported(modelDelivery{}), emptyIsNil); err != nil || diff != "" {
		s.t.Fatalf("%s: %v (-want +got):\n%s", id, err, diff)
	}
	if want.trimmed > 0 {
		err := s.d.SessionEvents(context.Background(), id, want.trimmed-1, func(store.Delivery) bool { return true })
		if !errors.Is(err, store.ErrTrimmed) {
			s.t.Fatalf("%s: reading what was trimmed = %v", id, err)
		}
	}
	row, err := s.d.Session(context.Background(), id)
	if err != nil || row.LastSeq != uint64(len(want.given)) || row.TrimmedTo != want.trimmed {
		s.t.Fatalf("%s: row %+v, %v; want %d given, %d trimmed", id, row, err, len(want.given), want.trimmed)
	}
}

// emptyIsNil makes cmp treat an empty slice as none.
var emptyIsNil = cmp.FilterValues(func(a, b []modelDelivery) bool { return len(a) == 0 && len(b) == 0 }, cmp.Ignore())

func (s *modelScript) compareJob(id arcp.JobID, want *modelJob) {
	var got []modelEvent
	err := s.d.JobEvents(context.Background(), id, 0, func(e *store.Event) bool {
		got = append(got, modelEvent{e.Type, e.OriginSeq})
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
