package mem_test

import (
	"fmt"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// memory is a store in memory for a test.
type memory struct {
	*testing.T
	store.Store
}

func (m memory) commit(writes ...*store.Write) {
	m.Helper()
	results := make([]store.Result, len(writes))
	if err := m.Commit(writes, results); err != nil {
		m.Fatal(err)
	}
	for i := range results {
		if results[i].Err != nil {
			m.Fatal(results[i].Err)
		}
	}
}

// groups calls fn with the numbers below n, a commit for each group.
func (m memory) groups(n int, fn func(i int) []*store.Write) {
	m.Helper()
	const group = 50
	var writes []*store.Write
	for i := range n {
		if writes = append(writes, fn(i)...); (i+1)%group == 0 {
			m.commit(writes...)
			writes = nil
		}
	}
	m.commit(writes...)
}

func jobID(i int) arcp.JobID { return arcp.JobID(fmt.Sprintf("job_%026d", i)) }

func submit(i int) []*store.Write {
	id := jobID(i)
	return []*store.Write{store.NewWrite(&store.SubmitJob{Row: &store.Job{
		ID: id, Principal: "ann", Session: "sess_1", SubmitID: arcp.MessageID("msg_" + id[4:]), Agent: "demo.echo@1.0.0",
		Arguments: arcp.Raw(`{"n":1,"text":"hello"}`), TraceID: fmt.Sprintf("%032d", i), SpanID: fmt.Sprintf("%016d", i),
		CreatedAt: time.Unix(int64(i), 0), State: arcp.StateAccepted, Attempt: 1,
	}}), appendEvent(i, arcp.JobAccepted, "", `{"tool":"demo.echo","agent":"demo.echo@1.0.0"}`)}
}

func start(i int) []*store.Write {
	return []*store.Write{appendEvent(i, arcp.JobStarted, arcp.StateRunning, `{"attempt":1}`)}
}

func complete(i int) []*store.Write {
	return []*store.Write{appendEvent(i, arcp.JobCompleted, arcp.StateCompleted, `{"result":{"n":1,"text":"hello"}}`)}
}

func appendEvent(i int, t arcp.Type, state arcp.JobState, payload string) *store.Write {
	e := store.NewEvent(t, time.Unix(int64(i), 0), &store.JobContext{JobID: jobID(i), TraceID: fmt.Sprintf("%032d", i)}, "", []byte(payload))
	return store.NewWrite(&store.AppendEvents{Job: jobID(i), Attempt: 1, Events: []*store.Event{e}, State: state})
}

// heap returns the size of the live heap.
func heap() int64 {
	var stats goruntime.MemStats
	goruntime.GC()
	goruntime.GC() // frees what pools hold
	goruntime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Stat has three times the live heap.
func TestStatIsTheHeap(t *testing.T) {
	const n = 20_000
	trim := func(m memory) {
		row, err := m.Session(t.Context(), "sess_1")
		if err != nil {
			m.Fatal(err)
		}
		m.commit(store.NewWrite(&store.TrimSession{Session: "sess_1", Seq: row.LastSeq}))
	}
	for name, fill := range map[string]func(memory){
		"live jobs": func(m memory) { m.groups(n, submit); m.groups(n, start); trim(m) },
		"ended jobs": func(m memory) {
			m.groups(n, submit)
			m.groups(n, start)
			m.groups(n, complete)
		},
		"ended jobs, acknowledged": func(m memory) {
			m.groups(n, func(i int) []*store.Write { return append(append(submit(i), start(i)...), complete(i)...) })
			trim(m)
		},
		"records": func(m memory) {
			m.groups(n, func(i int) []*store.Write {
				return []*store.Write{store.NewWrite().Put(store.Record{Key: fmt.Sprintf("record/%032d", i), Value: make([]byte, 200)})}
			})
		},
		"sessions": func(m memory) {
			m.groups(n, func(i int) []*store.Write {
				return []*store.Write{store.NewWrite(&store.OpenSession{Row: &store.Session{ID: arcp.SessionID(fmt.Sprintf("sess_%026d", i)),
					Principal: "ann", Identity: make([]byte, 300), Negotiated: make([]arcp.Feature, 10)}})}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			m := memory{t, mem.Open(mem.Options{})}
			m.commit(store.NewWrite(&store.OpenSession{Row: &store.Session{ID: "sess_1", Principal: "ann"}}))
			fill(m)
			used := heap() - before
			if got := m.Stat().Bytes / 3; got < used-used/5 || got > used+used/5 {
				t.Errorf("Stat has %d bytes for each, the heap %d", got/n, used/n)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store that everything was deleted from has the size of an empty one.
func TestStatOfDeletedData(t *testing.T) {
	m := memory{t, mem.Open(mem.Options{})}
	defer m.Close()
	m.commit(store.NewWrite(&store.OpenSession{Row: &store.Session{ID: "sess_1", Principal: "ann"}}))
	const n = 1000
	m.groups(n, submit)
	m.groups(n, start)
	m.groups(n, complete)
	m.commit(store.NewWrite().Put(store.Record{Key: "k", Value: []byte("v")}))
	m.commit(store.NewWrite().Put(store.Record{Key: "k", Rev: 1}))
	m.groups(n, func(i int) []*store.Write { return []*store.Write{store.NewWrite(&store.DeleteJob{Job: jobID(i)})} })
	_, last, err := m.FeedBounds(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	m.commit(store.NewWrite(&store.TrimFeed{Principal: "ann", Position: last}), store.NewWrite(&store.EndSession{Session: "sess_1"}))
	if st := m.Stat(); st.Bytes != 0 {
		t.Errorf("%d bytes are left", st.Bytes)
	}
}
