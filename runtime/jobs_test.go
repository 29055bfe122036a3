package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

func ofJob(id arcp.JobID) string { return fmt.Sprintf(`{"job_id":%q}`, id) }

// jobs.wait returns the row as soon as the job has ended, or the present row at the timeout.
func TestJobsWait(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, other, bob := b.dial("alice"), b.dial("alice"), b.dial("bob")
		id := alice.submit("demo.sleep", `{"ms":60000}`)
		began := time.Now()
		took := func(why string, want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("%s: it has taken %v, want %v", why, got, want)
			}
		}
		if row := other.must("jobs.wait", fmt.Sprintf(`{"job_id":%q,"timeout_ms":1000}`, id)); row["status"] != "running" || row["outcome"] != nil {
			t.Errorf("a wait in vain: %v", row)
		}
		took("a wait in vain", time.Second)
		if row := other.must("jobs.wait", ofJob(id)); row["status"] != "running" {
			t.Errorf("without a timeout: %v", row)
		}
		took("without a timeout", 31*time.Second)
		for range 2 { // while it runs, and when it has ended
			row := other.must("jobs.wait", fmt.Sprintf(`{"job_id":%q,"timeout_ms":3600000}`, id))
			if row["status"] != "completed" || fmt.Sprint(row["outcome"]) != "map[value:map[slept_ms:60000]]" {
				t.Errorf("it has ended: %v", row)
			}
			took("its end", time.Minute)
		}
		bob.refuses("a job of somebody else", "jobs.wait", ofJob(id), arcp.CodeJobNotFound)
		bob.refuses("no job", "jobs.wait", `{"job_id":"job_none"}`, arcp.CodeJobNotFound)
		alice.refuses("too long", "jobs.wait", fmt.Sprintf(`{"job_id":%q,"timeout_ms":3600001}`, id), arcp.CodeInvalidArgument)
	})
}

// A job that is deleted is gone with its events; only its principal deletes it, and
// not before it has ended.
func TestJobsDelete(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, bob, ann := b.dial("alice"), b.dial("bob"), b.dial("ann")
		alice.send("tool.invoke", `{"tool":"demo.echo","arguments":{"n":1}}`)
		accepted := alice.until("job.accepted")
		kept := accepted.JobID
		alice.until("job.completed")
		id := alice.submit("demo.sleep", `{"ms":60000}`)
		alice.refuses("it runs", "jobs.delete", ofJob(id), arcp.CodeFailedPrecondition)
		alice.must("jobs.wait", fmt.Sprintf(`{"job_id":%q,"timeout_ms":3600000}`, id))
		bob.refuses("it is somebody else's", "jobs.delete", ofJob(id), arcp.CodeJobNotFound)
		ann.refuses("who sees it does not own it", "jobs.delete", ofJob(id), arcp.CodePermissionDenied)

		if out := alice.must("jobs.delete", ofJob(id)); out["deleted"] != true {
			t.Errorf("jobs.delete = %v", out)
		}
		for _, name := range []string{"jobs.get", "jobs.wait", "jobs.delete", "tools.calls"} {
			alice.refuses("it is deleted", name, ofJob(id), arcp.CodeJobNotFound)
		}
		alice.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, id))
		if e := refusal(t, alice.until("nack")); e.Code != arcp.CodeJobNotFound {
			t.Errorf("following a deleted job: %+v", e)
		}
		if row := alice.must("jobs.get", ofJob(kept)); row["status"] != "completed" {
			t.Errorf("another job: %v", row)
		}
		last := alice.submit("demo.echo", `{"n":2}`)
		alice.until("job.completed")
		watch := b.dial("alice")
		watch.subscribe(fmt.Sprintf(`{"filter":{"job_id":[%q,%q,%q]},"since":{"after_message_id":%q}}`, kept, id, last, accepted.ID))
		var seen []string
		for e := watch.original(); !strings.Contains(string(e.Payload), arcp.EventCaughtUp); e = watch.original() {
			seen = append(seen, fmt.Sprint(e.JobID == last, " ", e.Type))
		}
		if got, want := strings.Join(seen, ", "), "false job.started, false job.completed, true job.accepted, true job.started, true job.completed"; got != want {
			t.Errorf("a subscription from before it has %s, want %s", got, want)
		}
	})
}

// A job is not deleted while a session has still to receive its events.
func TestJobsDeleteTooEarly(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		alice, other := b.dial("alice"), b.dial("alice")
		echo := alice.submit("demo.echo", `{}`)
		alice.until("job.completed")
		away := b.dial("alice")
		late := away.submit("demo.sleep", `{"ms":60000}`)
		synctest.Wait()
		_ = away.conn.Abort()
		time.Sleep(2 * time.Minute)

		other.refuses("its session may come back for its end", "jobs.delete", ofJob(late), arcp.CodeFailedPrecondition)
		other.must("jobs.delete", ofJob(echo))
		other.must("sessions.evict", fmt.Sprintf(`{"session_id":%q,"forget":true}`, away.session))
		other.must("jobs.delete", ofJob(late))
		other.refuses("it is deleted", "jobs.get", ofJob(late), arcp.CodeJobNotFound)
	})
}

// withCaller adds a tool that calls demo.echo and continues for a while.
func withCaller(t *testing.T, goesOn time.Duration) func(*runtime.Config) {
	caller := tool.MustNew(tool.Capability{Name: "caller", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) (string, error) {
		_, err := job.Call(ctx, tool.Call{Tool: "demo.echo"})
		time.Sleep(goesOn)
		return "done", err
	})
	return func(c *runtime.Config) {
		if err := c.Tools.Register(caller); err != nil {
			t.Fatal(err)
		}
	}
}

// A child is kept while its parent is live.
func TestJobsDeleteChild(t *testing.T) {
	inBubble(t, withCaller(t, time.Minute), func(b *fixture) {
		p := b.dial("alice")
		p.send("tool.invoke", `{"tool":"caller","lease_request":{"tool.call":["*"]}}`)
		parent := p.until("job.accepted").JobID
		child := p.until("job.accepted").JobID
		p.must("jobs.wait", ofJob(child))
		p.refuses("its parent goes on", "jobs.delete", ofJob(child), arcp.CodeFailedPrecondition)
		p.must("jobs.wait", fmt.Sprintf(`{"job_id":%q,"timeout_ms":3600000}`, parent))
		p.must("jobs.delete", ofJob(child))
		p.must("jobs.delete", ofJob(parent))
	})
}

// Costs of a deleted job stay deducted. A job cannot be deleted while an ancestor is live.
func TestJobsDeleteGrandchild(t *testing.T) {
	for _, byHand := range []bool{true, false} {
		t.Run(fmt.Sprint("by hand ", byHand), func(t *testing.T) {
			free := tool.Limits{Timeout: -1}
			var ids chan arcp.JobID
			var charged chan error
			child := func(ctx context.Context, job tool.Job, name, budget string, made func(arcp.JobID)) {
				_, _ = job.Call(ctx, tool.Call{Tool: name, Detach: true, Lease: arcp.Raw(`{"cost.budget":["USD:` + budget + `"]}`), OnChild: made})
			}
			inBubble(t, func(c *runtime.Config) {
				ids, charged = make(chan arcp.JobID, 1), make(chan error, 3)
				for name, run := range map[string]func(context.Context, tool.Job) error{
					"top": func(ctx context.Context, job tool.Job) error {
						_, err := job.Call(ctx, tool.Call{Tool: "middle", Lease: arcp.Raw(`{"tool.call":["*"],"cost.budget":["USD:10"]}`)})
						time.Sleep(time.Hour)
						charged <- job.Authority().Charge("x", "USD", "2.5")
						charged <- job.Authority().Charge("x", "USD", "1.5")
						return err
					},
					"middle": func(ctx context.Context, job tool.Job) error {
						go child(ctx, job, "spender", "8", func(id arcp.JobID) { ids <- id })
						go child(ctx, job, "long", "1", nil)
						time.Sleep(time.Second)
						return nil
					},
					"spender": func(_ context.Context, job tool.Job) error {
						time.Sleep(10 * time.Second)
						err := job.Authority().Charge("x", "USD", "8")
						charged <- err
						return err
					},
					"long": func(context.Context, tool.Job) error { time.Sleep(2 * time.Minute); return nil },
				} {
					err := c.Tools.Register(tool.MustNew(tool.Capability{Name: name, Limits: free}, func(ctx context.Context, job tool.Job, _ struct{}) (string, error) {
						return "done", run(ctx, job)
					}))
					if err != nil {
						t.Fatal(err)
					}
				}
			}, func(b *fixture) {
				p := b.dial("alice")
				p.send("tool.invoke", `{"tool":"top","lease_request":{"tool.call":["*"],"cost.budget":["USD:10"]}}`)
				top := p.until("job.accepted").JobID
				time.Sleep(time.Minute)
				synctest.Wait()
				if err := <-charged; err != nil {
					t.Fatal(err)
				}
				spender := <-ids
				q := b.dial("alice")
				q.refuses("a job above its parent goes on", "jobs.delete", ofJob(spender), arcp.CodeFailedPrecondition)
				if !byHand { // as the bound of the disk does
					if err := b.rt.Commit(b.Context(), store.NewWrite(&store.DeleteJob{Job: spender})); err != nil {
						t.Fatal(err)
					}
				}
				if err := <-charged; err == nil {
					t.Error("2.5 are charged of the 2 of 10 that are left")
				}
				if err := <-charged; err != nil {
					t.Errorf("1.5 of the 2 that are left: %v", err)
				}
				q.must("jobs.wait", fmt.Sprintf(`{"job_id":%q,"timeout_ms":3600000}`, top))
				if byHand {
					q.must("jobs.delete", ofJob(spender))
				}
			})
		})
	}
}

// Deleting a job in its own session loses no event of another job: the session must have
// received, or acknowledged, all events up to the job's end.
func TestJobsDeleteInItsSession(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.AckWindow = 4 }, func(b *fixture) {
		h := newHistory(t)
		p, token := b.dialToken("alice")
		p.send("session.ack", `{"last_processed_seq":0}`)
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":100,"bytes":10}}`)
		p.follow(h, 4)
		p.send("tool.invoke", `{"tool":"demo.echo","arguments":{}}`)
		synctest.Wait()
		var list arcp.SessionJobsPayload
		p.send("session.list_jobs", `{}`)
		if err := arcp.Unmarshal(p.until("session.jobs").Payload, &list); err != nil {
			t.Fatal(err)
		}
		var echo arcp.JobID
		for _, j := range list.Jobs {
			if j.Agent == "demo.echo@1.0.0" {
				echo = j.JobID
			}
		}
		p.send("tool.invoke", fmt.Sprintf(`{"tool":"jobs.delete","arguments":{"job_id":%q},"direct":true}`, echo))
		time.Sleep(time.Second)
		synctest.Wait()
		b.dial("alice").must("jobs.get", ofJob(echo))
		_ = p.conn.Abort()
		synctest.Wait()

		q := b.resume(token, h.last)
		if env := q.read(); env.Type != "session.resumed" {
			t.Fatalf("resumed: %s %s", env.Type, env.Payload)
		}
		for h.last < 100 {
			q.follow(h, 4)
			q.send("session.ack", fmt.Sprintf(`{"last_processed_seq":%d}`, h.last))
		}
	})
}
