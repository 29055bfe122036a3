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
	f := newFixture(t)
	first := f.register(Entry{ResourceID: "box", Kind: "sandbox", DisplayName: "a box", Metadata: arcp.Raw(`{"cpu":2}`)})
	f.want("the default", first.Status == Active && first.CreatedAt.Equal(f.now), "%+v", first)
	f.after(time.Minute)
	second := f.register(Entry{ResourceID: "box", Kind: "vm", Status: Failed})
	f.want("all is replaced", second.Kind == "vm" && second.DisplayName == "" && string(second.Metadata) == "{}" &&
		second.Status == Failed, "%+v", second)
	f.want("but for when it was made", second.CreatedAt.Equal(first.CreatedAt) && second.UpdatedAt.Equal(f.now), "%+v", second)

	_, err := f.registry.UpdateStatus(f.Context(), f.now, "sess_a", "box", Released)
	f.must(err)
	revived := f.register(Entry{ResourceID: "box", Kind: "vm"})
	f.want("what is released is revived", revived.Status == Active && revived.CreatedAt.Equal(first.CreatedAt), "%+v", revived)

	removed, err := f.registry.Deregister(f.Context(), "sess_a", "box")
	f.want("there was one", removed && err == nil, "%v, %v", removed, err)
	removed, err = f.registry.Deregister(f.Context(), "sess_a", "box")
	f.want("and is no more", !removed && err == nil, "%v, %v", removed, err)
	_, err = f.registry.UpdateStatus(f.Context(), f.now, "sess_a", "box", Active)
	f.wantCode("so it has no status", err, arcp.CodeNotFound)
	_, err = f.registry.Entry(f.Context(), "sess_a", "box")
	f.wantCode("and cannot be read", err, arcp.CodeNotFound)
	want := []string{"registered box", "updated box", "released box", "updated box", "deregistered box"}
	f.want("all of it is told", slices.Equal(f.events, want), "%v, want %v", f.events, want)
	for class, n := range f.entries {
		f.want("nothing is counted any more", n == 0, "%s: %d", class, n)
	}
}

func TestInvalidEntryIsRefused(t *testing.T) {
	f := newFixture(t)
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
		_, err := f.registry.Register(t.Context(), f.now, e)
		f.wantCode(why, err, arcp.CodeInvalidArgument)
	}
	_, err := f.registry.UpdateStatus(t.Context(), f.now, "sess_a", "a", "paused")
	f.wantCode("an unknown status", err, arcp.CodeInvalidArgument)
	_, err = f.registry.Register(t.Context(), f.now, Entry{ResourceID: "a", Kind: "k", Principal: "alice"})
	f.wantCode("no session", err, arcp.CodeFailedPrecondition)
	f.register(Entry{ResourceID: strings.Repeat("i", 256), Kind: strings.Repeat("k", 64),
		Metadata: arcp.Raw(`{"a":"` + long[:16<<10-8] + `"}`)})
}

// A status of another version is kept as it is, and can be changed.
func TestUnknownStatusIsTolerated(t *testing.T) {
	f := newFixture(t)
	f.register(Entry{ResourceID: "box", Kind: "sandbox"})
	rec, err := f.disk.Get(t.Context(), entryKey("sess_a", "box"))
	f.must(err)
	rec.Value = []byte(strings.Replace(string(rec.Value), `"active"`, `"hibernating"`, 1))
	err = f.disk.commit(store.NewWrite().Put(rec))
	f.must(err)
	f.boot()
	e, err := f.registry.Entry(t.Context(), "sess_a", "box")
	f.want("it is read", err == nil && e.Status == "hibernating", "%+v, %v", e, err)
	listed := 0
	err = f.registry.Entries(t.Context(), "sess_a", "", "", nil, func(*Entry) bool { listed++; return true })
	f.want("and listed", err == nil && listed == 1, "%d, %v", listed, err)
	_, err = f.registry.UpdateStatus(t.Context(), f.now, "sess_a", "box", Completed)
	f.must(err)
	f.want("and counted", f.entries["sandbox completed"] == 1 && f.entries["sandbox hibernating"] == 0, "%v", f.entries)
}

func TestEntriesAreListedNewestFirst(t *testing.T) {
	f := newFixture(t)
	for i := range 7 {
		f.register(Entry{ResourceID: fmt.Sprint("r", i), Kind: []string{"even", "odd"}[i%2], Status: []Status{Active, Active, Failed}[i%3]})
		if i != 3 { // two have come at the same time
			f.after(time.Second)
		}
	}
	f.register(Entry{ResourceID: "r0", Kind: "even"}) // stays where it is
	f.register(Entry{ResourceID: "x", Kind: "even", Session: "sess_b"})
	pages := func(kind string, status Status, limit int) (ids []string) {
		var after *EntryPosition
		for {
			n := 0
			f.must(f.registry.Entries(t.Context(), "sess_a", kind, status, after, func(e *Entry) bool {
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
		f.want("all of the session", slices.Equal(got, []string{"r6", "r5", "r4", "r3", "r2", "r1", "r0"}), "%v by %d", got, limit)
	}
	got := pages("even", Active, 1)
	f.want("of a kind and a status", slices.Equal(got, []string{"r6", "r4", "r0"}), "%v", got)
}

func TestEntriesOfASessionAreBounded(t *testing.T) {
	f := newFixture(t)
	for i := range MaxEntries {
		f.register(Entry{ResourceID: fmt.Sprint(i), Kind: "k"})
	}
	one := Entry{ResourceID: "one", Kind: "k", Session: "sess_a", Principal: "alice"}
	_, err := f.registry.Register(t.Context(), f.now, one)
	f.wantCode("one too many", err, arcp.CodeResourceExhausted)
	f.register(Entry{ResourceID: "7", Kind: "again"})
	f.boot()
	_, err = f.registry.Register(t.Context(), f.now, one)
	f.wantCode("also after a restart", err, arcp.CodeResourceExhausted)
	_, err = f.registry.Deregister(t.Context(), "sess_a", "7")
	f.must(err)
	f.register(one)
	l := f.acquire(alice, sandbox("x", 60))
	f.want("a lease is taken all the same", l.State == StateActive && f.failed == 1, "%+v; %d were not shown", l, f.failed)
}

// Sweep deletes the entries of ended sessions in steps; their leases stay.
func TestSweepDeletesEntriesOfEndedSessions(t *testing.T) {
	f := newFixture(t)
	for i := range 10 {
		for _, s := range []arcp.SessionID{"sess_a", "sess_b", "sess_c"} {
			f.register(Entry{ResourceID: fmt.Sprint(i), Kind: "k", Session: s})
		}
	}
	l := f.acquire(alice, sandbox("x", 60))
	f.ended["sess_a"], f.ended["sess_c"] = true, true
	from, steps := "", 0
	for {
		before := len(f.keys(entryPrefix))
		next, err := f.registry.Sweep(t.Context(), from, 4)
		f.must(err)
		f.want("a step is bounded", before-len(f.keys(entryPrefix)) <= 16, "%d were removed", before-len(f.keys(entryPrefix)))
		if steps++; next == "" {
			break
		}
		from = next
	}
	f.want("it takes several", steps > 2, "%d", steps)
	left := f.keys(entryPrefix)
	f.want("only the living one's are left", len(left) == 10 && strings.HasPrefix(left[0], sessionPrefix("sess_b")), "%v", left)
	f.want("they are counted", f.entries["k active"] == 10, "%v", f.entries)
	f.want("the lease stays", f.lease(l).State == StateActive, "%+v", f.lease(l))
	f.must(func() error { _, err := f.registry.Release(t.Context(), f.now, "alice", l.ID); return err }())
	f.want("and is shown no more", f.failed == 0 && len(f.keys(entryPrefix)) == 10, "%d, %v", f.failed, f.keys(entryPrefix))
}

func TestRegistryShowsLease(t *testing.T) {
	f := newFixture(t)
	a := sandbox("x", 60)
	l := f.acquire(alice, a)
	e, err := f.registry.Entry(t.Context(), "sess_a", string(l.ID))
	f.must(err)
	f.want("it is registered", e.Kind == "sandbox" && e.DisplayName == "x" && e.Status == Active && e.Principal == "alice", "%+v", e)
	a.DisplayName, a.Metadata = "my box", arcp.Raw(`{"n":1}`)
	f.after(time.Minute)
	again := f.acquire(alice, a)
	f.want("the same identity refreshes", again.ID == l.ID && again.ExpiresAt.Equal(f.now.Add(time.Minute)) &&
		again.CreatedAt.Equal(l.CreatedAt), "%+v", again)
	e, err = f.registry.Entry(t.Context(), "sess_a", string(l.ID))
	f.want("and is shown so", err == nil && e.DisplayName == "my box" && string(e.Metadata) == `{"n":1}`, "%+v, %v", e, err)

	f.acquire(Holder{Principal: "alice", Session: "sess_b"}, a)
	old, err := f.registry.Entry(t.Context(), "sess_a", string(l.ID))
	f.must(err)
	moved, err := f.registry.Entry(t.Context(), "sess_b", string(l.ID))
	f.must(err)
	f.want("another session takes it over", old.Status == Released && moved.Status == Active, "%+v, %+v", old, moved)
	released, err := f.registry.Release(t.Context(), f.now, "alice", l.ID)
	f.want("its owner lets it go", err == nil && released.State == StateReleased, "%+v, %v", released, err)
	moved, err = f.registry.Entry(t.Context(), "sess_b", string(l.ID))
	f.want("and that is shown", err == nil && moved.Status == Released, "%+v, %v", moved, err)
	next := f.acquire(alice, a)
	f.want("then the thing can be leased anew", next.ID != l.ID && next.State == StateActive, "%+v", next)
}

// That the registry cannot be written costs the lease nothing.
func TestRegistryErrorFailsNoLease(t *testing.T) {
	f := newFixture(t)
	f.disk.crashAt = 2
	l := f.acquire(alice, sandbox("x", 60))
	f.want("it is held", f.lease(l).State == StateActive, "%+v", l)
	f.want("and the failure counted", f.failed == 1, "%d", f.failed)
	f.must(func() error { _, err := f.registry.Release(t.Context(), f.now, "alice", l.ID); return err }())
	f.want("it was never registered, and nobody minds", f.failed == 1, "%d", f.failed)
}

func TestInvalidLeaseRequestIsRefused(t *testing.T) {
	f := newFixture(t)
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
		_, err := f.registry.Acquire(t.Context(), f.now, alice, a)
		f.wantCode(why, err, arcp.CodeInvalidArgument)
	}
	_, err := f.registry.Touch(t.Context(), f.now, "alice", "lease_00000000000000000000000000")
	f.wantCode("one that is not there", err, arcp.CodeNotFound)
	_, err = f.registry.Release(t.Context(), f.now, "alice", "../../etc")
	f.wantCode("one that never was", err, arcp.CodeNotFound)
	l := f.acquire(alice, sandbox("x", 60))
	_, err = f.registry.Touch(t.Context(), f.now, "bob", l.ID)
	f.wantCode("another's", err, arcp.CodeNotFound)
	_, err = f.registry.Acquire(t.Context(), f.now, Holder{Principal: "bob"}, sandbox("x", 60))
	f.wantCode("what another has", err, arcp.CodeAlreadyExists)
	found, err := f.registry.Find(t.Context(), l.ID)
	f.want("who may see all finds it", err == nil && found.Principal == "alice", "%+v, %v", found, err)
	_, err = f.registry.Find(t.Context(), "lease_00000000000000000000000000")
	f.wantCode("but not what is not there", err, arcp.CodeNotFound)
}

// Identities with different parts differ, also if their concatenations are equal.
func TestIdentitiesAreTheirParts(t *testing.T) {
	seen := map[string]Identity{}
	for _, i := range []Identity{{"a", "b", "c"}, {"ab", "", "c"}, {"a", "bc", ""}, {"", "ab", "c"}, {"a", "b:c", ""},
		{"a", "1:b", "c"}, {"1:a", "b", "c"}} {
		key := identityKey(&i)
		if other, twice := seen[key]; twice {
			t.Errorf("%+v and %+v are the same", i, other)
		}
		seen[key] = i
	}
}

func TestLeasesAreListedNewestFirst(t *testing.T) {
	f := newFixture(t)
	var want []arcp.LeaseID
	for i := range 5 {
		want = append([]arcp.LeaseID{f.acquire(alice, sandbox(fmt.Sprint(i), 60)).ID}, want...)
	}
	f.acquire(Holder{Principal: "bob"}, sandbox("b", 60))
	list := func(principal string) (ids []arcp.LeaseID) {
		f.must(f.registry.Leases(t.Context(), principal, "", func(_ string, l *Lease) bool {
			ids = append(ids, l.ID)
			return true
		}))
		return ids
	}
	f.want("alice's", slices.Equal(list("alice"), want), "%v, want %v", list("alice"), want)
	f.want("everybody's", len(list("")) == 6, "%v", list(""))
}

// Released leases are retained for a while and then deleted in steps.
func TestReleasedLeasesAreDeletedAfterAWhile(t *testing.T) {
	f := newFixture(t)
	for i := range 5 {
		l := f.acquire(Holder{Principal: "alice"}, sandbox(fmt.Sprint(i), 60))
		_, err := f.registry.Release(t.Context(), f.now, "alice", l.ID)
		f.must(err)
	}
	held := f.acquire(Holder{Principal: "alice"}, sandbox("held", 60))
	f.after(time.Hour - time.Second)
	more, err := f.registry.DeleteReleased(t.Context(), f.now, 3)
	f.want("not yet", !more && err == nil && len(f.keys(leasePrefix)) == 6, "%v, %v", f.keys(leasePrefix), err)
	f.after(time.Second)
	more, err = f.registry.DeleteReleased(t.Context(), f.now, 3)
	f.want("three of them", more && err == nil && len(f.keys(leasePrefix)) == 3, "%v, %v", f.keys(leasePrefix), err)
	more, err = f.registry.DeleteReleased(t.Context(), f.now, 3)
	f.want("and the rest", !more && err == nil && len(f.keys(releasedPrefix)) == 0, "%v, %v", f.keys(releasedPrefix), err)
	f.want("but not what is held", f.lease(held).State == StateActive && len(f.keys(leasePrefix)) == 1, "%v", f.keys(leasePrefix))
}

func TestLeasesOfAPrincipalAreBounded(t *testing.T) {
	f := newFixture(t)
	f.registry.leaseTable.quota.n["alice"] = MaxLeases
	_, err := f.registry.Acquire(t.Context(), f.now, alice, sandbox("x", 60))
	f.wantCode("one too many", err, arcp.CodeResourceExhausted)
	f.acquire(Holder{Principal: "bob"}, sandbox("x", 60))
}

func TestWritesOfAFullStoreAreErrors(t *testing.T) {
	f := newFixture(t)
	f.disk.crashAt = 1
	_, err := f.registry.Acquire(context.Background(), f.now, alice, sandbox("x", 60))
	f.want("it is no refusal", err == errCrash && len(f.registry.leaseTable.quota.n) == 0, "%v, %v", err, f.registry.leaseTable.quota.n)
}

// cancellingDisk is a committer that cancels the caller's context during a write. Like eventlog.Log it
// returns the context's error and completes the write.
type cancellingDisk struct {
	*disk
	cancel context.CancelFunc
}

func (h *cancellingDisk) Commit(ctx context.Context, w *store.Write, done func(error)) error {
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
	f := newFixture(t)
	h := &cancellingDisk{disk: f.disk}
	f.registry.opts.Log = h
	hurry := func() context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		h.cancel = cancel
		return ctx
	}
	counted := func(why string, leases, entries int) {
		t.Helper()
		f.want(why, f.registry.leaseTable.quota.n["alice"] == leases && len(f.keys(identityPrefix)) == leases &&
			f.leases[StateActive] == leases, "counted %d, %v of %d leases", f.registry.leaseTable.quota.n["alice"], f.leases, leases)
		f.want(why, f.registry.entryTable.quota.n["s"] == entries && len(f.keys(sessionPrefix("s"))) == entries,
			"counted %d of %d entries", f.registry.entryTable.quota.n["s"], entries)
	}
	l, err := f.registry.Acquire(hurry(), f.now, Holder{Principal: "alice"}, sandbox("x", 60))
	f.must(err)
	_, err = f.registry.Register(hurry(), f.now, Entry{Session: "s", Principal: "alice", ResourceID: "e", Kind: "k"})
	f.must(err)
	counted("taken", 1, 1)
	_, err = f.registry.Release(hurry(), f.now, "alice", l.ID)
	f.must(err)
	_, err = f.registry.Deregister(hurry(), "s", "e")
	f.must(err)
	counted("released", 0, 0)
	ctx := hurry()
	h.cancel()
	_, err = f.registry.Acquire(ctx, f.now, Holder{Principal: "alice"}, sandbox("y", 60))
	f.want("what has ended before begins nothing", errors.Is(err, context.Canceled), "%v", err)
	counted("refused", 0, 0)
}

// Leases that are of no concern outside a call do not fill the registry of the
// session, however many there were.
func TestUnlistedLeasesDoNotFillTheRegistry(t *testing.T) {
	f := newFixture(t)
	h := Holder{Principal: "alice", Session: "sess_1"}
	for i := range MaxEntries + 1 {
		a := sandbox(fmt.Sprint(i), 60)
		a.Unlisted = true
		l := f.acquire(h, a)
		_, err := f.registry.Release(t.Context(), f.now, "alice", l.ID)
		f.must(err)
		if _, err := f.registry.Entry(t.Context(), "sess_1", string(l.ID)); !hasCode(err, arcp.CodeNotFound) {
			t.Fatalf("the registry has an entry: %v", err)
		}
	}
	l := f.acquire(h, sandbox("listed", 60))
	if _, err := f.registry.Entry(t.Context(), "sess_1", string(l.ID)); err != nil {
		t.Errorf("there is no room for another: %v", err)
	}
}
