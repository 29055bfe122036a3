package resources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/store/pebble"
)

// model checks each written lease against the invariants of the registry. An operation of the test
// sets operation, operationTime and concluded while it runs.
type model struct {
	*rapid.T
	disk     *disk
	registry *Store
	now      time.Time

	operation     string
	operationTime time.Time
	concluded     *Lease // claim that conclude ends

	last      map[arcp.LeaseID]Lease // the latest written form
	successes map[arcp.LeaseID]int   // recorded clean-ups
	claims    []*leaseRow            // claims that are not concluded
	extending bool                   // extend runs
}

var principals = []string{"alice", "bob"}

func (m *model) boot() {
	m.registry = NewStore(Options{Log: m.disk, Store: m.disk, Retention: time.Hour, Sessions: &fixture{}})
	if err := m.registry.Load(context.Background()); err != nil {
		m.Fatal(err)
	}
}

// onWrite checks the change of a lease that a write makes.
func (m *model) onWrite(rec store.Record) {
	if !strings.HasPrefix(rec.Key, leasePrefix) || rec.Value == nil {
		return
	}
	var next Lease
	if err := arcp.Unmarshal(rec.Value, &next); err != nil {
		m.Fatal(err)
	}
	old, known := m.last[next.ID]
	if err := m.checkChange(&old, known, &next); err != nil {
		m.Fatalf("%s at %v: %v\nbefore %+v\nafter  %+v", m.operation, m.operationTime, err, old, next)
	}
	m.last[next.ID] = next
}

// checkChange returns an error if the operation must not change old to next.
func (m *model) checkChange(old *Lease, known bool, next *Lease) error {
	switch {
	case !known && (m.operation != "acquire" || next.State != StateActive):
		return errors.New("only acquire creates a held lease")
	case known && old.State == StateReleased:
		return errors.New("a removed lease has changed")
	}
	switch m.operation {
	case "acquire":
		if known && old.State == StateCleaning {
			return errors.New("a lease was acquired during its clean-up")
		}
	case "touch":
		if old.State != StateActive || next.State != StateActive {
			return errors.New("a lease that is not held was touched")
		}
	case "extend":
		if old.State != StateActive && old.State != StateCleanupFailed || next.State != old.State || !m.extending {
			return errors.New("a lease was extended without a request, or during its clean-up")
		}
	case "claim":
		if due := old.Due(); m.operationTime.Before(due) || next.State != StateCleaning || next.CleanupAttempts != old.CleanupAttempts+1 {
			return errors.New("a lease was claimed before it was due")
		}
	case "conclude":
		return m.checkConclude(old, next)
	}
	return nil
}

// checkConclude is checkChange for the end of a clean-up.
func (m *model) checkConclude(old, next *Lease) error {
	switch {
	case old.State != StateCleaning || !old.CleanupStartedAt.Equal(m.concluded.CleanupStartedAt) ||
		old.CleanupAttempts != m.concluded.CleanupAttempts:
		return errors.New("a superseded claim was concluded")
	case next.State == StateCleanupFailed && next.ExpiresAt.Before(m.operationTime.Add(cleanupBackoff.Min)):
		return errors.New("a failed clean-up is repeated without a delay")
	case next.State == StateReleased:
		if m.successes[next.ID]++; m.successes[next.ID] > 1 {
			return errors.New("a success was recorded twice")
		}
	}
	return nil
}

// run runs an operation at a time. The process may crash during it.
func (m *model) run(name string, at time.Time, f func(ctx context.Context) error) {
	operation, began, concluded := m.operation, m.operationTime, m.concluded
	defer func() { m.operation, m.operationTime, m.concluded = operation, began, concluded }()
	m.operation, m.operationTime = name, roundTime(at)
	err := f(context.Background())
	if _, refused := errors.AsType[*arcp.Error](err); err != nil && !refused && !errors.Is(err, errCrash) {
		m.Fatalf("%s: %v", name, err)
	}
}

// clock returns the time of a machine whose clock differs by up to 20 s.
func (m *model) clock() time.Time {
	return m.now.Add(time.Duration(rapid.IntRange(-20, 20).Draw(m.T, "skew")) * time.Second)
}

func (m *model) anyLease() (Lease, bool) {
	ids := slices.Sorted(maps.Keys(m.last))
	if len(ids) == 0 {
		return Lease{}, false
	}
	return m.last[rapid.SampledFrom(ids).Draw(m.T, "lease")], true
}

func (m *model) acquire() {
	h := Holder{Principal: rapid.SampledFrom(principals).Draw(m.T, "principal"), Session: "sess_a"}
	a := sandbox(rapid.SampledFrom([]string{"x", "y", "z"}).Draw(m.T, "resource"),
		rapid.SampledFrom([]int64{0, 1, 60, 4000}).Draw(m.T, "seconds"))
	m.run("acquire", m.clock(), func(ctx context.Context) error {
		_, err := m.registry.Acquire(ctx, m.operationTime, h, a)
		return err
	})
}

func (m *model) touch() {
	if l, ok := m.anyLease(); ok {
		m.run("touch", m.clock(), func(ctx context.Context) error {
			_, err := m.registry.Touch(ctx, m.operationTime, l.Principal, l.ID)
			return err
		})
	}
}

func (m *model) release() {
	if l, ok := m.anyLease(); ok {
		m.run("release", m.clock(), func(ctx context.Context) error {
			_, err := m.registry.Release(ctx, m.operationTime, l.Principal, l.ID)
			return err
		})
	}
}

// scan claims due leases. At times it extends them instead.
func (m *model) scan() {
	at, extend := m.clock(), rapid.IntRange(0, 4).Draw(m.T, "extend") == 0
	due, _, err := m.registry.due(context.Background(), at, "", 2)
	if err != nil {
		m.Fatal(err)
	}
	for i := range due {
		r := &due[i]
		if extend && r.Value.State != StateCleaning {
			m.run("extend", at, func(ctx context.Context) error {
				m.extending = true
				defer func() { m.extending = false }()
				return m.registry.extend(ctx, at, r)
			})
			continue
		}
		m.run("claim", m.clock(), func(ctx context.Context) error { // time has passed, or another machine claims
			claim, ok, err := m.registry.claim(ctx, m.operationTime, r)
			if ok {
				m.claims = append(m.claims, claim)
			}
			return err
		})
	}
}

// conclude ends a clean-up. Its claim may be superseded.
func (m *model) conclude() {
	if len(m.claims) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.claims)-1).Draw(m.T, "cleaner")
	claim := m.claims[i]
	m.claims = slices.Delete(m.claims, i, i+1)
	var failure error
	if rapid.Bool().Draw(m.T, "fails") {
		failure = errors.New("no")
	}
	m.run("conclude", m.clock(), func(ctx context.Context) error {
		m.concluded = &claim.Value
		_, err := m.registry.storeResult(ctx, m.operationTime, claim, failure)
		return err
	})
}

func (m *model) wait() {
	m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{1, 20, 45, 299, 310, 4000}).Draw(m.T, "wait")) * time.Second)
}

// interleave runs another operation between the read and the write of the next one.
func (m *model) interleave() {
	other := rapid.SampledFrom([]func(){m.acquire, m.touch, m.release, m.scan, m.conclude}).Draw(m.T, "meanwhile")
	m.disk.before = func() {
		crashAt := m.disk.crashAt
		m.disk.crashAt = 0
		other()
		m.disk.crashAt = crashAt
	}
}

// crash crashes the process at one of the next commits and starts it again.
func (m *model) crash() {
	m.disk.crashAt, m.disk.crashAfter = rapid.IntRange(1, 3).Draw(m.T, "commit"), rapid.Bool().Draw(m.T, "after the commit")
	m.step()
	m.disk.crashAt, m.disk.before = 0, nil
	m.boot() // the claims of the earlier process may still be concluded
}

func (m *model) step() {
	rapid.SampledFrom([]func(){m.acquire, m.touch, m.release, m.scan, m.scan, m.conclude, m.conclude}).Draw(m.T, "step")()
}

// check compares the records and the counts of the registry with the model.
func (m *model) check() {
	var want, held []string
	perPrincipal := map[string]int{}
	for _, l := range m.last {
		want = append(want, leaseKey(l.Principal, l.ID))
		if l.State == StateReleased {
			want = append(want, timeKey(releasedPrefix, l.ReleasedAt.Add(time.Hour), l.ID))
			continue
		}
		held = append(held, identityKey(&l.Identity))
		want = append(want, timeKey(duePrefix, l.Due(), l.ID))
		perPrincipal[l.Principal]++
	}
	want = append(want, held...)
	slices.Sort(want)
	if len(slices.Compact(slices.Clone(want))) != len(want) {
		m.Fatalf("a resource has two leases: %v", want)
	}
	var got []string
	for _, prefix := range []string{duePrefix, identityPrefix, leasePrefix, releasedPrefix} {
		err := m.disk.Records(context.Background(), prefix, "", func(rec store.Record) bool {
			got = append(got, rec.Key)
			return true
		})
		if err != nil {
			m.Fatal(err)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		m.Fatalf("stored are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !maps.Equal(m.registry.leaseTable.quota.n, perPrincipal) {
		m.Fatalf("counted are %v, want %v", m.registry.leaseTable.quota.n, perPrincipal)
	}
}

// finish scans after the longest delay and checks that each lease ends.
func (m *model) finish() {
	m.now = m.now.Add(2 * cleanupBackoff.Max)
	s := &Scanner{Store: m.registry, Handlers: handlers(m.T, func(context.Context, Lease, int) error { return nil }),
		Now: func() time.Time { return m.now }}
	m.disk.onWrite = nil
	for range len(m.last) + 1 {
		rep, err := s.Scan(context.Background(), Request{})
		if err != nil || rep.Failed > 0 {
			m.Fatalf("the last scan: %+v, %v", rep, err)
		}
	}
	for id := range m.last {
		l, err := m.registry.Lease(context.Background(), m.last[id].Principal, id)
		if err != nil || l.State != StateReleased {
			m.Fatalf("an ended lease was not cleaned up: %+v, %v", l, err)
		}
	}
}

func handlers(t interface{ Fatal(args ...any) }, f HandlerFunc) Handlers {
	h, err := NewHandlers([]Registration{{Provider: "cloud", Handler: f}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func property(open func() (store.Store, error), steps int) func(*rapid.T) {
	return func(t *rapid.T) {
		st, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		m := &model{T: t, disk: &disk{Store: st}, now: begin, last: map[arcp.LeaseID]Lease{}, successes: map[arcp.LeaseID]int{}}
		m.disk.onWrite = m.onWrite
		m.boot()
		for range rapid.IntRange(1, steps).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "action") {
			case 0, 1, 2:
				m.wait()
			case 3, 4:
				m.interleave()
				m.step()
				m.disk.before = nil
			case 5:
				m.crash()
			default:
				m.step()
			}
			m.check()
		}
		m.finish()
	}
}

// With any clock steps, crashes and concurrent operations: a success is recorded once, a
// released lease is not cleaned up again, a lease is not reaped before its end, and an ended
// lease is not forgotten.
func TestScanProperties(t *testing.T) {
	rapid.Check(t, property(func() (store.Store, error) { return mem.Open(mem.Options{}), nil }, 60))
}

func TestScanPropertiesOnDisk(t *testing.T) {
	n := 0
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > 8 && !testing.Verbose() { // each opens a store
			return
		}
		property(func() (store.Store, error) {
			n++
			return pebble.Open(fmt.Sprintf("%s/%d", dir, n), pebble.Options{})
		}, 25)(rt)
	})
}
