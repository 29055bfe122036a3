package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// remembering is a store that detects repeated submits of a session. It answers a repeated
// submit with Recheck as SubmitJob.Recheck specifies.
type remembering struct {
	store.Store

	mu      sync.Mutex
	jobs    map[arcp.MessageID]arcp.JobID
	follows []store.Follow
}

func (m *remembering) Commit(writes []*store.Write, results []store.Result) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, w := range writes { // one by one, which is slower and otherwise the same
		if f := store.Find[*store.Follow](w); f != nil {
			m.follows = append(m.follows, *f)
		}
		if s := store.Find[*store.SubmitJob](w); s != nil {
			if id := m.jobs[s.Row.SubmitID]; id != "" && s.Recheck {
				results[i] = store.Result{Existing: id, Repeated: true}
				continue
			}
			m.jobs[s.Row.SubmitID] = s.Row.ID
		}
		if err := m.Store.Commit(writes[i:i+1], results[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// A submit repeated on a later connection creates no second job. It gets the answer of the
// first one, once, before the answers to later requests.
func TestRepeatedSubmit(t *testing.T) {
	runEngine(t, nil, func(r *fixture) {
		calls := 0
		r.stop(0)
		m := &remembering{Store: r.st.Store, jobs: make(map[arcp.MessageID]arcp.JobID)}
		r.st = &faulty{Store: m}
		r.cfg.Store = r.st
		r.boot()
		r.tool("t", early, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
			calls++
			time.Sleep(time.Second)
			return args, nil
		})
		q := r.request("sess_1", "t", "{}")
		q.Recheck = true
		r.send(q)
		r.want("new, as far as the store knows", "job.accepted msg_1", "job.started msg_1")
		time.Sleep(time.Second)
		id := r.want("", "job.completed msg_1")[0].JobID
		r.send(q)
		r.submit("t", "{}")
		frames := r.want("the answers again, in their place", "job.accepted msg_1", "job.completed msg_1", "job.accepted msg_2", "job.started msg_2")
		if frames[0].JobID != id || frames[1].JobID != id {
			t.Errorf("answered with %v, want the job %s", frames[:2], id)
		}
		time.Sleep(time.Second)
		r.want("", "job.completed msg_2")
		if calls != 2 {
			t.Errorf("the tool was called %d times, want once a job", calls)
		}
		if len(m.follows) == 1 {
			m.follows[0].Max = 0 // how much at once is the log's business
		}
		if want := (store.Follow{Session: "sess_1", Job: id, CorrelationID: "msg_1", Types: outcomeTypes, Once: true}); len(m.follows) != 1 || m.follows[0] != want {
			t.Errorf("followed with %+v, want %+v", m.follows, want)
		}
		r.expectNoState("")
	})
}
