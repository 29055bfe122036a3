package eventlog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// restart closes the log and starts one on the same store, as a restart does.
func (f *fixture) restart(opts Options) {
	f.Helper()
	f.Log.Close()
	f.Log = New(f.st, opts)
	f.Cleanup(f.Log.Close)
}

// unfreed returns the size of the events in a session's log after a number.
func (f *fixture) unfreed(id arcp.SessionID, after uint64) (bytes uint64) {
	f.Helper()
	row, err := f.st.Session(context.Background(), id)
	if err == nil {
		err = f.st.SessionEvents(context.Background(), id, max(after, row.TrimmedTo), func(d store.Delivery) bool {
			bytes += uint64(len(d.Event.Body))
			return true
		})
	}
	if err != nil {
		f.Fatal(err)
	}
	return bytes
}

// trimming returns options that trim an overflow, as the runtime does.
func (f *fixture) trimming(bytes int64) Options {
	return Options{BacklogBytes: bytes, OnOverflow: func(id arcp.SessionID, upTo uint64) {
		f.Append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: id, Seq: upTo}}, NoSync: true}, nil)
	}}
}

func fromTheStart(arcp.SessionID) uint64 { return 0 }

// measureAll measures to the end.
func (f *fixture) measureAll(from func(arcp.SessionID) uint64) {
	f.Helper()
	for more := true; more; {
		var err error
		if more, err = f.Measure(context.Background(), from); err != nil {
			f.Fatal(err)
		}
	}
	f.flush()
}

// The bound of a backlog holds over restarts, also for a session that gets fewer bytes
// than the bound between two restarts.
func TestBacklogOverRestarts(t *testing.T) {
	const limit = 100_000
	f := newFixture(t, Options{})
	opts := f.trimming(limit)
	f.session("sess_1")
	f.job("job_1", "sess_1")
	for range 10 {
		f.restart(opts)
		for range 20 {
			f.do(logs("job_1", strings.Repeat("x", 1000)))
		}
		f.measureAll(fromTheStart)
	}
	if n := f.unfreed("sess_1", 0); n > limit || n < limit*3/4 {
		t.Errorf("%d bytes are kept, want about %d", n, limit)
	}
}

// A history past the bound is trimmed while it is measured, before its end is reached.
func TestTrimDuringMeasure(t *testing.T) {
	const limit = 100_000
	f := newFixture(t, Options{})
	f.session("sess_1")
	f.job("job_1", "sess_1")
	for range 2 * measureEvents / 100 {
		f.do(logs("job_1", strings.Split(strings.Repeat("x ", 99), " ")...))
	}
	f.restart(f.trimming(limit))
	f.do(logs("job_1", "last"))
	before := f.unfreed("sess_1", 0)
	if more, err := f.Measure(context.Background(), fromTheStart); !more || err != nil {
		t.Fatal(more, err)
	}
	f.flush()
	if n := f.unfreed("sess_1", 0); n >= before || n <= limit {
		t.Errorf("%d of %d bytes are kept after a piece, want some to have gone", n, before)
	}
	f.measureAll(fromTheStart)
	if n := f.unfreed("sess_1", 0); n > limit {
		t.Errorf("%d bytes are kept, want %d at most", n, limit)
	}
}

// Every event is counted once, whatever is appended, released and trimmed while the
// history is measured.
func TestMeasureInTraffic(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	const parts, limit = 3, 1_500_000
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		f := newFixture(t, Options{})
		f.session("sess_1")
		f.job("job_1", "sess_1")
		history := 1 + rnd.IntN(parts*measureEvents)
		for n := 0; n < history; n += 512 {
			f.do(logs("job_1", make([]string, min(512, history-n))...))
		}
		f.restart(f.trimming(limit))
		started := uint64(rnd.IntN(history))
		released, last := started, uint64(history)
		for more, step := true, 0; more; step++ {
			switch rnd.IntN(4) {
			case 0:
				released += uint64(rnd.IntN(int(last-released) + 1))
				f.Release("sess_1", released)
			case 1:
				f.do(&store.Write{Ops: []store.Op{&store.TrimSession{Session: "sess_1", Seq: released}}, NoSync: true})
			case 2:
				for range 20 {
					f.do(logs("job_1", make([]string, 100)...))
					last += 100
				}
			default:
				var err error
				if more, err = f.Measure(context.Background(), func(arcp.SessionID) uint64 { return started }); err != nil {
					t.Fatal(err)
				}
				more = more || step < 10
			}
			f.flush()
		}
		f.sessionsMu.Lock()
		p := f.sessions["sess_1"]
		counted := uint64(0)
		if p != nil {
			counted = p.backlog.added - p.backlog.freed
		}
		measured := p == nil || p.first == 0 || len(f.unmeasured) == 0 && f.measuring.id == ""
		f.sessionsMu.Unlock()
		if !measured {
			t.Fatalf("seed %d: the history is not measured", seed)
		}
		want := f.unfreed("sess_1", released)
		if p == nil || p.first == 0 {
			want = 0 // it was given nothing: it cannot outgrow its bound
		}
		if counted < want || counted > want+2*limit/backlogMarks {
			t.Errorf("seed %d: %d bytes are counted, want %d", seed, counted, want)
		}
		f.Close()
	}
}

// A session whose history cannot be read does not delay the others, and a session that
// has ended is skipped.
func TestMeasureSkipsFailedSessions(t *testing.T) {
	const limit = 10_000
	f := newFixture(t, Options{})
	for i := range 3 {
		id, job := arcp.SessionID(fmt.Sprintf("sess_%d", i)), arcp.JobID(fmt.Sprintf("job_%d", i))
		f.session(id)
		f.job(job, id)
		f.do(logs(job, strings.Repeat("x", limit), "y"))
	}
	older := 0
	opts := f.trimming(limit)
	opts.OnUnmeasured = func() { older++ }
	f.restart(opts)
	for i := range 3 {
		f.do(logs(arcp.JobID(fmt.Sprintf("job_%d", i)), "more"))
	}
	f.Forget("sess_1")
	f.do(store.NewWrite(&store.EndSession{Session: "sess_1"}))
	f.st.set(func() { f.st.readErr = context.DeadlineExceeded })
	if more, err := f.Measure(context.Background(), fromTheStart); !more || err == nil {
		t.Fatalf("Measure = %v, %v, want the error of the store", more, err)
	}
	f.st.set(func() { f.st.readErr = nil })
	f.measureAll(fromTheStart)
	for _, id := range []arcp.SessionID{"sess_0", "sess_2"} {
		if n := f.unfreed(id, 0); n > limit {
			t.Errorf("%d bytes of %s are kept, want %d at most", n, id, limit)
		}
	}
	if older != 3 {
		t.Errorf("told %d times of sessions to measure, want 3", older)
	}
}
