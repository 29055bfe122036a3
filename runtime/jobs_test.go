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
	"github.com/arcpd/arcpd/runtime/tool"
)

func ofJob(id arcp.JobID) string { return fmt.Sprintf(`{"job_id":%q}`, id) }

// Who waits for a job has its row as soon as it has ended, or as it is when the
// time is over.
func TestJobsWait(t *testing.T) {
	inBubble(t, withPeople(t), func(b *bed) {
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
	inBubble(t, withPeople(t), func(b *bed) {
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

// A job is not deleted while somebody has still to hear of it.
func TestJobsDeleteTooEarly(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
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

// The child of a job that goes on is kept for it.
func TestJobsDeleteChild(t *testing.T) {
	caller := tool.MustNew(tool.Capability{Name: "caller", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) (string, error) {
		_, err := job.Call(ctx, tool.Call{Tool: "demo.echo"})
		time.Sleep(time.Minute)
		return "done", err
	})
	inBubble(t, func(c *runtime.Config) {
		if err := c.Tools.Register(caller); err != nil {
			t.Fatal(err)
		}
	}, func(b *bed) {
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
