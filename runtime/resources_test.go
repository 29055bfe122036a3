package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool"
)

// cloud holds the leased things of the tests, and their clean-up handler.
type cloud struct {
	mu    sync.Mutex
	gone  []string // external ids, and the attempts
	fails bool
	hangs chan struct{} // a clean-up waits for it, whatever it is told
	tool  []string      // arguments of the clean-up tool
}

func (c *cloud) Clean(_ context.Context, l runtime.LeasedResource, attempt int) error {
	c.mu.Lock()
	hangs := c.hangs
	c.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = append(c.gone, fmt.Sprintf("%s#%d", l.ExternalID, attempt))
	if c.fails {
		return errors.New("the cloud is closed")
	}
	return nil
}

func (c *cloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cloud) cleaned() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.gone, " ")
}

// called are the arguments with which the clean-up tool was called, in order.
func (c *cloud) called() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(c.tool)), " ")
}

// withCloud is a configuration with people and a cloud, of which clients may lease
// things of the provider "cloud". Of "private" only tools may.
func withCloud(t *testing.T, c *cloud) func(*runtime.Config) {
	t.Helper()
	base := withPeople(t)
	return func(cfg *runtime.Config) {
		base(cfg)
		cfg.Cleanups = []runtime.Cleanup{{Provider: "cloud", Cleaner: c, Clients: true}, {Provider: "private", Cleaner: c}}
		cfg.ResourceDir = t.TempDir()
		remove := tool.MustNew(tool.Capability{Name: "vm.remove"}, func(_ context.Context, job tool.Job, in map[string]any) (string, error) {
			err := job.Authority().Allow("fs.read", "/data/x")
			c.set(func() {
				c.tool = append(c.tool, fmt.Sprintf("%v %v %v %v %v", in["provider"], in["resource_type"], in["external_id"], in["attempt"], err == nil))
			})
			return "", nil
		})
		hang := tool.MustNew(tool.Capability{Name: "vm.hang", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, _ tool.Job, _ map[string]any) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		hold := tool.MustNew(tool.Capability{Name: "hold", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, in struct {
			Minutes int `json:"minutes"`
		}) (string, error) {
			l, err := job.Resources().Lease(ctx, tool.ResourceAsk{Provider: "private", Type: "vm", ExternalID: "held", For: 90 * time.Second})
			if err != nil {
				return "", err
			}
			time.Sleep(time.Duration(in.Minutes) * time.Minute)
			return string(l.ID()), nil
		})
		for _, made := range []*tool.Tool{remove, hang, hold} {
			if err := cfg.Tools.Register(made); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// refused runs a tool that is to fail with a code.
func (p *peer) refused(why, name, args string, code arcp.Code) *arcp.Error {
	p.Helper()
	v, err := p.run(name, args)
	if err == nil || err.Code != code {
		p.Fatalf("%s: %s %s returned %s, %v; want %s", why, name, args, v, err, code)
	}
	return err
}

func (p *peer) leases(args string) (states []string) {
	p.Helper()
	for _, item := range p.must("registry.leases", args)["items"].([]any) {
		l := item.(map[string]any)
		states = append(states, fmt.Sprint(l["external_id"], ":", l["state"]))
	}
	return states
}

func vm(id string, seconds int, more string) string {
	return fmt.Sprintf(`{"provider":"cloud","resource_type":"vm","external_id":%q,"lease_duration_seconds":%d%s}`, id, seconds, more)
}

func TestRegistryOfASession(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		p, other, bob, root := b.dial("alice"), b.dial("alice"), b.dial("bob"), b.dial("root")
		for i := range 3 {
			p.must("registry.register", fmt.Sprintf(`{"resource_id":"r%d","kind":"sandbox"}`, i))
			time.Sleep(time.Second)
		}
		p.must("registry.register", `{"resource_id":"r1","kind":"subagent","display_name":"one","metadata":{"a":1}}`)
		e := p.must("registry.update_status", `{"resource_id":"r2","status":"completed"}`)
		if e["status"] != "completed" || e["kind"] != "sandbox" || e["principal"] != "alice" || e["session_id"] != string(p.session) {
			t.Errorf("the entry is %v", e)
		}
		p.refused("no such status", "registry.update_status", `{"resource_id":"r2","status":"asleep"}`, arcp.CodeInvalidArgument)
		p.refused("no such filter", "registry.list", `{"status":"asleep"}`, arcp.CodeInvalidArgument)
		p.refused("no such resource", "registry.update_status", `{"resource_id":"r9","status":"active"}`, arcp.CodeNotFound)
		p.refused("metadata is an object", "registry.register", `{"resource_id":"x","kind":"k","metadata":[]}`, arcp.CodeInvalidArgument)

		ids := func(p *peer, args string) (ids []string) {
			cursor := ""
			for {
				page := p.must("registry.list", strings.Replace(args, "}", fmt.Sprintf(`"limit":1,"cursor":%q}`, cursor), 1))
				for _, item := range page["items"].([]any) {
					ids = append(ids, item.(map[string]any)["resource_id"].(string))
				}
				if cursor, _ = page["next_cursor"].(string); cursor == "" {
					return ids
				}
			}
		}
		query := fmt.Sprintf(`{"session_id":%q,}`, p.session)
		for _, c := range []struct {
			why  string
			of   *peer
			args string
			want string
		}{
			{"the newest first", p, `{}`, "r2 r1 r0"},
			{"by kind", p, `{"kind":"sandbox",}`, "r2 r0"},
			{"by kind and status", p, `{"kind":"sandbox","status":"completed",}`, "r2"},
			{"another session has its own", other, `{}`, ""},
			{"and may look", other, query, "r2 r1 r0"},
			{"so may an admin", root, query, "r2 r1 r0"},
		} {
			if got := strings.Join(ids(c.of, c.args), " "); got != c.want {
				t.Errorf("%s: %s, want %s", c.why, got, c.want)
			}
		}
		bob.refused("a stranger may not", "registry.list", fmt.Sprintf(`{"session_id":%q}`, p.session), arcp.CodeNotFound)
		bob.refused("nor get one", "registry.get", fmt.Sprintf(`{"session_id":%q,"resource_id":"r1"}`, p.session), arcp.CodeNotFound)
		bob.refused("nor by its name alone", "registry.get", `{"resource_id":"r1"}`, arcp.CodeNotFound)
		page := p.must("registry.list", `{"limit":1}`)
		for _, bad := range []string{fmt.Sprintf(`{"cursor":%q,"status":"active"}`, page["next_cursor"]), `{"cursor":"AAAA"}`} {
			p.refused("a cursor of another list", "registry.list", bad, arcp.CodeInvalidArgument)
		}
		other.refused("or another session", "registry.list", fmt.Sprintf(`{"cursor":%q}`, page["next_cursor"]), arcp.CodeInvalidArgument)
		if n := b.sum("arcp_resources", ""); n != 3 {
			t.Errorf("%v resources are counted, want 3", n)
		}
		if got := other.must("registry.deregister", `{"resource_id":"r1"}`); got["removed"] != false {
			t.Errorf("another session deregisters it: %v", got)
		}
		if got := p.must("registry.deregister", `{"resource_id":"r1"}`); got["removed"] != true {
			t.Errorf("deregister says %v", got)
		}
		b.shutdown(0)
		b.boot(withPeople(t))
		if got := strings.Join(ids(b.dial("alice"), query), " "); got != "r2 r0" {
			t.Errorf("after a restart there are %s", got)
		}
	})
}

// A session that ends for good takes its registry along; leases outlive it.
func TestResourcesOfASessionThatEnds(t *testing.T) {
	c := &cloud{}
	inBubble(t, withCloud(t, c), func(b *fixture) {
		p, other := b.dial("alice"), b.dial("alice")
		p.must("registry.register", `{"resource_id":"r","kind":"sandbox"}`)
		p.must("registry.lease", vm("kept", 3600, ""))
		other.must("sessions.evict", fmt.Sprintf(`{"session_id":%q,"forget":true}`, p.session))
		time.Sleep(2 * time.Minute)
		if n := b.sum("arcp_resources", ""); n != 0 {
			t.Errorf("%v resources are left", n)
		}
		if got := other.leases(`{}`); !slices.Equal(got, []string{"kept:active"}) {
			t.Errorf("leases %v, want it to be held", got)
		}
		time.Sleep(time.Hour)
		if got := other.leases(`{}`); !slices.Equal(got, []string{"kept:released"}) || c.cleaned() != "kept#1" {
			t.Errorf("leases %v, cleaned up %s; want it to be gone", got, c.cleaned())
		}
		time.Sleep(runtime.DefaultRetention + time.Hour)
		if got := b.dial("alice").leases(`{}`); len(got) != 0 {
			t.Errorf("leases %v after the retention", got)
		}
	})
}

func TestLeasesAreTheirOwners(t *testing.T) {
	c := &cloud{}
	inBubble(t, withCloud(t, c), func(b *fixture) {
		alice, bob, root := b.dial("alice"), b.dial("bob"), b.dial("root")
		l := alice.must("registry.lease", vm("one", 60, `,"display_name":"my vm","metadata":{"region":"x"}`))
		again := alice.must("registry.lease", vm("one", 120, ""))
		if again["lease_id"] != l["lease_id"] || again["state"] != "active" || again["cleanup_attempts"] != 0.0 {
			t.Errorf("the same thing again is %v, want the same lease", again)
		}
		if e := alice.must("registry.get", fmt.Sprintf(`{"resource_id":%q}`, l["lease_id"])); e["kind"] != "vm" || e["display_name"] != "one" {
			t.Errorf("it is registered as %v", e)
		}
		alice.refused("a name of too many bytes", "registry.lease", vm("two", 60, `,"display_name":"`+strings.Repeat("é", 129)+`"`), arcp.CodeInvalidArgument)
		bob.refused("somebody has it", "registry.lease", vm("one", 60, ""), arcp.CodeAlreadyExists)
		id := fmt.Sprintf(`{"lease_id":%q}`, l["lease_id"])
		for _, name := range []string{"registry.touch", "registry.release"} {
			bob.refused("a foreign lease is not there", name, id, arcp.CodeNotFound)
		}
		if got := bob.leases(`{}`); len(got) != 0 {
			t.Errorf("bob sees %v", got)
		}
		bob.must("registry.lease", vm("two", 0, ""))
		if got := root.leases(`{}`); len(got) != 2 {
			t.Errorf("an admin sees %v, want both", got)
		}
		if got := alice.must("registry.reap", `{}`); got["claimed"] != 0.0 || c.cleaned() != "" {
			t.Errorf("alice reaps %v: it is bob's", got)
		}
		dry := root.must("registry.reap", `{"dry_run":true}`)
		if due := dry["due"].([]any); len(due) != 1 || due[0].(map[string]any)["external_id"] != "two" || c.cleaned() != "" {
			t.Errorf("a dry run says %v and has cleaned up %q", dry, c.cleaned())
		}
		if got := root.must("registry.reap", `{}`); got["claimed"] != 1.0 || got["released"] != 1.0 || c.cleaned() != "two#1" {
			t.Errorf("an admin reaps %v, %s", got, c.cleaned())
		}
		if got := root.must("registry.release", id); got["state"] != "released" {
			t.Errorf("an admin releases %v", got)
		}
		alice.refused("then there is nothing to touch", "registry.touch", id, arcp.CodeFailedPrecondition)
		if got := bob.leases(`{"state":"released"}`); !slices.Equal(got, []string{"two:released"}) {
			t.Errorf("by state: %v", got)
		}
		bob.refused("a state that is none", "registry.leases", `{"state":"over"}`, arcp.CodeInvalidArgument)
		alice.refused("only tools lease what a handler is not open for", "registry.lease",
			`{"provider":"private","resource_type":"vm","external_id":"x","lease_duration_seconds":0}`, arcp.CodePermissionDenied)
		alice.refused("least of all processes", "registry.lease",
			`{"provider":"local","resource_type":"process","external_id":"1","lease_duration_seconds":0}`, arcp.CodePermissionDenied)
	})
}

func TestLeasePages(t *testing.T) {
	inBubble(t, withCloud(t, &cloud{}), func(b *fixture) {
		p := b.dial("alice")
		for i := range 5 {
			p.must("registry.lease", vm(fmt.Sprint(i), 3600, ""))
		}
		var got []string
		cursor := ""
		for {
			page := p.must("registry.leases", fmt.Sprintf(`{"limit":2,"cursor":%q}`, cursor))
			for _, item := range page["items"].([]any) {
				got = append(got, item.(map[string]any)["external_id"].(string))
			}
			if cursor, _ = page["next_cursor"].(string); cursor == "" {
				break
			}
			b.dial("bob").refused("another's cursor", "registry.leases", fmt.Sprintf(`{"cursor":%q}`, cursor), arcp.CodeInvalidArgument)
		}
		if strings.Join(got, "") != "43210" {
			t.Errorf("the pages hold %v, want each once, the newest first", got)
		}
	})
}

// A thing that a live job has leased, or that an argument names, is not cleaned up.
func TestReferencedResourceIsNotCleanedUp(t *testing.T) {
	c := &cloud{}
	inBubble(t, withCloud(t, c), func(b *fixture) {
		p := b.dial("alice")
		p.submit("hold", `{"minutes":60}`)
		l := p.must("registry.lease", vm("by its id", 10, ""))
		p.must("registry.lease", vm("by \"name\" é", 10, ""))
		p.must("registry.lease", vm("in a question", 10, ""))
		p.must("registry.lease", vm("in part", 10, ""))
		p.submit("demo.sleep", `{"ms":1800000}`) // names nothing
		p.submit("danger", fmt.Sprintf(`{"deep":[{"id":%q}],"quoted":"by \u0022name\" \u00e9","only":"in part of"}`, l["lease_id"]))
		p.must("approval.request", `{"action":"remove","details":{"vm":["in a question"]},"expires_in_ms":1800000}`)
		b.dial("bob").must("approval.request", `{"action":"remove","details":"in part"}`) // is not alice's
		time.Sleep(20 * time.Minute)
		if got := c.cleaned(); got != "in part#1" {
			t.Fatalf("cleaned up %q, want only what nobody of hers names", got)
		}
		time.Sleep(20 * time.Minute) // the question has expired
		if got := c.cleaned(); got != "in part#1 in a question#1" {
			t.Fatalf("cleaned up %q, want what was in the question to follow", got)
		}
		time.Sleep(30 * time.Minute) // the job has ended
		if got := c.cleaned(); got != "in part#1 in a question#1 held#1" {
			t.Fatalf("cleaned up %q, want what the job held to follow", got)
		}
	})
}

func TestCleanUpThatFails(t *testing.T) {
	c := &cloud{fails: true}
	inBubble(t, withCloud(t, c), func(b *fixture) {
		p := b.dial("alice")
		l := p.must("registry.lease", vm("x", 0, ""))
		time.Sleep(10 * time.Second)
		items := p.must("registry.leases", `{"state":"cleanup_failed"}`)["items"].([]any)
		if len(items) != 1 || items[0].(map[string]any)["last_cleanup_error"] != "the cloud is closed" {
			t.Fatalf("failed are %v", items)
		}
		if e := p.must("registry.get", fmt.Sprintf(`{"resource_id":%q}`, l["lease_id"])); e["status"] != "failed" {
			t.Errorf("the registry shows %v", e)
		}
		c.set(func() { c.fails = false })
		time.Sleep(time.Minute)
		if got := c.cleaned(); got != "x#1 x#2" {
			t.Errorf("cleaned up %s", got)
		}
		for result, want := range map[string]float64{"claimed": 2, "failed": 1, "released": 1} {
			if n := b.sum("arcp_resource_cleanup_total", `"`+result+`"`); n != want {
				t.Errorf("%v %s, want %v", n, result, want)
			}
		}
		if n := b.sum("arcp_resource_leases", ""); n != 0 {
			t.Errorf("%v leases are counted", n)
		}
	})
}

// A clean-up that hangs holds up neither the others, nor the end.
func TestCleanUpThatHangs(t *testing.T) {
	c := &cloud{}
	inBubble(t, withCloud(t, c), func(b *fixture) {
		hangs := make(chan struct{})
		defer close(hangs)
		c.set(func() { c.hangs = hangs })
		p := b.dial("alice")
		p.must("registry.lease", vm("hangs", 0, ""))
		time.Sleep(30*time.Second + 500*time.Millisecond) // it is under way, and nothing is due
		c.set(func() { c.hangs = nil })
		p.must("registry.lease", vm("later", 0, ""))
		if got := p.must("registry.reap", `{}`); got["released"] != 1.0 || c.cleaned() != "later#1" {
			t.Errorf("meanwhile %v, %s", got, c.cleaned())
		}
		began := time.Now()
		b.shutdown(0)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the shutdown took %v", took)
		}
	})
}

func TestCleanUpTool(t *testing.T) {
	c := &cloud{}
	inBubble(t, withCloud(t, c), func(b *fixture) {
		p, limited := b.dial("alice"), b.dial("limited")
		other := func(id, more string) string {
			return fmt.Sprintf(`{"provider":"elsewhere","resource_type":"vm","external_id":%q,"lease_duration_seconds":0%s}`, id, more)
		}
		p.must("registry.lease", other("a", `,"cleanup_tool":"vm.remove"`))
		limited.must("registry.lease", other("b", `,"cleanup_tool":"vm.remove"`))
		time.Sleep(10 * time.Second)
		if got := c.called(); got != "elsewhere vm a 1 false elsewhere vm b 1 true" {
			t.Errorf("called with %q; want only who may read to be able to", got)
		}
		p.refused("it must be there", "registry.lease", other("c", `,"cleanup_tool":"vm.nope"`), arcp.CodeInvalidArgument)
		p.refused("and no tool for clients", "registry.lease", other("c", `,"cleanup_tool":"sessions.evict"`), arcp.CodeInvalidArgument)
		p.refused("and one that she could call", "registry.lease", other("c", `,"cleanup_tool":"trusting"`), arcp.CodePermissionDenied)

		p.must("registry.lease", other("fails", `,"cleanup_tool":"demo.fail"`)) // its arguments are others
		p.must("registry.lease", other("hangs", `,"cleanup_tool":"vm.hang"`))
		p.must("registry.lease", other("asks", `,"cleanup_tool":"danger"`))
		time.Sleep(75 * time.Second)
		items := p.must("registry.leases", `{"state":"cleanup_failed"}`)["items"].([]any)
		var errs []string
		for _, item := range items {
			errs = append(errs, item.(map[string]any)["last_cleanup_error"].(string))
		}
		if len(errs) != 3 || !strings.Contains(errs[2], "INVALID_ARGUMENT") || !strings.Contains(errs[1], "deadline") || !strings.Contains(errs[0], "deadline") {
			t.Errorf("they fail with %q", errs)
		}
		synctest.Wait()
		for _, name := range []string{"vm.hang", "danger"} {
			p.send("session.list_jobs", fmt.Sprintf(`{"filter":{"agent":%q,"status":["running","blocked"]}}`, name))
			jobs, err := arcp.DecodePayload[arcp.SessionJobsPayload](new(p.until("session.jobs")))
			if err != nil || len(jobs.Jobs) > 1 {
				t.Errorf("%d jobs of %s go on, %v", len(jobs.Jobs), name, err)
			}
		}
	})
}

// The holder of a lease does not approve the clean-up tool: the gate belongs to no session,
// and the clean-up runs in the holder's name.
func TestLesseeApprovesNoCleanUp(t *testing.T) {
	inBubble(t, withCloud(t, &cloud{}), func(b *fixture) {
		lessee, other := b.dial("bob"), b.dial("bob")
		lessee.must("registry.lease", `{"provider":"elsewhere","resource_type":"vm","external_id":"x","lease_duration_seconds":0,"cleanup_tool":"danger"}`)
		var gate map[string]any
		for gate == nil {
			time.Sleep(time.Second)
			if items := other.must("approval.list", `{"status":"pending"}`)["items"].([]any); len(items) > 0 {
				gate = items[0].(map[string]any)
			}
		}
		approve := fmt.Sprintf(`{"approval_id":%q,"approved":true}`, gate["approval_id"])
		lessee.refused("it asked for that", "approval.resolve", approve, arcp.CodePermissionDenied)
		if got := other.must("approval.resolve", approve)["status"]; got != "resolved" {
			t.Errorf("another session's approval is %v", got)
		}
	})
}

// A lease that was taken outlives the runtime.
func TestLeasesOverARestart(t *testing.T) {
	c := &cloud{}
	inBubble(t, withCloud(t, c), func(b *fixture) {
		p := b.dial("alice")
		p.must("registry.lease", vm("x", 3600, ""))
		p.must("registry.lease", vm("y", 0, `,"cleanup_tool":"vm.remove"`))
		b.shutdown(0)
		time.Sleep(2 * time.Hour)
		b.boot(withCloud(t, c))
		time.Sleep(10 * time.Second)
		if got := c.cleaned(); got != "y#1 x#1" && got != "x#1 y#1" {
			t.Errorf("cleaned up %q", got)
		}
	})
}

// Host subscriptions have the events of resources.
func TestResourcesAreEventsOfTheHost(t *testing.T) {
	c := &cloud{fails: true}
	inBubble(t, withCloud(t, c), func(b *fixture) {
		p, bob := b.dial("alice"), b.dial("bob")
		p.must("registry.register", `{"resource_id":"box","kind":"sandbox"}`)
		p.must("registry.update_status", `{"resource_id":"box","status":"completed"}`)
		p.must("registry.deregister", `{"resource_id":"box"}`)
		l := p.must("registry.lease", vm("x", 0, ""))
		p.must("registry.reap", `{}`)
		p.must("registry.release", fmt.Sprintf(`{"lease_id":%q}`, l["lease_id"]))
		var got []string
		for _, item := range p.must("host.events", `{}`)["items"].([]any) {
			e := item.(map[string]any)
			if kind := e["kind"].(string); strings.HasPrefix(kind, "resource.") {
				got = append([]string{strings.TrimPrefix(kind, "resource.") + " " + e["message"].(string)}, got...)
			}
		}
		want := []string{`registered sandbox "box" is active`, `updated sandbox "box" is completed`, `deregistered sandbox "box" is completed`,
			`registered vm "x" is active`, `updated vm "x" is failed`, `cleanup_failed clean-up of vm "x" has failed`, `released vm "x" is released`}
		if !slices.Equal(got, want) {
			t.Errorf("events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if n := len(bob.must("host.events", `{}`)["items"].([]any)); n != 0 {
			t.Errorf("bob sees %d events", n)
		}
	})
}
