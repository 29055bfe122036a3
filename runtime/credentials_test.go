package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/tool"
)

// minter is a provisioner that makes a key for each job and generation.
type minter struct {
	mu       sync.Mutex
	keys     map[string]string // by job and generation
	live     map[string]bool   // keys that are not revoked
	lifetime time.Duration     // of a key; 0: it does not expire
	delay    time.Duration     // duration of Issue
	refuse   bool
}

func newMinter() *minter { return &minter{keys: map[string]string{}, live: map[string]bool{}} }

func (m *minter) Issue(_ context.Context, r credential.Request) ([]credential.Credential, error) {
	m.mu.Lock()
	delay := m.delay
	m.mu.Unlock()
	time.Sleep(delay)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse {
		return nil, &credential.RefusedError{Err: arcp.Errorf(arcp.CodeUnavailable, "the mint is closed")}
	}
	name := fmt.Sprintf("%s/%d", r.Job, r.Generation)
	if m.keys[name] == "" {
		m.keys[name] = fmt.Sprintf("sk-minted-%06d", len(m.keys)+1)
		m.live[m.keys[name]] = true
	}
	value := m.keys[name]
	c := credential.Credential{Endpoint: "https://mint.example", Value: credential.Secret(value), Upstream: "handle-" + value[len(value)-6:]}
	if m.lifetime > 0 {
		c.ExpiresAt = time.Now().Add(m.lifetime)
	}
	return []credential.Credential{c}, nil
}

func (m *minter) Revoke(_ context.Context, r credential.Ref) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, value := range m.keys {
		if r.Upstream == "handle-"+value[len(value)-6:] || r.Upstream == "" && strings.HasPrefix(name, string(r.Job)+"/") {
			delete(m.live, value)
		}
	}
	return nil
}

// unrevoked returns the keys that are not revoked.
func (m *minter) unrevoked() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for value := range m.live {
		list = append(list, value)
	}
	return list
}

// withMinter gives the jobs of demo.sleep, narrow, forger and late a credential
// each.
func withMinter(t *testing.T, m *minter, log *syncBuffer) func(*runtime.Config) {
	people := withPeople(t)
	sealer := credential.EphemeralSealer()
	return func(c *runtime.Config) {
		people(c)
		c.Log = zerolog.New(log)
		c.Sealer = sealer
		c.Provisioners = []credential.Source{{Name: "mint", For: []string{"demo.sleep", "narrow", "forger", "late"}, Provisioner: m}}
		narrow, err := tool.NewRaw(tool.Capability{Name: "narrow", Limits: tool.Limits{Concurrency: 1}}, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(2 * time.Second)
			return arcp.Raw("1"), nil
		})
		forger, err2 := tool.NewRaw(tool.Capability{Name: "forger"}, func(_ context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			err := j.Emit("credential_rotated", args)
			time.Sleep(2 * time.Second)
			return arcp.Raw("1"), err
		})
		late, err3 := tool.NewRaw(tool.Capability{Name: "late", Limits: tool.Limits{Timeout: 41500 * time.Millisecond}}, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(41100 * time.Millisecond)
			err := j.Emit("late", nil)
			<-ctx.Done()
			return nil, err
		})
		if err = errors.Join(err, err2, err3, c.Tools.Register(narrow), c.Tools.Register(forger), c.Tools.Register(late)); err != nil {
			t.Fatal(err)
		}
	}
}

// rotated is the data of the next event of a rotation.
func (p *peer) rotated() string {
	p.Helper()
	env := p.until("event.emit")
	e, err := arcp.DecodePayload[arcp.EventEmitPayload](&env)
	if err != nil || e.Name != "credential_rotated" || env.EventSeq == 0 {
		p.Fatalf("%s, %v: want the event of a rotation, with a number", env.Payload, err)
	}
	return string(e.Data)
}

func TestCredentialRotationReachesTheJob(t *testing.T) {
	m, log := newMinter(), new(syncBuffer)
	inBubble(t, withMinter(t, m, log), func(f *fixture) {
		alice, other, root := f.human("alice"), f.human("alice"), f.human("root")
		alice.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":600000}}`)
		env := alice.expect("job.accepted")
		a, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&env)
		if err != nil || len(a.Credentials) != 1 || a.Credentials[0].Value != "sk-minted-000001" {
			t.Fatalf("job.accepted is %s, %v; want one credential, the first minted", env.Payload, err)
		}
		id, cred := a.JobID, a.Credentials[0].ID
		other.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, id))
		other.expect("job.subscribed")
		feed := f.human("alice")
		feed.subscribe(`{}`)
		ask := fmt.Sprintf(`{"job_id":%q}`, id)
		if _, e := alice.run("jobs.rotate_credentials", ask); codeOf(e) != arcp.CodePermissionDenied {
			t.Errorf("rotated by somebody who is no admin: %v", e)
		}
		if _, e := root.run("jobs.rotate_credentials", fmt.Sprintf(`{"job_id":%q,"provisioner":"else"}`, id)); codeOf(e) != arcp.CodeNotFound {
			t.Errorf("rotated by a provisioner that has issued nothing: %v", e)
		}
		if done := root.must("jobs.rotate_credentials", ask); !strings.Contains(fmt.Sprint(done), cred) {
			t.Errorf("rotated: %v, want %s", done, cred)
		}
		if got, want := alice.rotated(), fmt.Sprintf(`{"id":%q,"value":"sk-minted-000002"}`, cred); got != want {
			t.Errorf("the submitter is told %s, want %s", got, want)
		}
		if got, want := other.rotated(), fmt.Sprintf(`{"id":%q}`, cred); got != want {
			t.Errorf("a follower is told %s, want %s", got, want)
		}
		for found := false; !found; {
			env := feed.until("subscribe.event")
			found = strings.Contains(string(env.Payload), "credential_rotated")
			if strings.Contains(string(env.Payload), "sk-minted") {
				t.Errorf("a feed says %s", env.Payload)
			}
		}
		synctest.Wait()
		if got := m.unrevoked(); len(got) != 1 || got[0] != "sk-minted-000002" {
			t.Errorf("good are %v, want the second", got)
		}
		root.must("jobs.rotate_credentials", ask)
		if got := alice.rotated(); !strings.Contains(got, "sk-minted-000003") {
			t.Errorf("the submitter is told %s, want the third", got)
		}
		if f.inStore("sk-minted") {
			t.Error("a value is in the store")
		}
		if n := f.sum("arcp_credential_operations_total", `"rotate"`); n != 2 {
			t.Errorf("%v rotations are counted, want 2", n)
		}

		f.shutdown(0)
		f.serve.Wait()
		f.boot(withMinter(t, m, log)) // with another key: sealed values cannot be opened
		root = f.human("root")
		root.must("jobs.rotate_credentials", ask)
		synctest.Wait()
		if got := m.unrevoked(); len(got) != 1 || got[0] != "sk-minted-000004" {
			t.Errorf("good are %v, want the fourth", got)
		}
		list := root.must("jobs.credentials", "{}")["items"].([]any)
		if len(list) != 1 || list[0].(map[string]any)["generation"].(float64) != 4 || list[0].(map[string]any)["state"] != "live" {
			t.Errorf("listed are %v", list)
		}
	})
	if strings.Contains(log.String(), "sk-minted") {
		t.Error("a value is in the log")
	}
	if n := strings.Count(log.String(), `"action":"rotate_credentials","actor":"root"`); n != 4 {
		t.Errorf("%d audit records, want 4", n)
	}
}

// A resumed submitter is sent the current value, and no revoked one.
func TestCredentialRotationIsReplayed(t *testing.T) {
	m, log := newMinter(), new(syncBuffer)
	change := withMinter(t, m, log)
	inBubble(t, change, func(f *fixture) {
		alice, root := f.connect(nil), f.human("root")
		alice.openHuman("alice", "")
		token := resumeToken(t, alice.expect("session.accepted"))
		alice.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":600000}}`)
		env := alice.expect("job.accepted")
		a, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&env)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			root.must("jobs.rotate_credentials", fmt.Sprintf(`{"job_id":%q}`, a.JobID))
		}
		replay := func(why, accepted, second string) (again *peer) {
			t.Helper()
			again = f.resume(token, 0)
			token = resumeToken(t, again.until("session.resumed"))
			if env := again.until("job.accepted"); accepted != "" && !strings.Contains(string(env.Payload), accepted) || accepted == "" && strings.Contains(string(env.Payload), "sk-") {
				t.Errorf("%s: accepted with %s, want %q", why, env.Payload, accepted)
			}
			if got := again.rotated(); strings.Contains(got, "sk-") {
				t.Errorf("%s: the first rotation is told as %s", why, got)
			}
			if got := again.rotated(); strings.Contains(got, "value") != (second != "") || !strings.Contains(got, second) {
				t.Errorf("%s: the second rotation is told as %s, want %q", why, got, second)
			}
			return again
		}
		replay("live", "sk-minted-000003", "sk-minted-000003")
		f.shutdown(0)
		f.serve.Wait()
		f.boot(change)
		alice = replay("after a restart", "sk-minted-000003", "sk-minted-000003")
		f.human("root").must("jobs.rotate_credentials", fmt.Sprintf(`{"job_id":%q}`, a.JobID))
		if got := alice.rotated(); !strings.Contains(got, "sk-minted-000004") {
			t.Errorf("after a restart a rotation is told as %s, want the fourth", got)
		}
		replay("when it was replaced", "sk-minted-000004", "")
		time.Sleep(time.Hour)
		if got := m.unrevoked(); len(got) != 0 {
			t.Errorf("good are %v after the end", got)
		}
		replay("after the end", "", "")
	})
}

func TestCredentialRotationBeforeItEnds(t *testing.T) {
	m, log := newMinter(), new(syncBuffer)
	m.lifetime = 50 * time.Second
	inBubble(t, withMinter(t, m, log), func(f *fixture) {
		alice := f.human("alice")
		begin := time.Now()
		alice.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":100000}}`)
		alice.expect("job.accepted")
		for i, want := range []time.Duration{40 * time.Second, 80 * time.Second} {
			if got := alice.rotated(); !strings.Contains(got, fmt.Sprintf("sk-minted-%06d", i+2)) || time.Since(begin) != want {
				t.Errorf("after %v told %s, want after %v", time.Since(begin), got, want)
			}
		}
		alice.until("job.completed")
		time.Sleep(time.Hour)
		if len(m.keys) != 3 || len(m.unrevoked()) != 0 {
			t.Errorf("%d keys were made, good are %v: want three, none", len(m.keys), m.unrevoked())
		}
	})
}

// Jobs end at the very time at which their credentials are rotated.
func TestCredentialRotationAtTheEnd(t *testing.T) {
	m, log := newMinter(), new(syncBuffer)
	m.lifetime = 50 * time.Second
	const jobs = 64
	inBubble(t, withMinter(t, m, log), func(f *fixture) {
		alice := f.human("alice")
		for range jobs {
			alice.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":40000}}`)
		}
		for range jobs {
			if env := alice.until("job.completed"); time.Since(env.Timestamp) > time.Second {
				t.Errorf("completed at %v", env.Timestamp)
			}
		}
		time.Sleep(time.Minute)
		if got := m.unrevoked(); len(got) != 0 {
			t.Errorf("%d are good after the end", len(got))
		}
		if n := f.sum("arcp_credentials_unrevoked", "") + f.sum("arcp_jobs", ""); n != 0 {
			t.Errorf("%v jobs and credentials are left", n)
		}
		t.Logf("%d of %d were rotated", len(m.keys)-jobs, jobs)
	})
}

// Jobs come to the end of their time while the store is slow: a supervisor finds
// out together with the rotation, which came first.
func TestCredentialRotationBesideTheEnd(t *testing.T) {
	for range 8 {
		m, log := newMinter(), new(syncBuffer)
		m.lifetime = 50 * time.Second
		const jobs = 8 // as many as the provisioner is asked for at once
		inBubble(t, withMinter(t, m, log), func(f *fixture) {
			alice, bob := f.human("alice"), f.human("bob")
			for range jobs {
				alice.send("tool.invoke", `{"tool":"late","arguments":{}}`)
			}
			synctest.Wait()
			m.mu.Lock()
			m.delay = time.Second // answers come at 41 s
			m.mu.Unlock()
			time.Sleep(40500 * time.Millisecond)
			gate := make(chan struct{})
			f.st.set(func() { f.st.commitGate = gate })
			bob.send("tool.invoke", `{"tool":"demo.echo","arguments":{}}`) // commits from 41 s on wait for it
			time.Sleep(2 * time.Second)
			f.st.set(func() { f.st.commitGate = nil })
			close(gate)
			for range jobs {
				if e := refusal(t, alice.until("job.failed")); e.Code != arcp.CodeDeadlineExceeded {
					t.Errorf("ended with %v", e)
				}
			}
			time.Sleep(time.Minute)
			if got := m.unrevoked(); len(got) != 0 || len(m.keys) != 2*jobs {
				t.Errorf("%d of %d are good after the end", len(got), len(m.keys))
			}
			if n := f.sum("arcp_credentials_unrevoked", "") + f.sum("arcp_jobs", ""); n != 0 {
				t.Errorf("%v jobs and credentials are left", n)
			}
		})
	}
}

// If the provisioner does not rotate, the job keeps its credential.
func TestCredentialRotationThatIsRefused(t *testing.T) {
	m, log := newMinter(), new(syncBuffer)
	m.lifetime = 50 * time.Second
	inBubble(t, withMinter(t, m, log), func(f *fixture) {
		alice, root := f.human("alice"), f.human("root")
		alice.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":600000}}`)
		env := alice.expect("job.accepted")
		a, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&env)
		if err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		m.refuse = true
		m.mu.Unlock()
		_, e := root.run("jobs.rotate_credentials", fmt.Sprintf(`{"job_id":%q}`, a.JobID))
		if codeOf(e) != arcp.CodeUnavailable || !strings.Contains(e.Message, "the mint is closed") {
			t.Errorf("rotated: %v", e)
		}
		time.Sleep(time.Minute)
		if n := f.sum("arcp_credential_operations_total", `"refused"`); n < 4 || len(m.unrevoked()) != 1 {
			t.Errorf("%v attempts are counted, good are %v", n, m.unrevoked())
		}
		m.mu.Lock()
		m.refuse = false
		m.mu.Unlock()
		if got := alice.rotated(); !strings.Contains(got, "sk-minted-000002") {
			t.Errorf("told %s, want the second", got)
		}
	})
}

// The job that waits for its turn has its credential rotated, too; and an event of
// a tool that has the same name is given no value.
func TestCredentialRotationOfOtherJobs(t *testing.T) {
	m, log := newMinter(), new(syncBuffer)
	inBubble(t, withMinter(t, m, log), func(f *fixture) {
		alice, root := f.human("alice"), f.human("root")
		alice.send("tool.invoke", `{"tool":"narrow","arguments":{}}`)
		alice.until("job.started")
		alice.send("tool.invoke", `{"tool":"narrow","arguments":{}}`)
		env := alice.until("job.accepted")
		a, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&env)
		if err != nil {
			t.Fatal(err)
		}
		root.must("jobs.rotate_credentials", fmt.Sprintf(`{"job_id":%q}`, a.JobID))
		if got := alice.rotated(); !strings.Contains(got, "sk-minted-000003") {
			t.Errorf("told %s, want the third", got)
		}
		alice.until("job.started")
		alice.until("job.completed")
		synctest.Wait()
		if got := m.unrevoked(); len(got) != 0 {
			t.Errorf("good are %v after the end", got)
		}
		alice.send("tool.invoke", `{"tool":"forger","arguments":{"id":"x"}}`)
		if got := alice.rotated(); got != `{"id":"x"}` {
			t.Errorf("a tool's own event is told as %s", got)
		}
	})
}
