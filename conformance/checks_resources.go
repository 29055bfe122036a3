package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// resourceOrder registers one resource again and again without waiting: the last one
// stays, and a call behind them sees it.
func resourceOrder(_ context.Context, t *T) {
	const calls = 40
	c := t.Open()
	var ids []arcp.MessageID
	for n := range calls {
		ids = append(ids, c.Submit("registry.register", map[string]any{"resource_id": "order", "kind": "k", "display_name": fmt.Sprint(n)}))
	}
	ids = append(ids, c.Submit("registry.get", map[string]any{"resource_id": "order"}))
	for n, id := range ids {
		var r resource
		raw := c.Completed("a call in a pipeline succeeds", c.Follow(id))
		t.Want("its value is a resource", arcp.Unmarshal(raw, &r) == nil, "it is %s", raw)
		want(t, "the calls before it have happened, and none behind it", r.DisplayName, fmt.Sprint(min(n, calls-1)))
	}
}

// resource is what the tools say of one.
type resource struct {
	ID          string         `json:"resource_id"`
	SessionID   arcp.SessionID `json:"session_id"`
	Principal   string         `json:"principal"`
	Kind        string         `json:"kind"`
	DisplayName string         `json:"display_name"`
	Status      string         `json:"status"`
	Metadata    arcp.Raw       `json:"metadata"`
	CreatedAt   time.Time      `json:"created_at"`
	UpdatedAt   time.Time      `json:"updated_at"`
}

// resourceLease is what the tools say of a lease on a resource.
type resourceLease struct {
	ID         arcp.LeaseID `json:"lease_id"`
	Provider   string       `json:"provider"`
	Type       string       `json:"resource_type"`
	ExternalID string       `json:"external_id"`
	State      string       `json:"state"`
	Seconds    int64        `json:"lease_duration_seconds"`
	TouchedAt  time.Time    `json:"last_touched_at"`
	ExpiresAt  time.Time    `json:"lease_expires_at"`
	Attempts   int          `json:"cleanup_attempts"`
	LastError  string       `json:"last_cleanup_error"`
}

// registers registers a resource.
func (c *Conn) registers(id, kind string, with ...func(map[string]any)) (r resource) {
	args := map[string]any{"resource_id": id, "kind": kind}
	for _, change := range with {
		change(args)
	}
	c.call(&r, "registry.register", args)
	want(c.t, "the resource is the one that was registered", r.ID, id)
	return r
}

// resource calls a tool of resources that returns one.
func (c *Conn) resource(tool, id string, more ...func(map[string]any)) (r resource) {
	args := map[string]any{"resource_id": id}
	for _, change := range more {
		change(args)
	}
	c.call(&r, "registry."+tool, args)
	want(c.t, "the resource is the one asked for", r.ID, id)
	return r
}

// refusesResource wants a tool of resources to fail with a code.
func (c *Conn) refusesResource(why, tool string, args map[string]any, code arcp.Code) {
	f := c.Invoke("registry."+tool, args).End()
	want(c.t, why, f.Type, arcp.JobFailed)
	c.t.wantCode(why, f, code)
}

// thing mints the name of something that nobody else leases.
func (t *T) thing(name string) string { return "conformance-" + name + "-" + arcp.NewID("") }

func leaseArgs(thing string, seconds int64, with ...func(map[string]any)) map[string]any {
	args := map[string]any{"provider": "conformance", "resource_type": "sandbox", "external_id": thing, "lease_duration_seconds": seconds}
	for _, change := range with {
		change(args)
	}
	return args
}

// leases takes a lease.
func (c *Conn) leases(thing string, seconds int64, with ...func(map[string]any)) (l resourceLease) {
	c.call(&l, "registry.lease", leaseArgs(thing, seconds, with...))
	want(c.t, "the lease is on what was asked for", l.ExternalID, thing)
	want(c.t, "it is held", l.State, "active")
	return l
}

func (c *Conn) leaseCall(tool string, id arcp.LeaseID) (l resourceLease) {
	c.call(&l, "registry."+tool, map[string]any{"lease_id": id})
	want(c.t, "the lease is the one asked for", l.ID, id)
	return l
}

// allLeases lists the principal's leases, page by page, in order.
func (c *Conn) allLeases(state string, limit int) (all []resourceLease) {
	args, seen := map[string]any{"limit": limit}, map[arcp.LeaseID]bool{}
	if state != "" {
		args["state"] = state
	}
	for {
		var page struct {
			Items      []resourceLease `json:"items"`
			NextCursor string          `json:"next_cursor"`
		}
		c.call(&page, "registry.leases", args)
		c.t.Want("a page holds no more than was asked for", len(page.Items) <= limit, "it holds %d", len(page.Items))
		for _, l := range page.Items {
			c.t.Want("a lease is listed once", !seen[l.ID], "%s is listed twice", l.ID)
			c.t.Want("the state is what was asked for", state == "" || l.State == state, "%s is %s", l.ID, l.State)
			seen[l.ID] = true
		}
		all = append(all, page.Items...)
		if page.NextCursor == "" {
			return all
		}
		args["cursor"] = page.NextCursor
	}
}

// found is a lease as it is listed.
func (c *Conn) found(id arcp.LeaseID) resourceLease {
	for _, l := range c.allLeases("", 1000) {
		if l.ID == id {
			return l
		}
	}
	c.t.Failf("%s is not listed", id)
	return resourceLease{}
}

// reaps cleans up until a lease is in a state: who else does may be at it.
func (c *Conn) reaps(id arcp.LeaseID, state string) resourceLease {
	for late := c.t.late(); time.Now().Before(late); {
		c.call(new(struct{}), "registry.reap", map[string]any{})
		if l := c.found(id); l.State == state {
			return l
		}
	}
	c.t.Failf("%s is %s after a while, want it %s", id, c.found(id).State, state)
	return resourceLease{}
}

func resourceRegister(_ context.Context, t *T) {
	c := t.Open()
	r := c.registers("box", "sandbox", argument("display_name", "a box"), argument("metadata", arcp.Raw(`{"cpu":2,"x":1.50}`)))
	for _, got := range []resource{r, c.resource("get", "box")} {
		want(t, "it is the session's", got.SessionID, c.Session)
		want(t, "its status", got.Status, "active")
		want(t, "its kind", got.Kind, "sandbox")
		want(t, "its name", got.DisplayName, "a box")
		want(t, "its metadata", string(got.Metadata), `{"cpu":2,"x":1.50}`)
		t.Want("it says when it was made", !got.CreatedAt.IsZero() && !got.UpdatedAt.Before(got.CreatedAt), "%v, %v", got.CreatedAt, got.UpdatedAt)
		if t.target.Principal != "" {
			want(t, "it is the principal's", got.Principal, t.target.Principal)
		}
	}
	want(t, "metadata is empty unless it is given", string(c.registers("bare", "x").Metadata), "{}")
	want(t, "its status can be given", c.registers("done", "x", argument("status", "completed")).Status, "completed")
	want(t, "and changed", c.resource("update_status", "done", argument("status", "failed")).Status, "failed")
	want(t, "for good", c.resource("get", "done").Status, "failed")
}

func resourceUpsert(_ context.Context, t *T) {
	c := t.Open()
	first := c.registers("box", "sandbox", argument("display_name", "a box"), argument("metadata", arcp.Raw(`{"a":1}`)), argument("status", "failed"))
	second := c.registers("box", "vm")
	want(t, "the kind is replaced", second.Kind, "vm")
	want(t, "the name is replaced", second.DisplayName, "")
	want(t, "the metadata is replaced", string(second.Metadata), "{}")
	want(t, "the status is replaced", second.Status, "active")
	t.Want("when it was made stays", second.CreatedAt.Equal(first.CreatedAt), "it was %v, and is %v", first.CreatedAt, second.CreatedAt)
	t.Want("when it was changed moves", !second.UpdatedAt.Before(first.UpdatedAt), "from %v to %v", first.UpdatedAt, second.UpdatedAt)
}

func resourceRevive(_ context.Context, t *T) {
	c := t.Open()
	c.registers("box", "sandbox")
	c.resource("update_status", "box", argument("status", "released"))
	want(t, "it is there again", c.registers("box", "sandbox").Status, "active")
}

// resources lists the resources of a session, page by page, in order.
func (c *Conn) resources(limit int, more ...func(map[string]any)) (ids []string) {
	args, seen := map[string]any{"limit": limit}, map[string]bool{}
	for _, change := range more {
		change(args)
	}
	for {
		var page struct {
			Items      []resource `json:"items"`
			NextCursor string     `json:"next_cursor"`
		}
		c.call(&page, "registry.list", args)
		c.t.Want("a page holds no more than was asked for", len(page.Items) <= limit, "it holds %d", len(page.Items))
		for _, r := range page.Items {
			c.t.Want("a resource is listed once", !seen[r.ID], "%s is listed twice", r.ID)
			seen[r.ID] = true
			ids = append(ids, r.ID)
		}
		if page.NextCursor == "" {
			return ids
		}
		args["cursor"] = page.NextCursor
	}
}

func resourceList(_ context.Context, t *T) {
	c := t.Open()
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		c.registers(id, "sandbox")
	}
	c.registers("b", "sandbox")
	for _, limit := range []int{1, 2, 1000} {
		want(t, "the newest come first", strings.Join(c.resources(limit), " "), "e d c b a")
	}
}

func resourceFilter(_ context.Context, t *T) {
	c := t.Open()
	c.registers("a", "sandbox")
	c.registers("b", "sandbox", argument("status", "completed"))
	c.registers("c", "sandboxes")
	c.registers("d", "subagent", argument("status", "completed"))
	kind, status := argument("kind", "sandbox"), argument("status", "completed")
	want(t, "by kind", strings.Join(c.resources(1, kind), " "), "b a")
	want(t, "by status", strings.Join(c.resources(1, status), " "), "d b")
	want(t, "by both", strings.Join(c.resources(1, kind, status), " "), "b")
	want(t, "and there may be none", len(c.resources(1, argument("status", "released"))), 0)
}

func resourceWrong(_ context.Context, t *T) {
	c := t.Open()
	for why, change := range map[string]func(map[string]any){
		"an id is needed":          argument("resource_id", ""),
		"an id has 256 bytes":      argument("resource_id", strings.Repeat("x", 257)),
		"a kind is needed":         argument("kind", ""),
		"a kind has 64 bytes":      argument("kind", strings.Repeat("é", 33)),
		"there is no such status":  argument("status", "asleep"),
		"metadata is an object":    argument("metadata", arcp.Raw(`[1]`)),
		"metadata is not null":     argument("metadata", arcp.Raw(`null`)),
		"metadata has 16 KiB":      argument("metadata", map[string]string{"x": strings.Repeat("x", 16<<10)}),
		"other arguments are none": argument("colour", "red"),
	} {
		args := map[string]any{"resource_id": "box", "kind": "sandbox"}
		change(args)
		c.refusesResource(why, "register", args, arcp.CodeInvalidArgument)
	}
	c.registers(strings.Repeat("x", 256), strings.Repeat("k", 64))
	c.registers("box", "sandbox")
	c.refusesResource("a status is one of four", "update_status", map[string]any{"resource_id": "box", "status": "Active"}, arcp.CodeInvalidArgument)
	c.refusesResource("so is that of a list", "list", map[string]any{"status": "Active"}, arcp.CodeInvalidArgument)
	c.refusesResource("a page has something", "list", map[string]any{"limit": -1}, arcp.CodeInvalidArgument)
	c.refusesResource("a cursor comes from a list", "list", map[string]any{"cursor": "AAAA"}, arcp.CodeInvalidArgument)
	var page struct {
		NextCursor string `json:"next_cursor"`
	}
	c.call(&page, "registry.list", map[string]any{"limit": 1})
	c.refusesResource("and from this one", "list", map[string]any{"kind": "sandbox", "cursor": page.NextCursor}, arcp.CodeInvalidArgument)
	want(t, "nothing of this has changed anything", c.resource("get", "box").Status, "active")
}

func resourceUnknown(_ context.Context, t *T) {
	c := t.Open()
	c.refusesResource("there is none", "get", map[string]any{"resource_id": "nope"}, arcp.CodeNotFound)
	c.refusesResource("so it has no status", "update_status", map[string]any{"resource_id": "nope", "status": "active"}, arcp.CodeNotFound)
	c.refusesResource("nor has a session that is not there", "list", map[string]any{"session_id": "sess_nope"}, arcp.CodeNotFound)
}

// removed is what registry.deregister says.
func (c *Conn) removed(id string) bool {
	var result struct {
		Removed bool `json:"removed"`
	}
	c.call(&result, "registry.deregister", map[string]any{"resource_id": id})
	return result.Removed
}

func resourceDeregister(_ context.Context, t *T) {
	c := t.Open()
	c.registers("box", "sandbox")
	want(t, "there was one", c.removed("box"), true)
	want(t, "and is no more", c.removed("box"), false)
	c.refusesResource("so it is not found", "get", map[string]any{"resource_id": "box"}, arcp.CodeNotFound)
}

func resourceOfASession(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	c.registers("box", "sandbox")
	whose := argument("session_id", c.Session)
	want(t, "another session does not have it", len(other.resources(10)), 0)
	want(t, "but may look", strings.Join(other.resources(10, whose), " "), "box")
	want(t, "at each", other.resource("get", "box", whose).SessionID, c.Session)
	other.registers("box", "vm")
	want(t, "an id is a session's own", c.resource("get", "box").Kind, "sandbox")
}

func resourceForeign(_ context.Context, t *T) {
	c, stranger := t.Open(), t.Open(as(t.target.OtherToken))
	c.registers("box", "sandbox")
	for _, name := range []string{"get", "list"} {
		args := map[string]any{"session_id": c.Session}
		if name == "get" {
			args["resource_id"] = "box"
		}
		stranger.refusesResource("what one may not see is not there", name, args, arcp.CodeNotFound)
	}
	want(t, "nor can it be removed", stranger.removed("box"), false)
	want(t, "it is untouched", c.resource("get", "box").Status, "active")
}

func leaseTaken(_ context.Context, t *T) {
	c := t.Open()
	thing := t.thing("taken")
	l := c.leases(thing, 3600, argument("display_name", "my box"), argument("metadata", arcp.Raw(`{"a":1}`)))
	want(t, "it lasts as long as was asked", l.ExpiresAt.Sub(l.TouchedAt), time.Hour)
	want(t, "nothing was cleaned up", l.Attempts, 0)
	r := c.resource("get", string(l.ID))
	want(t, "it is a resource of the session", r.SessionID, c.Session)
	want(t, "of its type", r.Kind, "sandbox")
	want(t, "with its name", r.DisplayName, "my box")
	want(t, "that is there", r.Status, "active")
	bare := c.leases(t.thing("bare"), 3600)
	want(t, "without a name it has that of the thing", c.resource("get", string(bare.ID)).DisplayName, bare.ExternalID)
	c.leaseCall("release", l.ID)
	c.leaseCall("release", bare.ID)
}

func leaseRefreshed(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	thing := t.thing("refreshed")
	l := c.leases(thing, 60)
	again := other.leases(thing, 7200)
	want(t, "the lease is the same", again.ID, l.ID)
	want(t, "and lasts as long as is asked now", again.ExpiresAt.Sub(again.TouchedAt), 2*time.Hour)
	want(t, "it is shown where it was asked for last", other.resource("get", string(l.ID)).Status, "active")
	want(t, "and not where it was before", c.resource("get", string(l.ID)).Status, "released")
	typ := c.leases(thing, 60, argument("resource_type", "vm"))
	t.Want("another type is another thing", typ.ID != l.ID, "it is the same lease")
	c.leaseCall("release", l.ID)
	c.leaseCall("release", typ.ID)
	anew := c.leases(thing, 60)
	t.Want("after a release the lease is another", anew.ID != l.ID, "it is %s again", l.ID)
	c.leaseCall("release", anew.ID)
}

func leaseTouched(_ context.Context, t *T) {
	c := t.Open()
	l := c.leases(t.thing("touched"), 3600)
	touched := c.leaseCall("touch", l.ID)
	t.Want("it lasts from now on", touched.TouchedAt.After(l.TouchedAt), "touched at %v and %v", l.TouchedAt, touched.TouchedAt)
	want(t, "for its whole duration", touched.ExpiresAt.Sub(touched.TouchedAt), time.Hour)
	c.leaseCall("release", l.ID)
	c.refusesResource("what is released cannot be touched", "touch", map[string]any{"lease_id": l.ID}, arcp.CodeFailedPrecondition)
	c.refusesResource("nor what never was", "touch", map[string]any{"lease_id": "lease_00000000000000000000000000"}, arcp.CodeNotFound)
}

func leaseReleased(_ context.Context, t *T) {
	c := t.Open()
	l := c.leases(t.thing("released"), 3600)
	for range 2 {
		want(t, "it is released", c.leaseCall("release", l.ID).State, "released")
	}
	want(t, "its resource is, too", c.resource("get", string(l.ID)).Status, "released")
}

func leaseWrong(_ context.Context, t *T) {
	c := t.Open()
	for why, change := range map[string]func(map[string]any){
		"a provider is needed":         argument("provider", ""),
		"a type is needed":             argument("resource_type", ""),
		"a type has 64 bytes":          argument("resource_type", strings.Repeat("t", 65)),
		"a thing is needed":            argument("external_id", ""),
		"nothing lasts less than 0 s":  argument("lease_duration_seconds", -1),
		"nothing lasts for ever":       argument("lease_duration_seconds", 2592001),
		"metadata is an object":        argument("metadata", "x"),
		"a clean-up tool is there":     argument("cleanup_tool", "no.such.tool"),
		"and none that is for clients": argument("cleanup_tool", "registry.list"),
	} {
		c.refusesResource(why, "lease", leaseArgs(t.thing("wrong"), 60, change), arcp.CodeInvalidArgument)
	}
	c.refusesResource("there is no such state", "leases", map[string]any{"state": "over"}, arcp.CodeInvalidArgument)
	c.refusesResource("a cursor comes from a list", "leases", map[string]any{"cursor": "AAAA"}, arcp.CodeInvalidArgument)
}

func leaseForeign(_ context.Context, t *T) {
	c, stranger := t.Open(), t.Open(as(t.target.OtherToken))
	l := c.leases(t.thing("foreign"), 3600)
	for _, name := range []string{"touch", "release"} {
		stranger.refusesResource("what one may not see is not there", name, map[string]any{"lease_id": l.ID}, arcp.CodeNotFound)
	}
	for _, other := range stranger.allLeases("", 1000) {
		t.Want("nobody sees another principal's leases", other.ID != l.ID, "%s is listed", l.ID)
	}
	stranger.refusesResource("a thing has one lease", "lease", leaseArgs(l.ExternalID, 60), arcp.CodeAlreadyExists)
	want(t, "it is untouched", c.found(l.ID).State, "active")
	c.leaseCall("release", l.ID)
}

func leaseList(_ context.Context, t *T) {
	c := t.Open()
	var mine []arcp.LeaseID
	for i := range 3 {
		mine = append([]arcp.LeaseID{c.leases(t.thing(fmt.Sprint("list", i)), 3600).ID}, mine...)
	}
	c.leaseCall("release", mine[1])
	for _, limit := range []int{2, 1000} {
		var got []arcp.LeaseID
		for _, l := range c.allLeases("", limit) {
			if l.ID == mine[0] || l.ID == mine[1] || l.ID == mine[2] {
				got = append(got, l.ID)
			}
		}
		want(t, "the newest come first", fmt.Sprint(got), fmt.Sprint(mine))
	}
	states := map[arcp.LeaseID]string{}
	for _, state := range []string{"active", "cleaning", "released", "cleanup_failed"} {
		for _, l := range c.allLeases(state, 1000) {
			states[l.ID] += l.State
		}
	}
	want(t, "a lease is listed under its state only", states[mine[0]]+" "+states[mine[1]], "active released")
	c.leaseCall("release", mine[0])
	c.leaseCall("release", mine[2])
}

func leaseReaped(_ context.Context, t *T) {
	c := t.Open()
	l := c.leases(t.thing("reaped"), 0, argument("cleanup_tool", "demo.echo"))
	gone := c.reaps(l.ID, "released")
	want(t, "it took one attempt", gone.Attempts, 1)
	want(t, "its resource is released", c.resource("get", string(l.ID)).Status, "released")
}

func leaseReapFails(_ context.Context, t *T) {
	c := t.Open()
	l := c.leases(t.thing("unclean"), 0)
	failed := c.reaps(l.ID, "cleanup_failed")
	t.Want("it says why", failed.LastError != "", "last_cleanup_error is empty")
	want(t, "its resource has failed", c.resource("get", string(l.ID)).Status, "failed")
	t.Want("it is tried again later", failed.ExpiresAt.After(time.Now().Add(5*time.Second)), "at %v", failed.ExpiresAt)
	c.refusesResource("it is over", "touch", map[string]any{"lease_id": l.ID}, arcp.CodeFailedPrecondition)
	again := c.leases(l.ExternalID, 3600)
	want(t, "who still has it takes it again", again.ID, l.ID)
	want(t, "as if nothing had been", fmt.Sprint(again.Attempts, again.LastError), "0")
	want(t, "its owner lets it go", c.leaseCall("release", l.ID).State, "released")
}

func leaseDryRun(_ context.Context, t *T) {
	c := t.Open()
	l := c.leases(t.thing("dry"), 3600)
	var dry struct {
		Claimed int             `json:"claimed"`
		DryRun  bool            `json:"dry_run"`
		Due     []resourceLease `json:"due"`
	}
	c.call(&dry, "registry.reap", map[string]any{"dry_run": true})
	want(t, "it says that it was dry", dry.DryRun, true)
	want(t, "it claims nothing", dry.Claimed, 0)
	for _, d := range dry.Due {
		t.Want("what is not over is not listed", d.ID != l.ID, "it is")
	}
	want(t, "and changes nothing", c.found(l.ID).State, "active")
	c.leaseCall("release", l.ID)
}

func leaseHeld(_ context.Context, t *T) {
	c := t.Open()
	l, over := c.leases(t.thing("held"), 3600, argument("cleanup_tool", "demo.echo")), c.leases(t.thing("over"), 0, argument("cleanup_tool", "demo.echo"))
	c.reaps(over.ID, "released")
	want(t, "what is not over is left alone", c.found(l.ID).State, "active")
	c.leaseCall("release", l.ID)
}

func leaseNamed(_ context.Context, t *T) {
	c := t.Open()
	named := t.thing("named")
	c.call(new(approval), "approval.request", map[string]any{"action": "remove it", "details": map[string]any{"which": []string{named}}, "expires_in_ms": askMS})
	l, over := c.leases(named, 0, argument("cleanup_tool", "demo.echo")), c.leases(t.thing("over"), 0, argument("cleanup_tool", "demo.echo"))
	c.reaps(over.ID, "released")
	got := c.found(l.ID)
	want(t, "what somebody is asked about is left alone", got.State, "active")
	t.Want("and lasts for longer", got.ExpiresAt.After(l.ExpiresAt), "until %v", got.ExpiresAt)
	c.leaseCall("release", l.ID)
}

func leaseReapForeign(_ context.Context, t *T) {
	c, stranger := t.Open(), t.Open(as(t.target.OtherToken))
	l := c.leases(t.thing("reap-foreign"), 0, argument("cleanup_tool", "demo.echo"))
	var dry struct {
		Due []resourceLease `json:"due"`
	}
	stranger.call(&dry, "registry.reap", map[string]any{"dry_run": true})
	for _, d := range dry.Due {
		t.Want("nobody is told of another's", d.ID != l.ID, "%s is listed", l.ID)
	}
	c.reaps(l.ID, "released")
}

func leaseLocal(_ context.Context, t *T) {
	c := t.Open()
	for _, typ := range []string{"process", "directory"} {
		c.refusesResource("only tools do", "lease", leaseArgs("1", 0, argument("provider", "local"), argument("resource_type", typ)), arcp.CodePermissionDenied)
	}
}

func leaseDemo(_ context.Context, t *T) {
	c := t.Open()
	var kept, left resourceLease
	c.call(&kept, "demo.resource", map[string]any{"kind": "sandbox", "lease_seconds": 3600})
	c.call(&left, "demo.resource", map[string]any{"kind": "directory", "lease_seconds": 0})
	want(t, "it is leased", c.found(kept.ID).State, "active")
	want(t, "and registered", c.resource("get", string(kept.ID)).Kind, "sandbox")
	c.reaps(left.ID, "released")
	want(t, "what is not over stays", c.found(kept.ID).State, "active")
	c.leaseCall("release", kept.ID)
}

func resourceRestart(ctx context.Context, t *T) {
	c := t.Open()
	c.registers("box", "sandbox", argument("status", "completed"))
	kept, over := c.leases(t.thing("kept"), 3600), c.leases(t.thing("over"), 1, argument("cleanup_tool", "demo.echo"))
	t.Restart(ctx)
	c = c.Cut()
	want(t, "the session has its resource", c.resource("get", "box").Status, "completed")
	want(t, "a lease is held", c.found(kept.ID).State, "active")
	c.reaps(over.ID, "released")
	c.leaseCall("release", kept.ID)
}
