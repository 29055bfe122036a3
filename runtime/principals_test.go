package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
)

// rolesTable is the table of docs/principals.md about data of other principals.
type rolesTable struct {
	columns []string            // roles of the acting principals, as the header has them
	rows    map[string][]string // cells by action
}

func readRolesTable(t *testing.T) rolesTable {
	t.Helper()
	doc, err := os.ReadFile("../docs/principals.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(doc), "\n| action on data of another principal ")
	text, _, _ = strings.Cut("| action "+text, "\n\n")
	var lines [][]string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		lines = append(lines, cells)
	}
	if !found || len(lines) < 3 {
		t.Fatal("docs/principals.md has no table of roles")
	}
	table := rolesTable{lines[0][2:], make(map[string][]string)}
	for _, cells := range lines[2:] {
		table.rows[cells[0]] = cells[2:]
	}
	return table
}

// auth returns a configuration with alice, and a principal c0, c1 … with the roles of each column.
func (r *rolesTable) auth(t *testing.T) *auth.Config {
	t.Helper()
	text := "principals:\n"
	add := func(name, roles, more string) {
		text += fmt.Sprintf("  - {name: %s, tokens: [%q], roles: [%s]%s}\n", name, auth.FileHash(auth.Secret(name+"-"+token)), roles, more)
	}
	add("alice", "client", "")
	for i, column := range r.columns {
		roles, sees := strings.CutSuffix(strings.ReplaceAll(column, "`", ""), ", sees")
		more := ""
		if sees {
			more = ", sees: [alice]"
		}
		add(fmt.Sprintf("c%d", i), roles, more)
	}
	file := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := auth.Load(file, auth.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// question returns the id of the question that a new job of the peer waits for.
func (p *peer) question(name, args string) string {
	p.Helper()
	job := p.submit(name, args)
	synctest.Wait()
	list, err := p.run("approval.list", `{"status":"pending"}`)
	if err != nil {
		p.Fatal(err)
	}
	id := regexp.MustCompile(`\{"approval_id":"([^"]*)"[^{}]*"job_id":"` + string(job)).FindSubmatch(list)
	if id == nil {
		p.Fatalf("%s asks nothing: %s", job, list)
	}
	return string(id[1])
}

// does reports whether the message is not refused.
func (p *peer) does(typ arcp.Type, payload string) bool {
	p.Helper()
	id := p.send(string(typ), payload)
	for {
		switch env := p.read(); {
		case string(env.CorrelationID) != id:
		case env.Type == arcp.Nack, env.Type == arcp.CancelRefused:
			refusal(p.T, env)
			return false
		default:
			return true
		}
	}
}

// calls reports whether the call of the tool succeeds with a result that contains the text.
func (p *peer) calls(name, args, text string) bool {
	p.Helper()
	result, err := p.run(name, args)
	return err == nil && strings.Contains(string(result), text)
}

const (
	sleepHour  = `{"ms":3600000}`
	askPermit  = `{"permission":"p","resource":"r","operation":"o","lease_seconds":60,"hold_ms":3600000}`
	askInteger = `{"prompt":"how many?","response_schema":{"type":"integer"}}`
)

// roleProbes has each action of the table: p does it to new data of alice, and the probe reports whether it can.
var roleProbes = map[string]func(alice, p *peer) bool{
	"list its jobs": func(_, p *peer) bool {
		return p.does(arcp.SessionListJobs, `{"filter":{"principal":"alice"}}`)
	},
	"follow a job": func(alice, p *peer) bool {
		return p.does(arcp.JobSubscribe, ofJob(alice.submit("demo.sleep", sleepHour)))
	},
	"show a job": func(alice, p *peer) bool {
		return p.calls("jobs.get", ofJob(alice.submit("demo.sleep", sleepHour)), "demo.sleep")
	},
	"list its sessions": func(alice, p *peer) bool {
		return p.calls("sessions.list", `{"limit":1000}`, string(alice.session))
	},
	"list its agents": func(alice, p *peer) bool {
		alice.must("host.register_agent", fmt.Sprintf(`{"id":"of-%s","name":"Coder","kind":"k"}`, alice.session))
		return p.calls("host.agents", `{"observed":true}`, "of-"+string(alice.session))
	},
	"list its approvals": func(alice, p *peer) bool {
		return p.calls("approval.list", `{}`, alice.question("danger", `{}`))
	},
	"read the arguments of a call that waits for an approval": func(alice, p *peer) bool {
		return p.calls("approval.get", fmt.Sprintf(`{"approval_id":%q}`, alice.question("danger", `{"which":"an argument"}`)), "an argument")
	},
	"decide an approval": func(alice, p *peer) bool {
		return p.calls("approval.resolve", fmt.Sprintf(`{"approval_id":%q,"approved":true}`, alice.question("danger", `{}`)), "approve")
	},
	"answer a question for a value": func(alice, p *peer) bool {
		return p.calls("approval.answer", fmt.Sprintf(`{"request_id":%q,"value":12}`, alice.question("demo.ask", askInteger)), "answered")
	},
	"grant a permission": func(alice, p *peer) bool {
		return p.calls("approval.answer", fmt.Sprintf(`{"request_id":%q,"grant":true}`, alice.question("demo.permit", askPermit)), "granted")
	},
	"revoke a granted permission": func(alice, p *peer) bool {
		alice.must("approval.answer", fmt.Sprintf(`{"request_id":%q,"grant":true}`, alice.question("demo.permit", askPermit)))
		env := alice.until(arcp.LeaseGranted)
		granted, err := arcp.DecodePayload[arcp.LeaseGrantedPayload](&env)
		if err != nil {
			alice.Fatal(err)
		}
		return p.does(arcp.LeaseRevoked, fmt.Sprintf(`{"lease_id":%q,"reason":"no"}`, granted.LeaseID))
	},
	"cancel a job": func(alice, p *peer) bool {
		return p.does(arcp.Cancel, fmt.Sprintf(`{"target":"job","target_id":%q}`, alice.submit("demo.sleep", sleepHour)))
	},
	"end the connection of a session": func(alice, p *peer) bool {
		return p.calls("sessions.evict", fmt.Sprintf(`{"session_id":%q}`, alice.fixture.dial("alice").session), "true")
	},
	"list its leases on resources": func(alice, p *peer) bool {
		return p.calls("registry.leases", `{}`, alice.leaseResource())
	},
	"release a resource": func(alice, p *peer) bool {
		return p.calls("registry.release", fmt.Sprintf(`{"lease_id":%q}`, alice.leaseResource()), "released")
	},
	"list credentials of jobs": func(_, p *peer) bool {
		_, err := p.run("jobs.credentials", `{}`)
		return codeOf(err) == arcp.CodeFailedPrecondition // there are no provisioners
	},
	"interrupt a job": func(alice, p *peer) bool {
		job := alice.submit("demo.sleep", sleepHour)
		synctest.Wait()
		return p.does(arcp.Interrupt, fmt.Sprintf(`{"target":"job","target_id":%q,"prompt":"go on?"}`, job))
	},
	"delete a job": func(alice, p *peer) bool {
		job := alice.submit("demo.echo", `{}`)
		alice.until(arcp.JobCompleted)
		synctest.Wait()
		return p.calls("jobs.delete", ofJob(job), "")
	},
	"read an artifact": func(alice, p *peer) bool {
		artifact := alice.must("artifact.put", `{"media_type":"text/plain","data":"aGk="}`)["artifact_id"]
		return p.calls("artifact.get", fmt.Sprintf(`{"artifact_id":%q}`, artifact), "aGk=")
	},
	"list its schedules": func(alice, p *peer) bool {
		job := alice.submit("schedule.create", `{"when":{"after":3600},"job":{"type":"tool.invoke","payload":{"tool":"demo.echo","arguments":{}}}}`)
		return p.calls("schedule.list", `{}`, string(job))
	},
}

// leaseResource returns the id of a new lease of the peer.
func (p *peer) leaseResource() string {
	p.Helper()
	p.sent++
	return p.must("registry.lease", fmt.Sprintf(
		`{"provider":"cloud","resource_type":"vm","external_id":"vm-%d","lease_duration_seconds":3600}`, p.sent))["lease_id"].(string)
}

// The runtime allows and denies each action as the table in docs/principals.md says. The principal alice owns the
// data. She may do each action that needs only the role client.
func TestRolesTable(t *testing.T) {
	table := readRolesTable(t)
	ownCannot := map[string]bool{"decide an approval": true, "list credentials of jobs": true}
	for action := range table.rows {
		if roleProbes[action] == nil {
			t.Errorf("no probe does %q", action)
		}
	}
	ac, base := table.auth(t), withCloud(t, new(cloud))
	for action, probe := range roleProbes {
		cells := table.rows[action]
		if len(cells) != len(table.columns) {
			t.Errorf("docs/principals.md has %d cells about %q, want %d", len(cells), action, len(table.columns))
			continue
		}
		inBubble(t, func(c *runtime.Config) {
			base(c)
			c.Auth = auth.NewSet(ac)
		}, func(f *fixture) {
			if got := probe(f.human("alice"), f.human("alice")); got == ownCannot[action] {
				t.Errorf("alice may %s of her own: %v", action, got)
			}
			for i, column := range table.columns {
				got := map[bool]string{true: "yes", false: "no"}[probe(f.human("alice"), f.human(fmt.Sprintf("c%d", i)))]
				if got != cells[i] {
					t.Errorf("docs/principals.md: %s: the column %s is %q, want %q", action, column, cells[i], got)
				}
			}
		})
	}
}
