package runtime_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool"
)

// A refused request is in the audit log, whichever way it was sent.
func TestDenialsAreAudited(t *testing.T) {
	var log bytes.Buffer
	people := withPeople(t)
	caller := tool.MustNew(tool.Capability{Name: "caller"}, func(ctx context.Context, job tool.Job, in struct {
		Tool string `json:"tool"`
	}) (arcp.Raw, error) {
		return job.Call(ctx, tool.Call{Tool: in.Tool})
	})
	inBubble(t, func(c *runtime.Config) {
		people(c)
		c.Log = zerolog.New(zerolog.SyncWriter(&log))
		if err := c.Tools.Register(caller); err != nil {
			t.Fatal(err)
		}
	}, func(f *fixture) {
		alice, other, ann := f.dial("alice"), f.dial("alice"), f.dial("ann")
		alice.must("host.register_agent", `{"id":"a","name":"A","kind":"k"}`)
		id := alice.submit("demo.echo", `{}`)
		alice.until("job.completed")
		asked := alice.must("approval.request", `{"action":"wipe","system_level":true}`)["approval_id"].(string)
		for _, c := range []struct {
			by         *peer
			name, args string
			action     string
		}{
			{alice, "approval.resolve", fmt.Sprintf(`{"approval_id":%q,"approved":true}`, asked), "answer"},
			{alice, "approval.answer", fmt.Sprintf(`{"request_id":%q,"choice_id":"approve"}`, asked), "answer"},
			{other, "host.set_status", `{"agent_id":"a","status":"running"}`, "host.set_status"},
			{other, "host.unregister_agent", `{"agent_id":"a"}`, "host.unregister_agent"},
			{other, "host.register_agent", `{"id":"a","name":"A","kind":"k"}`, "host.register_agent"},
			{alice, "tools.describe", `{"name":"trusting"}`, "tools.describe"},
			{alice, "registry.lease", `{"provider":"local","resource_type":"process","external_id":"1","lease_duration_seconds":1}`, "registry.lease"},
			{alice, "jobs.credentials", `{}`, "jobs.credentials"},
			{ann, "jobs.delete", ofJob(id), "jobs.delete"},
			{alice, "caller", `{"tool":"trusting"}`, "denial"},
			{alice, "caller", `{"tool":"jobs.get"}`, "denial"},
		} {
			synctest.Wait() // no goroutine writes to it now
			log.Reset()
			c.by.refuses(c.name, c.name, c.args, arcp.CodePermissionDenied)
			synctest.Wait()
			n, others := 0, 0
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, `"logger":"audit"`) && strings.Contains(line, `"decision":"denied"`) {
					others++
				}
				if strings.Contains(line, `"level":"info","logger":"audit"`) && strings.Contains(line, fmt.Sprintf(`"action":%q`, c.action)) && strings.Contains(line, `"decision":"denied"`) {
					n++
					others--
				}
			}
			if n != 1 || others != 0 {
				t.Errorf("%s %s leaves %d records of a denial and %d of others, want one:\n%s", c.name, c.args, n, others, log.String())
			}
		}
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
