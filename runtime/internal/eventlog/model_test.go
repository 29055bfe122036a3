package eventlog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// world is a log and a model of it.
type world struct {
	*fixture
	sessions []arcp.SessionID
	cursors  map[arcp.SessionID]*Cursor
	want     map[arcp.SessionID][]Item // items its cursor has not yet delivered, with the posted answers in order
	urgent   map[arcp.SessionID][]any  // answers that overtake
	last     map[arcp.SessionID]uint64 // last number
	n        int
}

func newWorld(t testing.TB, tail int) *world {
	w := &world{fixture: newFixture(t, Options{TailBytes: tail}), sessions: []arcp.SessionID{"sess_a", "sess_b"},
		cursors: make(map[arcp.SessionID]*Cursor), want: make(map[arcp.SessionID][]Item),
		urgent: make(map[arcp.SessionID][]any), last: make(map[arcp.SessionID]uint64)}
	for i, id := range w.sessions {
		w.cursors[id] = w.session(id)
		w.job(arcp.JobID(fmt.Sprintf("job_%d", i)), id)
	}
	return w
}

// commitWrite commits a write and records the events it adds to sessions.
func (w *world) commitWrite(write *store.Write) {
	res := w.do(write)
	for _, run := range res.Runs {
		for i, e := range run.Events {
			w.want[run.Session] = append(w.want[run.Session], Item{Session: run.Session, Seq: run.First + uint64(i),
				CorrelationID: run.CorrelationID, Forwarded: run.Forwarded, Event: e})
		}
		w.last[run.Session] = run.First + uint64(len(run.Events)) - 1
	}
	for _, d := range res.Unlogged {
		w.want[d.Session] = append(w.want[d.Session], Item{CorrelationID: d.CorrelationID, Forwarded: d.Forwarded, Event: d.Event})
	}
}

func (w *world) post(id arcp.SessionID) {
	w.flush()
	w.n++
	if answer := fmt.Sprintf("answer %d", w.n); w.n%3 == 0 {
		w.cursors[id].AnswerBeforeEvents(answer)
		w.urgent[id] = append(w.urgent[id], answer)
	} else {
		w.cursors[id].AnswerAfterEvents(answer)
		w.want[id] = append(w.want[id], Item{Answer: answer})
	}
}

// take compares up to n items of a cursor with the model.
func (w *world) take(id arcp.SessionID, n int) error {
	w.flush()
	for range n {
		got, ok, err := w.cursors[id].Next()
		if err != nil {
			return err
		}
		var want Item
		switch {
		case len(w.urgent[id]) > 0:
			want, w.urgent[id] = Item{Answer: w.urgent[id][0]}, w.urgent[id][1:]
		case len(w.want[id]) > 0:
			want, w.want[id] = w.want[id][0], w.want[id][1:]
		default:
			if ok {
				return fmt.Errorf("%s: item %s, want nothing more", id, text(got))
			}
			return nil
		}
		if got != want {
			return fmt.Errorf("%s: item %s (%+v), want %s (%+v)", id, text(got), got, text(want), want)
		}
	}
	return nil
}

// reattach attaches a new cursor at the position of the last one. Answers posted to the
// last one are lost, as are heartbeats.
func (w *world) reattach(id arcp.SessionID) {
	w.cursors[id] = w.attach(id, w.cursors[id].Position())
	w.urgent[id] = nil
	var events []Item
	for _, it := range w.want[id] {
		if it.Seq != 0 {
			events = append(events, it)
		}
	}
	w.want[id] = events
}

// A cursor returns exactly the events in its session's log after its position, in order
// and once, with the answers in order.
func TestAnyInterleaving(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rapid.SampledFrom([]int{1, 800, 4000, 1 << 20}).Draw(rt, "tail"))
		defer w.Close()
		session := rapid.SampledFrom(w.sessions)
		job := rapid.SampledFrom([]arcp.JobID{"job_0", "job_1"})
		rt.Repeat(map[string]func(*rapid.T){
			"emit": func(rt *rapid.T) {
				w.commitWrite(logs(job.Draw(rt, "job"), make([]string, rapid.IntRange(1, 5).Draw(rt, "events"))...))
			},
			"heartbeat": func(rt *rapid.T) { w.commitWrite(heartbeat(job.Draw(rt, "job"))) },
			"post":      func(rt *rapid.T) { w.post(session.Draw(rt, "session")) },
			"follow": func(rt *rapid.T) {
				w.commitWrite(store.NewWrite(&store.Follow{Session: session.Draw(rt, "session"), Job: job.Draw(rt, "job"),
					CorrelationID: "msg_f", From: rapid.Uint64Range(0, 20).Draw(rt, "from"), Forwarded: true}))
			},
			"take": func(rt *rapid.T) {
				if err := w.take(session.Draw(rt, "session"), rapid.IntRange(1, 20).Draw(rt, "items")); err != nil {
					rt.Fatal(err)
				}
			},
			"reattach": func(rt *rapid.T) { w.reattach(session.Draw(rt, "session")) },
		})
		for _, id := range w.sessions {
			if err := w.take(id, everythingLeft); err != nil {
				rt.Fatal(err)
			}
			if p := w.cursors[id].Position(); p != w.last[id] {
				rt.Fatalf("%s: position %d at the end, want %d", id, p, w.last[id])
			}
		}
	})
}

// Many jobs write, every session follows all of them, and connections attach, close and
// lag: each connection gets the events after its position, gap-free.
func TestManyWritersAndReaders(t *testing.T) {
	const jobs, sessions, rounds = 6, 4, 150
	f := newFixture(t, Options{TailBytes: 20_000})
	for i := range sessions {
		f.session(sess(i)).Close()
	}
	for j := range jobs {
		f.job(arcp.JobID(fmt.Sprintf("job_%d", j)), sess(j%sessions))
		for i := range sessions {
			if i != j%sessions {
				f.follow(arcp.JobID(fmt.Sprintf("job_%d", j)), sess(i), 0)
			}
		}
	}
	var writers, readers sync.WaitGroup
	written := make(chan struct{})
	for j := range jobs {
		writers.Go(func() {
			for n := range rounds {
				if _, err := f.Commit(context.Background(), logs(arcp.JobID(fmt.Sprintf("job_%d", j)), make([]string, 1+n%4)...)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range sessions {
		readers.Go(func() { readAll(f, sess(i), written) })
	}
	writers.Wait()
	close(written)
	readers.Wait()
}

func sess(i int) arcp.SessionID { return arcp.SessionID(fmt.Sprintf("sess_%d", i)) }

// readAll reads a session over many connections until all events are written and read.
func readAll(f *fixture, id arcp.SessionID, written chan struct{}) {
	var pos uint64
	rng := rand.New(rand.NewPCG(1, uint64(len(id))))
	for last := false; !last; {
		select {
		case <-written:
			last = true
		default:
		}
		wake := make(chan struct{}, 1)
		c, err := f.attachLoop(id, pos, func() { ring(wake) })
		if err != nil {
			f.Error(err)
			return
		}
		for n := rng.IntN(300); n > 0 || last; n-- {
			it, ok, err := c.Next()
			if err != nil {
				f.Error(err)
				return
			}
			if !ok && last {
				break
			}
			if !ok {
				select {
				case <-wake:
				case <-written:
					n = 0
				}
				continue
			}
			if pos++; it.Seq != pos || it.Event == nil {
				f.Errorf("%s: number %d, want %d", id, it.Seq, pos)
				return
			}
		}
		c.Close()
	}
	if want := f.do(store.NewWrite(&store.ReadPosition{Session: id})).LastSeq; pos != want {
		f.Errorf("%s: read up to %d, want %d", id, pos, want)
	}
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
