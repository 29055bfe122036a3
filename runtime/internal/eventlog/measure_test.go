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
func (r *fixture) restart(opts Options) {
	r.Helper()
	r.Log.Close()
	r.Log = New(r.st, opts)
	r.Cleanup(r.Log.Close)
}

// unfreed returns the size of the events in a session's log after a number.
func (r *fixture) unfreed(id arcp.SessionID, after uint64) (bytes uint64) {
	r.Helper()
	row, err := r.st.Session(context.Background(), id)
	if err == nil {
		err = r.st.SessionEvents(context.Background(), id, max(after, row.TrimmedTo), func(d store.Delivery) bool {
			bytes += uint64(len(d.Event.Body))
			return true
		})
	}
	if err != nil {
		r.Fatal(err)
	}
	return bytes
}

// trimming returns options that trim an overflow, as the runtime does.
func (r *fixture) trimming(bytes int64) Options {
	return Options{BacklogBytes: bytes, OnOverflow: func(id arcp.SessionID, upTo uint64) {
		r.Append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: id, Seq: upTo}}, NoSync: true}, nil)
	}}
}

func fromTheStart(arcp.SessionID) uint64 { return 0 }

// measureAll measures to the end.
func (r *fixture) measureAll(from func(arcp.SessionID) uint64) {
	r.Helper()
	for more := true; more; {
		var err error
		if more, err = r.Measure(context.Background(), from); err != nil {
			r.Fatal(err)
		}
	}
	r.flush()
}

// The bound of a backlog holds over restarts, also for a session that gets fewer bytes
// than the bound between two restarts.
func TestBacklogOverRestarts(t *testing.T) {
	const limit = 100_000
	r := newFixture(t, Options{})
	opts := r.trimming(limit)
	r.session("sess_1")
	r.job("job_1", "sess_1")
	for range 10 {
		r.restart(opts)
		for range 20 {
			r.do(logs("job_1", strings.Repeat("x", 1000)))
		}
		r.measureAll(fromTheStart)
	}
	if n := r.unfreed("sess_1", 0); n > limit || n < limit*3/4 {
		t.Errorf("%d bytes are kept, want about %d", n, limit)
	}
}

// A history past the bound is trimmed while it is measured, before its end is reached.
func TestTrimDuringMeasure(t *testing.T) {
	const limit = 100_000
	r := newFixture(t, Options{})
	r.session("sess_1")
	r.job("job_1", "sess_1")
	for range 2 * measureEvents / 100 {
		r.do(logs("job_1", strings.Split(strings.Repeat("x ", 99), " ")...))
	}
	r.restart(r.trimming(limit))
	r.do(logs("job_1", "last"))
	before := r.unfreed("sess_1", 0)
	if more, err := r.Measure(context.Background(), fromTheStart); !more || err != nil {
		t.Fatal(more, err)
	}
	r.flush()
	if n := r.unfreed("sess_1", 0); n >= before || n <= limit {
		t.Errorf("%d of %d bytes are kept after a piece, want some to have gone", n, before)
	}
	r.measureAll(fromTheStart)
	if n := r.unfreed("sess_1", 0); n > limit {
		t.Errorf("%d bytes are kept, want %d at most", n, limit)
	}
}

// Every event is counted once, whatever is appended, released and trimmed while the
// history is measured.
func TestMeasureInTraffic(t *testing.T) {
	const parts, limit = 3, 1_500_000
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newFixture(t, Options{})
		r.session("sess_1")
		r.job("job_1", "sess_1")
		history := 1 + rnd.IntN(parts*measureEvents)
		for n := 0; n < history; n += 512 {
			r.do(logs("job_1", make([]string, min(512, history-n))...))
		}
		r.restart(r.trimming(limit))
		started := uint64(rnd.IntN(history))
		released, last := started, uint64(history)
		for more, step := true, 0; more; step++ {
			switch rnd.IntN(4) {
			case 0:
				released += uint64(rnd.IntN(int(last-released) + 1))
				r.Release("sess_1", released)
			case 1:
				r.do(&store.Write{Ops: []store.Op{&store.TrimSession{Session: "sess_1", Seq: released}}, NoSync: true})
			case 2:
				for range 20 {
					r.do(logs("job_1", make([]string, 100)...))
					last += 100
				}
			default:
				var err error
				if more, err = r.Measure(context.Background(), func(arcp.SessionID) uint64 { return started }); err != nil {
					t.Fatal(err)
				}
				more = more || step < 10
			}
			r.flush()
		}
		r.sessionsMu.Lock()
		p := r.sessions["sess_1"]
		counted := uint64(0)
		if p != nil {
			counted = p.backlog.added - p.backlog.freed
		}
		measured := p == nil || p.first == 0 || len(r.unmeasured) == 0 && r.measuring.id == ""
		r.sessionsMu.Unlock()
		if !measured {
			t.Fatalf("seed %d: the history is not measured", seed)
		}
		want := r.unfreed("sess_1", released)
		if p == nil || p.first == 0 {
			want = 0 // it was given nothing: it cannot outgrow its bound
		}
		if counted < want || counted > want+2*limit/backlogMarks {
			t.Errorf("seed %d: %d bytes are counted, want %d", seed, counted, want)
		}
		r.Close()
	}
}

// A session whose history cannot be read does not delay the others, and a session that
// has ended is skipped.
func TestMeasureSkipsFailedSessions(t *testing.T) {
	const limit = 10_000
	r := newFixture(t, Options{})
	for i := range 3 {
		id, job := arcp.SessionID(fmt.Sprintf("sess_%d", i)), arcp.JobID(fmt.Sprintf("job_%d", i))
		r.session(id)
		r.job(job, id)
		r.do(logs(job, strings.Repeat("x", limit), "y"))
	}
	older := 0
	opts := r.trimming(limit)
	opts.OnUnmeasured = func() { older++ }
	r.restart(opts)
	for i := range 3 {
		r.do(logs(arcp.JobID(fmt.Sprintf("job_%d", i)), "more"))
	}
	r.Forget("sess_1")
	r.do(store.NewWrite(&store.EndSession{Session: "sess_1"}))
	r.st.set(func() { r.st.readErr = context.DeadlineExceeded })
	if more, err := r.Measure(context.Background(), fromTheStart); !more || err == nil {
		t.Fatalf("Measure = %v, %v, want the error of the store", more, err)
	}
	r.st.set(func() { r.st.readErr = nil })
	r.measureAll(fromTheStart)
	for _, id := range []arcp.SessionID{"sess_0", "sess_2"} {
		if n := r.unfreed(id, 0); n > limit {
			t.Errorf("%d bytes of %s are kept, want %d at most", n, id, limit)
		}
	}
	if older != 3 {
		t.Errorf("told %d times of sessions to measure, want 3", older)
	}
}
