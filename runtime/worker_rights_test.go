package runtime_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
)

// withBob is the configuration of people, with other rights of bob.
func withBob(t *testing.T, rights string) *auth.Config {
	t.Helper()
	return loadPeople(t, strings.Replace(people, `{name: bob, tokens: ["%s"], roles: [client, approver]}`, `{name: bob, tokens: ["%s"], `+rights+`}`, 1))
}

// A session that has lost the role worker, or may not serve the principal any more, reports nothing for the
// jobs that it has accepted.
func TestAWorkerWithoutItsRightsReportsNothing(t *testing.T) {
	for name, rights := range map[string]string{
		"role":   `roles: [client], serves: ["*"]`,
		"serves": `roles: [client, worker]`,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(c *runtime.Config) {
				c.Auth = auth.NewSet(withBob(t, `roles: [client, worker], serves: ["*"]`))
			}, func(f *fixture) {
				bob, alice := f.startWorker("bob", "bob.work@1", ""), f.dial("alice")
				alice.submit("bob.work", `{}`)
				d, _ := bob.acceptDispatch()
				alice.until(arcp.JobStarted)
				f.cfg.Auth.Reload(withBob(t, rights))
				f.rt.Reauthenticate()
				synctest.Wait()
				bob.until(arcp.Cancel)
				bob.report(d, "tool.result", `{"value":"late"}`)
				if e := refusal(t, alice.end(arcp.JobFailed)); e.Code != arcp.CodeAborted {
					t.Errorf("the job fails with %v, want %s: its worker is lost", e, arcp.CodeAborted)
				}
				if e := refusal(t, bob.until(arcp.Nack)); e.Code != arcp.CodeFailedPrecondition {
					t.Errorf("the result is refused with %v", e)
				}
			})
		})
	}
}
