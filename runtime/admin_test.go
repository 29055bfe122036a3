package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// An admin may follow, list and cancel another principal's jobs and end its sessions. A
// principal that sees another one follows and lists, and cancels nothing.
func TestAdminOfOtherPrincipals(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, root, ann, bob := b.dial("alice"), b.dial("root"), b.dial("ann"), b.dial("bob")
		job := alice.submit("demo.sleep", `{"ms":3600000}`)
		alice.until("job.started")
		list := `{"filter":{"principal":"alice"}}`
		for _, who := range []*peer{root, ann} {
			who.send("session.list_jobs", list)
			page, err := arcp.DecodePayload[arcp.SessionJobsPayload](new(who.expect("session.jobs")))
			if err != nil || len(page.Jobs) != 1 || page.Jobs[0].JobID != job {
				t.Errorf("the jobs of alice: %+v, %v", page, err)
			}
			who.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, job))
			who.expect("job.subscribed", "job.accepted", "job.started")
		}
		cancel := fmt.Sprintf(`{"target":"job","target_id":%q}`, job)
		end := fmt.Sprintf(`{"target":"session","target_id":%q}`, alice.session)
		bob.send("session.list_jobs", list)
		if env := bob.expect("nack"); !strings.Contains(string(env.Payload), "PERMISSION_DENIED") {
			t.Errorf("bob lists alice's jobs: %s", env.Payload)
		}
		for _, who := range []*peer{ann, bob} {
			for _, p := range []string{cancel, end} {
				who.send("cancel", p)
				if env := who.expect("cancel.refused"); !strings.Contains(string(env.Payload), "not_found") {
					t.Errorf("cancel %s: %s", p, env.Payload)
				}
			}
		}
		root.send("cancel", cancel)
		root.expect("cancel.accepted", "job.cancelled")
		ann.expect("job.cancelled")
		alice.until("job.cancelled")
		root.send("cancel", cancel)
		if env := root.expect("cancel.refused"); !strings.Contains(string(env.Payload), "already_terminal") {
			t.Errorf("a second cancel: %s", env.Payload)
		}
		root.send("cancel", end)
		root.expect("cancel.accepted")
		alice.expect("session.evicted")
	})
}
