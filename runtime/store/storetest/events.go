package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

func testSessionRowsAreStored(t *testing.T, open Open) {
	d := openEmpty(t, open)
	row := sessionRow("sess_b", arcp.FeatureStreaming, "x.unknown")
	row.Anonymous = true
	if r := d.do(store.NewWrite(&store.OpenSession{Row: row})); r.LastSeq != 0 || len(r.Runs) != 0 {
		t.Errorf("a new session has LastSeq %d and %d runs", r.LastSeq, len(r.Runs))
	}
	d.refuse(store.NewWrite(&store.OpenSession{Row: sessionRow("sess_b")}), store.ErrExists)
	row.Epoch = 1
	if diff := cmp.Diff(*row, d.row("sess_b")); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	d.emit(d.submit("job_1", "sess_b"), arcp.JobStarted, arcp.StreamOpen)

	row = sessionRow("sess_b")
	row.LastSeq, row.TrimmedTo, row.Epoch = 77, 66, 1
	row.TokenHash, row.PrevHashes = [32]byte{9}, [][32]byte{row.TokenHash}
	row.Identity, row.Acks, row.Written = arcp.Raw(`{"sub":"ann"}`), true, 1
	if r := d.do(store.NewWrite(&store.PutSession{Row: row})); r.LastSeq != 2 {
		t.Errorf("LastSeq = %d after the row was replaced, want 2", r.LastSeq)
	}
	row.LastSeq, row.TrimmedTo = 2, 0
	if diff := cmp.Diff(*row, d.row("sess_b")); diff != "" {
		t.Errorf("replaced row (-want +got):\n%s", diff)
	}
	d.emit("job_1", arcp.StreamChunk, arcp.JobProgress)
	d.want("sess_b", arcp.JobStarted, arcp.StreamOpen, arcp.JobProgress)

	d.session("sess_c")
	d.session("sess_a")
	var ids []arcp.SessionID
	err := d.Sessions(context.Background(), func(s store.Session) bool {
		ids = append(ids, s.ID)
		return len(ids) < 2
	})
	if diff := cmp.Diff([]arcp.SessionID{"sess_a", "sess_b"}, ids); err != nil || diff != "" {
		t.Errorf("Sessions = %v; (-want +got):\n%s", err, diff)
	}
	if _, err := d.Session(context.Background(), "sess_z"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Session of none = %v, want ErrNotFound", err)
	}
	err = d.SessionEvents(context.Background(), "sess_z", 0, func(store.Delivery) bool { return true })
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("SessionEvents of none = %v, want ErrNotFound", err)
	}
	if r := d.do(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: "sess_b"}}, NoSync: true}); r.LastSeq != 3 {
		t.Errorf("Mark gives %d, want 3", r.LastSeq)
	}
	d.refuse(store.NewWrite(&store.ReadPosition{Session: "sess_z"}), store.ErrNotFound)
}

func testNumbersHaveNoGap(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_a", s)
	d.submit("job_b", s)
	events := d.events("job_a", arcp.JobAccepted, arcp.JobStarted)
	r := d.do(store.NewWrite(&store.AppendEvents{Job: "job_a", Attempt: 1, Events: events}))
	want := []store.Run{{Session: s, First: 1, CorrelationID: "submit-job_a", Events: events}}
	if diff := cmp.Diff(want, r.Runs); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if r := d.emit("job_b", arcp.JobAccepted); len(r.Runs) != 1 || r.Runs[0].First != 3 {
		t.Errorf("runs of the second job = %+v, want one from 3", r.Runs)
	}
	d.emit("job_a", arcp.JobProgress)
	d.want(s, arcp.JobAccepted, arcp.JobStarted, arcp.JobAccepted, arcp.JobProgress)

	got := d.sessionLog(s, 0)
	for i, e := range d.jobLog("job_a", 0) {
		x := got[[]int{0, 1, 3}[i]]
		if diff := cmp.Diff(e, x.Event); diff != "" || x.CorrelationID != "submit-job_a" || x.Forwarded {
			t.Errorf("delivery %d = %+v (-log +delivered):\n%s", x.Seq, x, diff)
		}
	}
	if n := len(d.sessionLog(s, 3)); n != 1 {
		t.Errorf("%d events after 3, want 1", n)
	}
	for _, after := range []uint64{4, 5, 1 << 40} {
		if n := len(d.sessionLog(s, after)); n != 0 {
			t.Errorf("%d events after %d, want 0", n, after)
		}
	}
	if d.row(s).LastSeq != 4 {
		t.Errorf("LastSeq = %d, want 4", d.row(s).LastSeq)
	}
}

func testSessionsGetTheTypesOfTheirView(t *testing.T, open Open) {
	d := openEmpty(t, open)
	all := []arcp.Type{arcp.JobAccepted, arcp.JobCheckpoint, arcp.HumanInputRequest, arcp.JobProgress,
		arcp.StreamOpen, arcp.StreamChunk, "arcpx.test.thing", arcp.JobHeartbeat, arcp.Log}
	for _, c := range []struct {
		name     string
		features []arcp.Feature
		want     []arcp.Type
	}{
		{"none", nil, []arcp.Type{arcp.JobAccepted, arcp.JobProgress, arcp.Log}},
		{"checkpoints", []arcp.Feature{arcp.FeatureCheckpoints},
			[]arcp.Type{arcp.JobAccepted, arcp.JobCheckpoint, arcp.JobProgress, arcp.Log}},
		{"human_input", []arcp.Feature{arcp.FeatureHumanInput},
			[]arcp.Type{arcp.JobAccepted, arcp.JobProgress, arcp.Log}}, // only the receivers of a question get it
		{"streaming", []arcp.Feature{arcp.FeatureStreaming},
			[]arcp.Type{arcp.JobAccepted, arcp.JobProgress, arcp.StreamOpen, arcp.StreamChunk, arcp.Log}},
	} {
		s := d.session(arcp.SessionID("sess_"+c.name), c.features...)
		j := d.submit(arcp.JobID("job_"+c.name), s)
		r := d.emit(j, all...)
		if len(r.Runs) != 1 || len(r.Runs[0].Events) != len(c.want) || r.Runs[0].First != 1 {
			t.Errorf("%s: runs = %+v, want one of %d events from 1", c.name, r.Runs, len(c.want))
		}
		if r := d.emit(j, "arcpx.test.thing"); len(r.Runs) != 0 {
			t.Errorf("%s: a hidden event gave runs %+v", c.name, r.Runs)
		}
		d.want(s, c.want...)
		if n := len(d.jobLog(j, 0)); n != len(all)+1 {
			t.Errorf("%s: the job's log has %d events, want %d", c.name, n, len(all)+1)
		}
	}
}

// testRouteSelectsReceivers checks that an event of a directed type goes to the sessions of its route,
// an answer also to the session that asked, and that DeliverEvent adds a session later.
// An event of another type goes to these sessions and to the followers of the job.
func testRouteSelectsReceivers(t *testing.T, open Open) {
	d := openEmpty(t, open)
	owner := d.session("sess_owner", arcp.FeatureHumanInput)
	person := d.session("sess_person", arcp.FeatureHumanInput)
	blind := d.session("sess_blind")
	j := d.submit("job_a", owner)
	d.do(store.NewWrite(&store.Follow{Session: person, Job: j, CorrelationID: "c", Forwarded: true}))
	events := d.events(j, arcp.Log, arcp.HumanInputRequest, arcp.HumanInputCancelled, arcp.LeaseGranted, arcp.LeaseRevoked)
	events[1].Route = &store.Route{To: []arcp.SessionID{blind, owner, person, "sess_nobody"}}
	events[2].Route = &store.Route{To: []arcp.SessionID{owner}, ReplyTo: "msg_question"}
	events[3].Route = &store.Route{Reply: blind, ReplyTo: "msg_grant"}
	events[4].Route = &store.Route{To: []arcp.SessionID{blind, person}, Reply: owner, ReplyTo: "msg_revoke"}
	d.do(store.NewWrite(&store.AppendEvents{Job: j, Attempt: 1, Events: events}))
	d.want(owner, arcp.Log, arcp.HumanInputRequest, arcp.HumanInputCancelled, arcp.LeaseGranted, arcp.LeaseRevoked)
	d.want(person, arcp.Log, arcp.HumanInputRequest, arcp.LeaseGranted, arcp.LeaseRevoked)
	d.want(blind, arcp.LeaseGranted, arcp.LeaseRevoked)
	if x := d.sessionLog(blind, 0)[0]; x.CorrelationID != "msg_grant" || !x.Forwarded {
		t.Errorf("the answer is given as %+v", x)
	}
	if x := d.sessionLog(owner, 0)[2]; x.CorrelationID != "msg_question" || x.Forwarded {
		t.Errorf("the end of a question is given as %+v", x)
	}
	if x := d.sessionLog(blind, 0)[1]; x.CorrelationID != "" || !x.Forwarded {
		t.Errorf("who is told besides is given %+v", x)
	}
	if x := d.sessionLog(owner, 0)[4]; x.CorrelationID != "msg_revoke" {
		t.Errorf("who has asked is given %+v", x)
	}
	if x := d.sessionLog(person, 0)[1]; x.CorrelationID != "" || !x.Forwarded || x.Event.OriginSeq != 2 {
		t.Errorf("a question is given as %+v", x)
	}
	if n := len(d.jobLog(j, 0)); n != len(events) {
		t.Errorf("the job's log has %d events", n)
	}

	late := d.session("sess_late", arcp.FeatureHumanInput)
	d.do(store.NewWrite(&store.Follow{Session: late, Job: j, CorrelationID: "c"}))
	d.want(late, arcp.Log, arcp.LeaseGranted, arcp.LeaseRevoked)
	d.do(store.NewWrite(&store.DeliverEvent{Session: late, Job: j, JSeq: 2}))
	d.want(late, arcp.Log, arcp.LeaseGranted, arcp.LeaseRevoked, arcp.HumanInputRequest)
	if x := d.sessionLog(late, 0)[3]; x.CorrelationID != "c" || x.Forwarded {
		t.Errorf("a session that follows everything itself is given %+v", x)
	}
	d.do(store.NewWrite(&store.DeliverEvent{Session: "sess_nobody", Job: j, JSeq: 2})) // as if it had just ended
	d.refuse(store.NewWrite(&store.DeliverEvent{Session: late, Job: "job_b", JSeq: 2}), store.ErrNotFound)
	d.refuse(store.NewWrite(&store.DeliverEvent{Session: late, Job: j}), store.ErrInvalid)
}

// testOriginSeqIsTheSubmittersNumber checks that OriginSeq is the event_seq in the submitting
// session, or the last one before.
func testOriginSeqIsTheSubmittersNumber(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_1", s)
	d.submit("job_2", s)
	d.emit("job_2", arcp.JobAccepted)
	d.do(store.NewWrite(&store.SubmitJob{Row: jobRow("job_free", "")}))
	d.emit("job_1", arcp.JobCheckpoint, arcp.JobStarted, arcp.JobCheckpoint, arcp.JobProgress)
	d.emit("job_1", arcp.JobCheckpoint)
	d.emit("job_free", arcp.JobCheckpoint, arcp.JobStarted)
	originSeqs := func(id arcp.JobID) (out []uint64) {
		for _, e := range d.jobLog(id, 0) {
			out = append(out, e.OriginSeq)
		}
		return out
	}
	if diff := cmp.Diff([]uint64{1, 2, 2, 3, 3}, originSeqs("job_1")); diff != "" {
		t.Errorf("OriginSeq (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint64{1, 2}, originSeqs("job_free")); diff != "" {
		t.Errorf("OriginSeq without a session (-want +got):\n%s", diff)
	}
	if j := d.job("job_1"); j.LastJSeq != 5 || j.LastSeq != 3 {
		t.Errorf("job_1 has LastJSeq %d, LastSeq %d; want 5, 3", j.LastJSeq, j.LastSeq)
	}
	d.finish("job_1")
	if j := d.job("job_1"); j.LastJSeq != 6 || j.LastSeq != 4 {
		t.Errorf("ended job_1 has LastJSeq %d, LastSeq %d; want 6, 4", j.LastJSeq, j.LastSeq)
	}
}

// testFramesAreDecodable checks that a receiver can decode the frames of stored events.
func testFramesAreDecodable(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.emit(d.submit("job_1", s), arcp.JobProgress)
	x := d.sessionLog(s, 0)[0]
	env, err := arcp.Decode(store.AppendFrame(nil, store.FrameHead("1.1", s), x.Seq, x.CorrelationID, x.Event))
	if err != nil {
		t.Fatalf("Decode of a frame = %v", err)
	}
	if env.ID != x.Event.ID() || env.EventSeq != 1 || env.JobID != "job_1" || env.Type != arcp.JobProgress {
		t.Errorf("decoded %+v", env)
	}
}

func testUnloggedEventsAreNotStored(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s, other, some := d.session("sess_1"), d.session("sess_2"), d.session("sess_3")
	d.submit("job_1", s)
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: "c", Forwarded: true}))
	d.do(store.NewWrite(&store.Follow{Session: some, Job: "job_1", Types: arcp.Lookup(arcp.Log).Bit}))
	e := d.events("job_1", arcp.JobHeartbeat)[0]
	r := d.do(&store.Write{Ops: []store.Op{&store.DeliverUnlogged{Job: "job_1", Attempt: 1, Event: e}}, NoSync: true})
	want := []store.Delivery{
		{Session: s, CorrelationID: "submit-job_1", Event: e},
		{Session: other, CorrelationID: "c", Forwarded: true, Event: e},
	}
	if diff := cmp.Diff(want, r.Unlogged); diff != "" || len(r.Runs) != 0 {
		t.Errorf("%d runs; unlogged (-want +got):\n%s", len(r.Runs), diff)
	}
	if e.ID() == store.NewEvent(arcp.Log, t0, &store.JobContext{}, "", nil).ID() {
		t.Error("an unlogged event has no id")
	}
	d.want(s)
	if n := len(d.jobLog("job_1", 0)); n != 0 {
		t.Errorf("the job's log has %d events, want 0", n)
	}
	d.refuse(store.NewWrite(&store.DeliverUnlogged{Job: "job_1", Attempt: 2, Event: e}), store.ErrFenced)
}

// testRuntimeMetricsAreNegotiated checks that a metric of the runtime reaches only sessions with the
// capability, when it is appended and as history.
func testRuntimeMetricsAreNegotiated(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s, other := d.session("sess_1", arcp.FeatureMetrics), d.session("sess_2")
	later, laterOther := d.session("sess_3", arcp.FeatureMetrics), d.session("sess_4")
	d.submit("job_1", s)
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: "c"}))
	events := d.events("job_1", arcp.Log, arcp.Metric, arcp.Log)
	ofRuntime := store.NewEvent(arcp.Metric, d.now, &store.JobContext{JobID: "job_1"}, "", []byte(`{"name":"n","value":1,"unit":"ms","dims":{"source":"runtime"}}`))
	ofTool := store.NewEvent(arcp.Metric, d.now, &store.JobContext{JobID: "job_1"}, "", []byte(`{"name":"n","value":1,"unit":"ms","dims":{"source":"tool"}}`))
	if !ofRuntime.RuntimeMetric() || ofTool.RuntimeMetric() {
		t.Errorf("RuntimeMetric = %v, %v, want only the first", ofRuntime.RuntimeMetric(), ofTool.RuntimeMetric())
	}
	events = append(events, ofTool, ofRuntime)
	d.do(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: events}))
	for _, id := range []arcp.SessionID{later, laterOther} {
		d.do(store.NewWrite(&store.Follow{Session: id, Job: "job_1", CorrelationID: "c"}))
	}
	for _, id := range []arcp.SessionID{s, later} {
		d.want(id, arcp.Log, arcp.Metric, arcp.Log, arcp.Metric, arcp.Metric)
	}
	for _, id := range []arcp.SessionID{other, laterOther} {
		d.want(id, arcp.Log, arcp.Metric, arcp.Log, arcp.Metric)
	}
}

// testChunksInTheDraftDialect checks that a session of the draft dialect gets the chunks of thoughts, logs and
// metrics, and that a session of the other dialect gets all chunks if it has the capability, when they are
// appended and as history.
func testChunksInTheDraftDialect(t *testing.T, open Open) {
	d := openEmpty(t, open)
	inDraft := func(id arcp.SessionID) arcp.SessionID {
		row := sessionRow(id)
		row.Dialect = arcp.DialectDraft
		d.do(store.NewWrite(&store.OpenSession{Row: row}))
		return id
	}
	streaming, silent, draft := d.session("sess_1", arcp.FeatureStreaming), d.session("sess_2"), inDraft("sess_3")
	later, laterSilent, laterDraft := d.session("sess_4", arcp.FeatureStreaming), d.session("sess_5"), inDraft("sess_6")
	d.submit("job_1", streaming)
	follow := func(ids ...arcp.SessionID) {
		for _, id := range ids {
			d.do(store.NewWrite(&store.Follow{Session: id, Job: "job_1", CorrelationID: "c"}))
		}
	}
	follow(silent, draft)
	var events []*store.Event
	for _, payload := range []string{
		`{"sequence":0,"data":"of a text, \"kind\":\"log\"}}"}`,
		`{"sequence":0,"data":{"message":"of a log"},"kind":"log"}`,
		`{"sequence":1,"data":{"kind":"log"}}`,
		`{"sequence":0,"data":"","redacted":true,"kind":"thought"}`,
		`{"sequence":0,"data":{"name":"n","value":1,"unit":"u"},"kind":"metric"}`,
	} {
		events = append(events, store.NewEvent(arcp.StreamChunk, d.now, &store.JobContext{JobID: "job_1", StreamID: "str_1"}, "", []byte(payload)))
	}
	d.do(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: events}))
	follow(later, laterSilent, laterDraft)
	chunk := arcp.StreamChunk
	for id, want := range map[arcp.SessionID][]arcp.Type{
		streaming: {chunk, chunk, chunk, chunk, chunk}, later: {chunk, chunk, chunk, chunk, chunk},
		silent: nil, laterSilent: nil,
		draft: {chunk, chunk, chunk}, laterDraft: {chunk, chunk, chunk},
	} {
		d.want(id, want...)
	}
}

func testTrimDeletesTheStartOfALog(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_1", s)
	for range 5 {
		d.emit("job_1", arcp.JobProgress, arcp.Log)
	}
	d.do(&store.Write{Ops: []store.Op{&store.TrimSession{Session: s, Seq: 3}}, NoSync: true})
	none := func(store.Delivery) bool { return true }
	for after, want := range []error{store.ErrTrimmed, store.ErrTrimmed, store.ErrTrimmed, nil} {
		if err := d.SessionEvents(context.Background(), s, uint64(after), none); !errors.Is(err, want) {
			t.Errorf("SessionEvents after %d = %v, want %v", after, err, want)
		}
	}
	if n := len(d.sessionLog(s, 3)); n != 7 {
		t.Errorf("%d events after 3, want 7", n)
	}
	d.batch(store.NewWrite(&store.TrimSession{Session: s, Seq: 1}), store.NewWrite(&store.TrimSession{Session: s, Seq: 5}),
		store.NewWrite(&store.TrimSession{Session: s, Seq: 4}))
	if row := d.row(s); row.TrimmedTo != 5 || row.LastSeq != 10 {
		t.Errorf("TrimmedTo %d, LastSeq %d; want 5, 10", row.TrimmedTo, row.LastSeq)
	}
	d.do(store.NewWrite(&store.TrimSession{Session: s, Seq: 1000}))
	if row := d.row(s); row.TrimmedTo != 10 || row.LastSeq != 10 {
		t.Errorf("TrimmedTo %d, LastSeq %d; want 10, 10", row.TrimmedTo, row.LastSeq)
	}
	if n := len(d.sessionLog(s, 10)); n != 0 {
		t.Errorf("%d events after everything was trimmed", n)
	}
	if r := d.emit("job_1", arcp.JobProgress); r.Runs[0].First != 11 {
		t.Errorf("the next number is %d, want 11", r.Runs[0].First)
	}
	d.want(s, arcp.JobProgress)
	if n := len(d.jobLog("job_1", 0)); n != 11 {
		t.Errorf("the job's log has %d events, want 11", n)
	}
	d.refuse(store.NewWrite(&store.TrimSession{Session: "sess_none", Seq: 1}), store.ErrNotFound)
}

// testIDsAscend checks that later events have greater ids.
func testIDsAscend(t *testing.T, open Open) {
	d := openEmpty(t, open)
	d.submit("job_1", "")
	d.submit("job_2", "")
	var last arcp.MessageID
	check := func(events []*store.Event) {
		for _, e := range events {
			if e.ID() <= last {
				t.Fatalf("id %s after %s", e.ID(), last)
			}
			last = e.ID()
		}
	}
	for range 50 {
		a, b := d.events("job_1", arcp.Log, arcp.Log), d.events("job_2", arcp.Log)
		d.batch(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: a}),
			store.NewWrite(&store.AppendEvents{Job: "job_2", Attempt: 1, Events: b}))
		check(a)
		check(b)
	}
}

func sameEvent(a, b *store.Event) bool {
	return a.JSeq == b.JSeq && a.OriginSeq == b.OriginSeq && a.Type == b.Type && a.Time.Equal(b.Time) && string(a.Body) == string(b.Body)
}

// testLongLogIsReadFromAnyPosition checks that long histories are read from any position, also with
// gaps in the types that a session sees.
func testLongLogIsReadFromAnyPosition(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s, all := d.session("sess_1"), d.session("sess_all", arcp.FeatureCheckpoints)
	d.submit("job_1", s)
	types := make([]arcp.Type, 500)
	for i := range types {
		types[i] = arcp.JobProgress
		if i%3 == 1 {
			types[i] = arcp.JobCheckpoint
		}
	}
	const rounds = 10
	for range rounds {
		d.emit("job_1", types...)
	}
	d.do(store.NewWrite(&store.Follow{Session: all, Job: "job_1", CorrelationID: "c"}))
	late := d.session("sess_late")
	d.do(store.NewWrite(&store.Follow{Session: late, Job: "job_1", CorrelationID: "c"}))
	log, seen := d.jobLog("job_1", 0), d.sessionLog(s, 0)
	if len(log) != rounds*len(types) || len(seen) != rounds*(len(types)-167) {
		t.Fatalf("%d events, %d in the log", len(log), len(seen))
	}
	for _, after := range []uint64{0, 1, 499, 500, 501, 2222, 4999} {
		for i, e := range d.jobLog("job_1", after) {
			if w := log[int(after)+i]; !sameEvent(e, w) {
				t.Fatalf("event %d after %d = %+v, want %+v", i, after, e, w)
			}
		}
		got := d.sessionLog(all, after)
		if len(got) != len(log)-int(after) || got[0].Event.JSeq != after+1 {
			t.Fatalf("%d events after %d, the first is %d", len(got), after, got[0].Event.JSeq)
		}
	}
	for _, after := range []uint64{0, 1, 332, 333, 334, 1500, 3329} {
		for i, x := range d.sessionLog(late, after) {
			if w := seen[int(after)+i]; !sameEvent(x.Event, w.Event) || x.Event.Type != arcp.JobProgress {
				t.Fatalf("number %d is %+v, want %+v", x.Seq, x.Event, w.Event)
			}
		}
	}
	n := 0
	err := d.SessionEvents(t.Context(), all, 0, func(store.Delivery) bool { n++; return n < 700 })
	if err != nil || n != 700 {
		t.Errorf("stopped after %d with %v, want 700", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.SessionEvents(ctx, all, 0, func(store.Delivery) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("SessionEvents with an ended context = %v", err)
	}
}
