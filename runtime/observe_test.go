package runtime_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
)

// A principal that sees another subscribes to the other's sessions and jobs, and to no third
// one's.
func TestObserve(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, bob, ann, root := b.dial("alice"), b.dial("bob"), b.dial("ann"), b.dial("root")
		alice.submit("demo.echo", `{"text":"first"}`)
		firstEnd := alice.until("job.completed")
		bob.submit("demo.echo", `{"text":"of bob"}`)
		bobsEnd := bob.until("job.completed")
		bobs := bobsEnd.JobID

		refused := func(p *peer, why, filter string, code arcp.Code) {
			t.Helper()
			p.send("subscribe", filter)
			if e := refusal(t, p.until("nack")); e.Code != code {
				t.Errorf("%s: %+v, want %s", why, e, code)
			}
		}
		ofSession := func(ids ...arcp.SessionID) string {
			var quoted []string
			for _, id := range ids {
				quoted = append(quoted, fmt.Sprintf("%q", id))
			}
			return `{"filter":{"types":["job.completed"],"session_id":[` + strings.Join(quoted, ",") + `]}`
		}
		refused(bob, "somebody who sees nobody", ofSession(alice.session)+"}", arcp.CodePermissionDenied)
		refused(ann, "somebody who is not seen", ofSession(bob.session)+"}", arcp.CodePermissionDenied)
		refused(ann, "one's own and others", ofSession(ann.session, alice.session)+"}", arcp.CodeInvalidRequest)
		refused(root, "sessions and jobs of several", fmt.Sprintf(`{"filter":{"session_id":[%q],"job_id":[%q]}}`, alice.session, bobs), arcp.CodeInvalidRequest)
		refused(ann, "a message of somebody else", ofSession(alice.session)+fmt.Sprintf(`,"since":{"after_message_id":%q}}`, bobsEnd.ID), arcp.CodeDataLoss)

		refused(ann, "a job of somebody who is not seen", fmt.Sprintf(`{"filter":{"job_id":[%q]}}`, bobs), arcp.CodeNotFound)
		refused(ann, "very many jobs", fmt.Sprintf(`{"filter":{"job_id":[%s"x"]}}`, strings.Repeat(`"x",`, 1000)), arcp.CodeInvalidRequest)

		ann.subscribe(ofSession(alice.session) + "}")
		root.subscribe(ofSession(bob.session) + "}")
		second := alice.submit("demo.echo", `{"text":"second"}`)
		alice.until("job.completed")
		bob.submit("demo.echo", `{"text":"of bob"}`)
		bobsLast := bob.until("job.completed")
		if e := ann.original(); e.JobID != second || e.SessionID != alice.session || e.EventSeq == 0 {
			t.Errorf("ann is given %s of %s in %s, want the end of %s as it came to alice", e.Type, e.JobID, e.SessionID, second)
		}
		if e := root.original(); e.ID != bobsLast.ID || e.SessionID != bob.session {
			t.Errorf("an admin is given %s of %s, want the end of bob's job", e.Type, e.JobID)
		}

		nobody := b.dial("alice")
		nobody.subscribe(`{"filter":{"session_id":[""]}}`)
		alice.must("host.register_agent", `{"name":"secret","kind":"k"}`)
		held := alice.submit("demo.sleep", `{"ms":60000}`)
		other := bob.submit("demo.sleep", `{"ms":60000}`)
		synctest.Wait() // both run
		late := b.dial("ann")
		late.subscribe(fmt.Sprintf(`{"filter":{"types":["job.completed"],"job_id":[%q,%q]}}`, held, other))
		again := b.dial("ann")
		again.subscribe(fmt.Sprintf(`{"filter":{"session_id":[%q,""]},"since":{"after_message_id":%q}}`, alice.session, firstEnd.ID))
		seen := 0 // of the second job and of the sleep: nothing of the call of a built-in tool, nor of the host
		for e := again.original(); e.Type != arcp.EventEmit || !strings.Contains(string(e.Payload), arcp.EventCaughtUp); e = again.original() {
			if seen++; e.JobID != second && e.JobID != held {
				t.Errorf("%s of %s %s", e.Type, e.JobID, e.Payload)
			}
		}
		if seen != 5 {
			t.Errorf("%d events after the first job's, want three of the second and two of the one that runs", seen)
		}
		time.Sleep(time.Minute)
		alice.until("job.completed")
		bob.until("job.completed")
		if e := late.original(); e.JobID != held || e.SessionID != alice.session {
			t.Errorf("by its job: %s of %s", e.Type, e.JobID)
		}
		late.silent("the other job is not seen")
		nobody.silent("an empty id names nothing")
	})
}

// A principal that sees another reads the rows of its jobs and sessions, except calls of the
// runtime's own tools.
func TestObservedRows(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, bob, ann := b.dial("alice"), b.dial("bob"), b.dial("ann")
		first := alice.submit("demo.echo", `{"text":"first"}`)
		alice.until("job.completed")
		bobs := bob.submit("demo.echo", `{"text":"of bob"}`)
		bob.until("job.completed")
		own := alice.submit("host.register_agent", `{"name":"secret","kind":"k"}`)
		alice.until("job.completed")

		page := ann.must("jobs.get", fmt.Sprintf(`{"job_id":%q}`, first))
		if page["status"] != "success" && page["status"] != "completed" {
			t.Errorf("a job of somebody who is seen: %v", page)
		}
		if _, e := ann.run("jobs.get", fmt.Sprintf(`{"job_id":%q}`, bobs)); codeOf(e) != arcp.CodeJobNotFound {
			t.Errorf("a job of somebody who is not: %v", e)
		}
		for _, tool := range []string{"jobs.get", "tools.calls"} {
			if _, e := ann.run(tool, fmt.Sprintf(`{"job_id":%q}`, own)); codeOf(e) != arcp.CodeJobNotFound {
				t.Errorf("%s of a call of the runtime's own tool: %v", tool, e)
			}
		}
		if calls := ann.must("tools.calls", fmt.Sprintf(`{"job_id":%q}`, first)); len(calls["items"].([]any)) != 1 {
			t.Errorf("its calls: %v", calls)
		}

		listed := func(p *peer) (names []string) {
			t.Helper()
			cursor := ""
			for more := true; more; {
				page := p.must("sessions.list", fmt.Sprintf(`{"limit":1,"cursor":%q}`, cursor))
				for _, item := range page["items"].([]any) {
					names = append(names, item.(map[string]any)["principal"].(string))
				}
				cursor, more = page["next_cursor"].(string)
			}
			return names
		}
		if got := strings.Join(listed(ann), " "); got != "alice ann" {
			t.Errorf("the sessions of %s are listed for ann", got)
		}
		if got := strings.Join(listed(alice), " "); got != "alice" {
			t.Errorf("the sessions of %s are listed for alice", got)
		}
	})
}

// After the permission to see a principal ends, nothing more is sent.
func TestObserveNoMore(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, ann := b.dial("alice"), b.dial("ann")
		id := ann.subscribe(fmt.Sprintf(`{"filter":{"session_id":[%q]}}`, alice.session))
		own := ann.subscribe(fmt.Sprintf(`{"filter":{"session_id":[%q],"types":["job.completed"]}}`, ann.session))
		b.cfg.Auth.Reload(loadPeople(t, strings.Replace(people, `sees: ["alice"]`, `sees: ["carol"]`, 1)))
		b.rt.Reauthenticate()
		synctest.Wait()
		alice.submit("demo.echo", `{}`)
		alice.until("job.completed")
		env := ann.expect("subscribe.closed") // and nothing before
		p, err := arcp.DecodePayload[arcp.SubscribeClosedPayload](&env)
		if err != nil || p.SubscriptionID != id || p.Code != arcp.CodePermissionDenied {
			t.Errorf("%+v, %v", p, err)
		}
		ann.submit("demo.echo", `{}`)
		if env := ann.until("subscribe.event"); env.SubscriptionID != own {
			t.Errorf("an event of %s, want one of the own subscription", env.SubscriptionID)
		}
	})
}

// Access to another session, granted or denied, leaves an audit record.
func TestAcrossSessionsIsAudited(t *testing.T) {
	var log bytes.Buffer
	people := withPeople(t)
	inBubble(t, func(c *runtime.Config) {
		people(c)
		c.Log = zerolog.New(zerolog.SyncWriter(&log))
	}, func(b *fixture) {
		alice, other, bob, ann := b.dial("alice"), b.dial("alice"), b.dial("bob"), b.dial("ann")
		job, bobs := alice.submit("demo.sleep", `{"ms":600000}`), bob.submit("demo.sleep", `{"ms":600000}`)
		subscribe, named := fmt.Sprintf(`{"job_id":%q}`, job), fmt.Sprintf(`{"filter":{"session_id":[%q]}}`, alice.session)
		evict := func(id arcp.SessionID) string {
			return fmt.Sprintf(`{"target":"session","target_id":%q}`, id)
		}
		records := func(why string, want ...string) {
			t.Helper()
			synctest.Wait()
			got := auditRecords(t, &log)
			if !slices.Equal(got, want) {
				t.Errorf("%s: the records are %q, want %q", why, got, want)
			}
		}
		alice.send("job.subscribe", subscribe)
		alice.send("subscribe", named)
		alice.send("job.subscribe", `{"job_id":"job_0"}`)
		alice.send("cancel", evict("sess_0"))
		records("of one's own session, or of what is not there")
		other.send("job.subscribe", subscribe)
		records("another session's job", "job.subscribe allowed by alice: "+string(job))
		other.send("subscribe", "{}")
		records("all sessions", "subscribe allowed by alice: alice")
		bob.send("job.subscribe", subscribe)
		records("another principal's job", "observe denied by bob: "+string(job))
		bob.send("subscribe", named)
		records("another principal's session", "subscribe denied by bob: "+string(alice.session))
		ann.send("subscribe", fmt.Sprintf(`{"filter":{"job_id":[%q,"job_0"]}}`, bobs))
		records("the job of somebody whom one does not see", "subscribe denied by ann: "+string(bobs))
		ann.send("subscribe", fmt.Sprintf(`{"filter":{"job_id":[%q,%q]}}`, bobs, job))
		records("beside one that is seen", "subscribe denied by ann: "+string(bobs), "subscribe allowed by ann: "+string(bobs)+" "+string(job)) // as it was asked for
		bob.send("cancel", evict(alice.session))
		records("its end", "evict denied by bob: "+string(alice.session))
		_, _ = bob.run("sessions.evict", fmt.Sprintf(`{"session_id":%q}`, alice.session))
		records("its connection's", "evict denied by bob: "+string(alice.session))
		other.send("cancel", evict(alice.session))
		records("the end of another session", "evict allowed by alice: "+string(alice.session))
	})
}

// auditRecords removes the new records from the log and returns them in short: decision,
// actor, target.
func auditRecords(t *testing.T, log *bytes.Buffer) (list []string) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var r struct {
			Logger, Action, Decision, Actor, Target, Owner string
			JobID                                          string `json:"job_id"`
			Jobs                                           []string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.Logger == "audit" {
			list = append(list, fmt.Sprintf("%s %s by %s: %s", r.Action, r.Decision, r.Actor, cmp.Or(r.Target, r.JobID, strings.Join(r.Jobs, " "), r.Owner)))
		}
	}
	log.Reset()
	return list
}
