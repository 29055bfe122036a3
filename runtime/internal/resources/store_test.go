package resources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

func TestRegisterIsAnUpsert(t *testing.T) {
	r := newFixture(t)
	first := r.register(Entry{ResourceID: "box", Kind: "sandbox", DisplayName: "a box", Metadata: arcp.Raw(`{"cpu":2}`)})
	r.want("the default", first.Status == Active && first.CreatedAt.Equal(r.now), "%+v", first)
	r.after(time.Minute)
	second := r.register(Entry{ResourceID: "box", Kind: "vm", Status: Failed})
	r.want("all is replaced", second.Kind == "vm" && second.DisplayName == "" && string(second.Metadata) == "{}" && second.Status == Failed, "%+v", second)
	r.want("but for when it was made", second.CreatedAt.Equal(first.CreatedAt) && second.UpdatedAt.Equal(r.now), "%+v", second)

	_, err := r.registry.UpdateStatus(r.Context(), r.now, "sess_a", "box", Released)
	r.no(err)
	revived := r.register(Entry{ResourceID: "box", Kind: "vm"})
	r.want("what is released is revived", revived.Status == Active && revived.CreatedAt.Equal(first.CreatedAt), "%+v", revived)

	removed, err := r.registry.Deregister(r.Context(), "sess_a", "box")
	r.want("there was one", removed && err == nil, "%v, %v", removed, err)
	removed, err = r.registry.Deregister(r.Context(), "sess_a", "box")
	r.want("and is no more", !removed && err == nil, "%v, %v", removed, err)
	_, err = r.registry.UpdateStatus(r.Context(), r.now, "sess_a", "box", Active)
	r.wantCode("so it has no status", err, arcp.CodeNotFound)
	_, err = r.registry.Entry(r.Context(), "sess_a", "box")
	r.wantCode("and cannot be read", err, arcp.CodeNotFound)
	want := []string{"registered box", "updated box", "released box", "updated box", "deregistered box"}
	r.want("all of it is told", slices.Equal(r.events, want), "%v, want %v", r.events, want)
	for class, n := range r.entries {
		r.want("nothing is counted any more", n == 0, "%s: %d", class, n)
	}
}

func TestInvalidEntries(t *testing.T) {
	r := newFixture(t)
	long := strings.Repeat("x", 16<<10)
	for why, e := range map[string]Entry{
		"no id":              {Kind: "k"},
		"a long id":          {ResourceID: strings.Repeat("i", 257), Kind: "k"},
		"no kind":            {ResourceID: "a"},
		"a long kind":        {ResourceID: "a", Kind: strings.Repeat("k", 65)},
		"bytes, not letters": {ResourceID: "a", Kind: strings.Repeat("é", 33)},
		"a status":           {ResourceID: "a", Kind: "k", Status: "paused"},
		"an array":           {ResourceID: "a", Kind: "k", Metadata: arcp.Raw(`[]`)},
		"a null":             {ResourceID: "a", Kind: "k", Metadata: arcp.Raw(`null`)},
		"large metadata":     {ResourceID: "a", Kind: "k", Metadata: arcp.Raw(`{"a":"` + long + `"}`)},
		"not UTF-8":          {ResourceID: "\xff", Kind: "k"},
	} {
		e.Session, e.Principal = "sess_a", "alice"
		_, err := r.registry.Register(t.Context(), r.now, e)
		r.wantCode(why, err, arcp.CodeInvalidArgument)
	}
	_, err := r.registry.UpdateStatus(t.Context(), r.now, "sess_a", "a", "paused")
	r.wantCode("an unknown status", err, arcp.CodeInvalidArgument)
	_, err = r.registry.Register(t.Context(), r.now, Entry{ResourceID: "a", Kind: "k", Principal: "alice"})
	r.wantCode("no session", err, arcp.CodeFailedPrecondition)
	r.register(Entry{ResourceID: strings.Repeat("i", 256), Kind: strings.Repeat("k", 64), Metadata: arcp.Raw(`{"a":"` + long[:16<<10-8] + `"}`)})
}

// A status of another version is kept as it is, and can be changed.
func TestUnknownStatusIsTolerated(t *testing.T) {
	r := newFixture(t)
	r.register(Entry{ResourceID: "box", Kind: "sandbox"})
	rec, err := r.disk.Get(t.Context(), entryKey("sess_a", "box"))
	r.no(err)
	rec.Value = []byte(strings.Replace(string(rec.Value), `"active"`, `"hibernating"`, 1))
	err = r.disk.commit(store.NewWrite().Put(rec))
	r.no(err)
	r.boot()
	e, err := r.registry.Entry(t.Context(), "sess_a", "box")
	r.want("it is read", err == nil && e.Status == "hibernating", "%+v, %v", e, err)
	listed := 0
	err = r.registry.Entries(t.Context(), "sess_a", "", "", nil, func(*Entry) bool { listed++; return true })
	r.want("and listed", err == nil && listed == 1, "%d, %v", listed, err)
	_, err = r.registry.UpdateStatus(t.Context(), r.now, "sess_a", "box", Completed)
	r.no(err)
	r.want("and counted", r.entries["sandbox completed"] == 1 && r.entries["sandbox hibernating"] == 0, "%v", r.entries)
}

func TestEntriesAreListedNewestFirst(t *testing.T) {
	r := newFixture(t)
	for i := range 7 {
		r.register(Entry{ResourceID: fmt.Sprint("r", i), Kind: []string{"even", "odd"}[i%2], Status: []Status{Active, Active, Failed}[i%3]})
		if i != 3 { // two have come at the same time
			r.after(time.Second)
		}
	}
	r.register(Entry{ResourceID: "r0", Kind: "even"}) // stays where it is
	r.register(Entry{ResourceID: "x", Kind: "even", Session: "sess_b"})
	pages := func(kind string, status Status, limit int) (ids []string) {
		var after *EntryPosition
		for {
			n := 0
			r.no(r.registry.Entries(t.Context(), "sess_a", kind, status, after, func(e *Entry) bool {
				if n == limit {
					return false
				}
				n++
				ids = append(ids, e.ResourceID)
				after = &EntryPosition{e.CreatedAt, e.ResourceID}
				return true
			}))
			if n < limit {
				return ids
			}
		}
	}
	for _, limit := range []int{1, 2, 3, 7, 100} {
		got := pages("", "", limit)
		r.want("all of the session", slices.Equal(got, []string{"r6", "r5", "r4", "r3", "r2", "r1", "r0"}), "%v by %d", got, limit)
	}
	got := pages("even", Active, 1)
	r.want("of a kind and a status", slices.Equal(got, []string{"r6", "r4", "r0"}), "%v", got)
}

func TestEntriesOfASessionAreBounded(t *testing.T) {
	r := newFixture(t)
	for i := range MaxEntries {
		r.register(Entry{ResourceID: fmt.Sprint(i), Kind: "k"})
	}
	one := Entry{ResourceID: "one", Kind: "k", Session: "sess_a", Principal: "alice"}
	_, err := r.registry.Register(t.Context(), r.now, one)
	r.wantCode("one too many", err, arcp.CodeResourceExhausted)
	r.register(Entry{ResourceID: "7", Kind: "again"})
	r.boot()
	_, err = r.registry.Register(t.Context(), r.now, one)
	r.wantCode("also after a restart", err, arcp.CodeResourceExhausted)
	_, err = r.registry.Deregister(t.Context(), "sess_a", "7")
	r.no(err)
	r.register(one)
	l := r.take(alice, sandbox("x", 60))
	r.want("a lease is taken all the same", l.State == Held && r.lost == 1, "%+v; %d were not shown", l, r.lost)
}

// Sweep deletes the entries of ended sessions in steps; their leases stay.
func TestSweep(t *testing.T) {
	r := newFixture(t)
	for i := range 10 {
		for _, s := range []arcp.SessionID{"sess_a", "sess_b", "sess_c"} {
			r.register(Entry{ResourceID: fmt.Sprint(i), Kind: "k", Session: s})
		}
	}
	l := r.take(alice, sandbox("x", 60))
	r.dead["sess_a"], r.dead["sess_c"] = true, true
	from, steps := "", 0
	for {
		before := len(r.keys(entryPrefix))
		next, err := r.registry.Sweep(t.Context(), from, 4)
		r.no(err)
		r.want("a step is bounded", before-len(r.keys(entryPrefix)) <= 16, "%d were removed", before-len(r.keys(entryPrefix)))
		if steps++; next == "" {
			break
		}
		from = next
	}
	r.want("it takes several", steps > 2, "%d", steps)
	left := r.keys(entryPrefix)
	r.want("only the living one's are left", len(left) == 10 && strings.HasPrefix(left[0], sessionPrefix("sess_b")), "%v", left)
	r.want("they are counted", r.entries["k active"] == 10, "%v", r.entries)
	r.want("the lease stays", r.lease(l).State == Held, "%+v", r.lease(l))
	r.no(func() error { _, err := r.registry.Release(t.Context(), r.now, "alice", l.ID); return err }())
	r.want("and is shown no more", r.lost == 0 && len(r.keys(entryPrefix)) == 10, "%d, %v", r.lost, r.keys(entryPrefix))
}

func TestRegistryShowsLease(t *testing.T) {
	r := newFixture(t)
	a := sandbox("x", 60)
	l := r.take(alice, a)
	e, err := r.registry.Entry(t.Context(), "sess_a", string(l.ID))
	r.no(err)
	r.want("it is registered", e.Kind == "sandbox" && e.DisplayName == "x" && e.Status == Active && e.Principal == "alice", "%+v", e)
	a.DisplayName, a.Metadata = "my box", arcp.Raw(`{"n":1}`)
	r.after(time.Minute)
	again := r.take(alice, a)
	r.want("the same identity refreshes", again.ID == l.ID && again.ExpiresAt.Equal(r.now.Add(time.Minute)) && again.CreatedAt.Equal(l.CreatedAt), "%+v", again)
	e, err = r.registry.Entry(t.Context(), "sess_a", string(l.ID))
	r.want("and is shown so", err == nil && e.DisplayName == "my box" && string(e.Metadata) == `{"n":1}`, "%+v, %v", e, err)

	r.take(Holder{Principal: "alice", Session: "sess_b"}, a)
	old, err := r.registry.Entry(t.Context(), "sess_a", string(l.ID))
	r.no(err)
	moved, err := r.registry.Entry(t.Context(), "sess_b", string(l.ID))
	r.no(err)
	r.want("another session takes it over", old.Status == Released && moved.Status == Active, "%+v, %+v", old, moved)
	released, err := r.registry.Release(t.Context(), r.now, "alice", l.ID)
	r.want("its owner lets it go", err == nil && released.State == Gone, "%+v, %v", released, err)
	moved, err = r.registry.Entry(t.Context(), "sess_b", string(l.ID))
	r.want("and that is shown", err == nil && moved.Status == Released, "%+v, %v", moved, err)
	next := r.take(alice, a)
	r.want("then the thing can be leased anew", next.ID != l.ID && next.State == Held, "%+v", next)
}

// That the registry cannot be written costs the lease nothing.
func TestRegistryErrorFailsNoLease(t *testing.T) {
	r := newFixture(t)
	r.disk.dies = 2
	l := r.take(alice, sandbox("x", 60))
	r.want("it is held", r.lease(l).State == Held, "%+v", l)
	r.want("and the failure counted", r.lost == 1, "%d", r.lost)
	r.no(func() error { _, err := r.registry.Release(t.Context(), r.now, "alice", l.ID); return err }())
	r.want("it was never registered, and nobody minds", r.lost == 1, "%d", r.lost)
}

func TestInvalidLeases(t *testing.T) {
	r := newFixture(t)
	for why, change := range map[string]func(*LeaseRequest){
		"no provider":      func(a *LeaseRequest) { a.Provider = "" },
		"no type":          func(a *LeaseRequest) { a.Type = "" },
		"a long type":      func(a *LeaseRequest) { a.Type = strings.Repeat("t", 65) },
		"no external id":   func(a *LeaseRequest) { a.ExternalID = "" },
		"a long one":       func(a *LeaseRequest) { a.ExternalID = strings.Repeat("x", 1025) },
		"before now":       func(a *LeaseRequest) { a.Seconds = -1 },
		"for ever":         func(a *LeaseRequest) { a.Seconds = int64(MaxDuration/time.Second) + 1 },
		"metadata, no map": func(a *LeaseRequest) { a.Metadata = arcp.Raw(`7`) },
	} {
		a := sandbox("x", 60)
		change(&a)
		_, err := r.registry.Acquire(t.Context(), r.now, alice, a)
		r.wantCode(why, err, arcp.CodeInvalidArgument)
	}
	_, err := r.registry.Touch(t.Context(), r.now, "alice", "lease_00000000000000000000000000")
	r.wantCode("one that is not there", err, arcp.CodeNotFound)
	_, err = r.registry.Release(t.Context(), r.now, "alice", "../../etc")
	r.wantCode("one that never was", err, arcp.CodeNotFound)
	l := r.take(alice, sandbox("x", 60))
	_, err = r.registry.Touch(t.Context(), r.now, "bob", l.ID)
	r.wantCode("another's", err, arcp.CodeNotFound)
	_, err = r.registry.Acquire(t.Context(), r.now, Holder{Principal: "bob"}, sandbox("x", 60))
	r.wantCode("what another has", err, arcp.CodeAlreadyExists)
	found, err := r.registry.Find(t.Context(), l.ID)
	r.want("who may see all finds it", err == nil && found.Principal == "alice", "%+v, %v", found, err)
	_, err = r.registry.Find(t.Context(), "lease_00000000000000000000000000")
	r.wantCode("but not what is not there", err, arcp.CodeNotFound)
}

// Identities with different parts differ, also if their concatenations are equal.
func TestIdentitiesAreTheirParts(t *testing.T) {
	seen := map[string]Identity{}
	for _, i := range []Identity{{"a", "b", "c"}, {"ab", "", "c"}, {"a", "bc", ""}, {"", "ab", "c"}, {"a", "b:c", ""}, {"a", "1:b", "c"}, {"1:a", "b", "c"}} {
		key := identityKey(&i)
		if other, twice := seen[key]; twice {
			t.Errorf("%+v and %+v are the same", i, other)
		}
		seen[key] = i
	}
}

func TestLeasesAreListedNewestFirst(t *testing.T) {
	r := newFixture(t)
	var want []arcp.LeaseID
	for i := range 5 {
		want = append([]arcp.LeaseID{r.take(alice, sandbox(fmt.Sprint(i), 60)).ID}, want...)
	}
	r.take(Holder{Principal: "bob"}, sandbox("b", 60))
	list := func(principal string) (ids []arcp.LeaseID) {
		r.no(r.registry.Leases(t.Context(), principal, "", func(_ string, l *Lease) bool {
			ids = append(ids, l.ID)
			return true
		}))
		return ids
	}
	r.want("alice's", slices.Equal(list("alice"), want), "%v, want %v", list("alice"), want)
	r.want("everybody's", len(list("")) == 6, "%v", list(""))
}

// Released leases are retained for a while and then deleted in steps.
func TestForget(t *testing.T) {
	r := newFixture(t)
	for i := range 5 {
		l := r.take(Holder{Principal: "alice"}, sandbox(fmt.Sprint(i), 60))
		_, err := r.registry.Release(t.Context(), r.now, "alice", l.ID)
		r.no(err)
	}
	held := r.take(Holder{Principal: "alice"}, sandbox("held", 60))
	r.after(time.Hour - time.Second)
	more, err := r.registry.Forget(t.Context(), r.now, 3)
	r.want("not yet", !more && err == nil && len(r.keys(leasePrefix)) == 6, "%v, %v", r.keys(leasePrefix), err)
	r.after(time.Second)
	more, err = r.registry.Forget(t.Context(), r.now, 3)
	r.want("three of them", more && err == nil && len(r.keys(leasePrefix)) == 3, "%v, %v", r.keys(leasePrefix), err)
	more, err = r.registry.Forget(t.Context(), r.now, 3)
	r.want("and the rest", !more && err == nil && len(r.keys(oldPrefix)) == 0, "%v, %v", r.keys(oldPrefix), err)
	r.want("but not what is held", r.lease(held).State == Held && len(r.keys(leasePrefix)) == 1, "%v", r.keys(leasePrefix))
}

func TestLeasesOfAPrincipalAreBounded(t *testing.T) {
	r := newFixture(t)
	r.registry.leaseTable.quota.n["alice"] = MaxLeases
	_, err := r.registry.Acquire(t.Context(), r.now, alice, sandbox("x", 60))
	r.wantCode("one too many", err, arcp.CodeResourceExhausted)
	r.take(Holder{Principal: "bob"}, sandbox("x", 60))
}

func TestWritesOfAFullStoreAreErrors(t *testing.T) {
	r := newFixture(t)
	r.disk.dies = 1
	_, err := r.registry.Acquire(context.Background(), r.now, alice, sandbox("x", 60))
	r.want("it is no refusal", err == errCrash && len(r.registry.leaseTable.quota.n) == 0, "%v, %v", err, r.registry.leaseTable.quota.n)
}

// hasty is a committer that cancels the caller's context during a write. Like eventlog.Log it
// returns the context's error and completes the write.
type hasty struct {
	*disk
	cancel context.CancelFunc
}

func (h *hasty) Commit(ctx context.Context, w *store.Write, done func(error)) error {
	h.cancel()
	err := h.disk.Commit(ctx, w, done)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// The counts equal the stored leases and entries, also when a caller stops waiting for its
// write.
func TestCountsOfCallersThatDoNotWait(t *testing.T) {
	r := newFixture(t)
	h := &hasty{disk: r.disk}
	r.registry.opts.Log = h
	hurry := func() context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		h.cancel = cancel
		return ctx
	}
	counted := func(why string, leases, entries int) {
		t.Helper()
		r.want(why, r.registry.leaseTable.quota.n["alice"] == leases && len(r.keys(identityPrefix)) == leases && r.leases[Held] == leases, "counted %d, %v of %d leases", r.registry.leaseTable.quota.n["alice"], r.leases, leases)
		r.want(why, r.registry.entryTable.quota.n["s"] == entries && len(r.keys(sessionPrefix("s"))) == entries, "counted %d of %d entries", r.registry.entryTable.quota.n["s"], entries)
	}
	l, err := r.registry.Acquire(hurry(), r.now, Holder{Principal: "alice"}, sandbox("x", 60))
	r.no(err)
	_, err = r.registry.Register(hurry(), r.now, Entry{Session: "s", Principal: "alice", ResourceID: "e", Kind: "k"})
	r.no(err)
	counted("taken", 1, 1)
	_, err = r.registry.Release(hurry(), r.now, "alice", l.ID)
	r.no(err)
	_, err = r.registry.Deregister(hurry(), "s", "e")
	r.no(err)
	counted("released", 0, 0)
	ctx := hurry()
	h.cancel()
	_, err = r.registry.Acquire(ctx, r.now, Holder{Principal: "alice"}, sandbox("y", 60))
	r.want("what has ended before begins nothing", errors.Is(err, context.Canceled), "%v", err)
	counted("refused", 0, 0)
}

// Leases that are of no concern outside a call do not fill the registry of the
// session, however many there were.
func TestUnlistedLeases(t *testing.T) {
	r := newFixture(t)
	h := Holder{Principal: "alice", Session: "sess_1"}
	for i := range MaxEntries + 1 {
		a := sandbox(fmt.Sprint(i), 60)
		a.Unlisted = true
		l := r.take(h, a)
		_, err := r.registry.Release(t.Context(), r.now, "alice", l.ID)
		r.no(err)
		if _, err := r.registry.Entry(t.Context(), "sess_1", string(l.ID)); !hasCode(err, arcp.CodeNotFound) {
			t.Fatalf("the registry has an entry: %v", err)
		}
	}
	l := r.take(h, sandbox("listed", 60))
	if _, err := r.registry.Entry(t.Context(), "sess_1", string(l.ID)); err != nil {
		t.Errorf("there is no room for another: %v", err)
	}
}
