package engine

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// recheckingStore is a store that detects repeated submits of a session. It answers a repeated
// submit with Recheck as SubmitJob.Recheck specifies.
type recheckingStore struct {
	store.Store

	mu      sync.Mutex
	jobs    map[arcp.MessageID]arcp.JobID
	follows []store.Follow
}

func (m *recheckingStore) Commit(writes []*store.Write, results []store.Result) error {
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
	runEngine(t, nil, func(f *fixture) {
		calls := 0
		f.stop(0)
		m := &recheckingStore{Store: f.st.Store, jobs: make(map[arcp.MessageID]arcp.JobID)}
		f.st = &faultyStore{Store: m}
		f.cfg.Store = f.st
		f.boot()
		f.tool("t", withoutSideEffect, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
			calls++
			time.Sleep(time.Second)
			return args, nil
		})
		q := f.request("sess_1", "t", "{}")
		q.Recheck = true
		f.send(q)
		f.want("new, as far as the store knows", "job.accepted msg_1", "job.started msg_1")
		time.Sleep(time.Second)
		id := f.want("the job ends", "job.completed msg_1")[0].JobID
		f.send(q)
		f.submit("t", "{}")
		time.Sleep(handoverAfter)
		frames := f.want("the answers again, in their place", "job.accepted msg_1", "job.completed msg_1",
			"job.accepted msg_2", "job.started msg_2")
		if frames[0].JobID != id || frames[1].JobID != id {
			t.Errorf("answered with %v, want the job %s", frames[:2], id)
		}
		time.Sleep(time.Second)
		f.want("the second job ends", "job.completed msg_2")
		if calls != 2 {
			t.Errorf("the tool was called %d times, want once a job", calls)
		}
		if len(m.follows) == 1 {
			m.follows[0].Max = 0 // how much at once is the log's business
		}
		want := (store.Follow{Session: "sess_1", Job: id, CorrelationID: "msg_1", Types: outcomeTypes, Once: true})
		if len(m.follows) != 1 || m.follows[0] != want {
			t.Errorf("followed with %+v, want %+v", m.follows, want)
		}
		f.expectNoState("")
	})
}

// repeatKey submits the tool with the idempotency key k, as a client that ignores correlation ids.
func (f *fixture) repeatKey(session arcp.SessionID, name string) {
	f.Helper()
	q := f.request(session, name, "{}")
	q.env.IdempotencyKey = "k"
	q.AcceptedIsAnswer, q.OneFollow = true, true
	f.send(q)
}

// A client that ignores correlation ids repeats the key of a running job. Each submit is answered,
// and each session is sent the end once.
func TestRepeatedKeyOfARunningJobWithOneFollow(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.openSession("sess_1", arcp.DialectDraft)
		f.openSession("sess_2", arcp.DialectDraft)
		f.tool("t", withoutSideEffect, sleeper(time.Second))
		f.repeatKey("sess_1", "t")
		id := f.want("new", "job.accepted msg_1", "job.started msg_1")[0].JobID
		f.repeatKey("sess_1", "t")
		f.want("the session that has submitted the job", "job.accepted msg_2")
		f.repeatKey("sess_2", "t")
		f.repeatKey("sess_2", "t")
		f.wantOf("sess_2", "another session", "job.accepted msg_3", "job.accepted msg_4")
		time.Sleep(time.Second)
		for session, end := range map[arcp.SessionID]string{"sess_1": "job.completed msg_1", "sess_2": "job.completed"} {
			if frames := f.wantOf(session, "the end comes once", end); frames[0].JobID != id {
				f.Errorf("%s is sent the end of %s, want %s", session, frames[0].JobID, id)
			}
		}
		f.expectNoState("")
	})
}

// A client that ignores correlation ids repeats the key of a job that has ended. It makes a handle of
// each job.accepted, so each is followed by the end.
func TestRepeatedKeyOfAnEndedJobWithOneFollow(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.openSession("sess_1", arcp.DialectDraft)
		f.openSession("sess_2", arcp.DialectDraft)
		f.tool("t", withoutSideEffect, echo)
		f.repeatKey("sess_1", "t")
		synctest.Wait()
		f.repeatKey("sess_1", "t")
		f.want("repeated before the end is read", "job.accepted msg_1", "job.started msg_1", "job.completed msg_1",
			"job.accepted msg_2", "job.completed")
		f.repeatKey("sess_1", "t")
		f.want("repeated after that", "job.accepted msg_3", "job.completed")
		f.repeatKey("sess_2", "t")
		f.wantOf("sess_2", "another session", "job.accepted msg_4", "job.completed")
	})
}

// A job ends while the submit that repeats its key is being written, before or behind it. The end
// comes once after the answer.
func TestRepeatedKeyWhileTheJobEnds(t *testing.T) {
	for name, endFirst := range map[string]bool{"the end is written first": true, "the submit is written first": false} {
		t.Run(name, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.openSession("sess_1", arcp.DialectDraft)
				end := make(chan struct{})
				f.tool("t", withoutSideEffect, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
					<-end
					return arcp.Raw("1"), nil
				})
				f.repeatKey("sess_1", "t")
				f.want("new", "job.accepted msg_1", "job.started msg_1")
				release := f.st.hold()
				writes := []func(){func() { close(end) }, func() { f.repeatKey("sess_1", "t") }}
				if !endFirst {
					slices.Reverse(writes)
				}
				for _, write := range writes {
					write()
					synctest.Wait()
				}
				release()
				f.want("the end for both handles", "job.completed msg_1", "job.accepted msg_2", "job.completed")
			})
		})
	}
}

// A client that ignores correlation ids also subscribes to the job whose key it repeats. It is sent
// the end once, whichever it did first, and also after it has unsubscribed.
func TestRepeatedKeyOfAFollowedJob(t *testing.T) {
	subscription := store.Follow{Session: "sess_2", From: math.MaxUint64, Forwarded: true, New: true}
	tests := map[string][]string{
		"subscribe, repeat":              {"subscribe", "repeat"},
		"repeat, subscribe":              {"repeat", "subscribe"},
		"subscribe, repeat, unsubscribe": {"subscribe", "repeat", "unsubscribe"},
		"repeat, subscribe, unsubscribe": {"repeat", "subscribe", "unsubscribe"},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.openSession("sess_1", arcp.DialectDraft)
				f.openSession("sess_2", arcp.DialectDraft)
				f.tool("t", withoutSideEffect, sleeper(time.Second))
				f.repeatKey("sess_1", "t")
				follow := subscription
				follow.Job = f.want("new", "job.accepted msg_1", "job.started msg_1")[0].JobID
				for _, step := range steps {
					switch step {
					case "repeat":
						f.repeatKey("sess_2", "t")
					case "subscribe":
						f.cfg.Log.Follow(follow, nil, nil)
					case "unsubscribe":
						f.cfg.Log.Append(store.NewWrite(&store.Unfollow{Session: follow.Session, Job: follow.Job, Forwarded: true}), nil)
					}
					synctest.Wait()
				}
				f.wantOf("sess_2", "repeated", "job.accepted msg_2")
				time.Sleep(time.Second)
				f.wantOf("sess_2", "the end comes once", "job.completed")
			})
		})
	}
}
