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

// world is the model. It sees every written lease and checks the invariants. Each operation
// first sets doing and at.
type world struct {
	*rapid.T
	disk     *disk
	registry *Store
	now      time.Time

	doing   string
	at      time.Time
	claim   *Lease                 // that is being concluded
	last    map[arcp.LeaseID]Lease // as it was written last
	success map[arcp.LeaseID]int
	claims  []*leaseRow // of cleaners that have not come back
	named   bool        // of the extension
}

var principals = []string{"alice", "bob"}

func (w *world) boot() {
	w.registry = NewStore(Options{Log: w.disk, Store: w.disk, Retention: time.Hour, Sessions: &fixture{}})
	if err := w.registry.Load(context.Background()); err != nil {
		w.Fatal(err)
	}
}

// wrote judges a record that was written.
func (w *world) wrote(rec store.Record) {
	if !strings.HasPrefix(rec.Key, leasePrefix) || rec.Value == nil {
		return
	}
	var next Lease
	if err := arcp.Unmarshal(rec.Value, &next); err != nil {
		w.Fatal(err)
	}
	old, known := w.last[next.ID]
	if err := w.judge(&old, known, &next); err != nil {
		w.Fatalf("%s at %v: %v\nbefore %+v\nafter  %+v", w.doing, w.at, err, old, next)
	}
	w.last[next.ID] = next
}

func (w *world) judge(old *Lease, known bool, next *Lease) error {
	switch {
	case !known && (w.doing != "take" || next.State != Held):
		return errors.New("a lease begins when it is taken")
	case known && old.State == Gone:
		return errors.New("what is released stays so")
	}
	switch w.doing {
	case "take":
		if known && old.State == Cleaning {
			return errors.New("it was taken again while it was cleaned up")
		}
	case "touch":
		if old.State != Held || next.State != Held {
			return errors.New("only what is held is touched")
		}
	case "extend":
		if old.State != Held && old.State != CleanupFailed || next.State != old.State || !w.named {
			return errors.New("it was not named, or is being cleaned up")
		}
	case "claim":
		if due := old.Due(); w.at.Before(due) || next.State != Cleaning || next.CleanupAttempts != old.CleanupAttempts+1 {
			return errors.New("it was claimed before it was due")
		}
	case "conclude":
		return w.judgeEnd(old, next)
	}
	return nil
}

func (w *world) judgeEnd(old, next *Lease) error {
	switch {
	case old.State != Cleaning || !old.CleanupStartedAt.Equal(w.claim.CleanupStartedAt) || old.CleanupAttempts != w.claim.CleanupAttempts:
		return errors.New("a cleaner that was given up has won")
	case next.State == CleanupFailed && next.ExpiresAt.Before(w.at.Add(cleanupBackoff.Min)):
		return errors.New("it is tried again at once")
	case next.State == Gone:
		if w.success[next.ID]++; w.success[next.ID] > 1 {
			return errors.New("a success was recorded twice")
		}
	}
	return nil
}

// do does something at a time; the process may die meanwhile.
func (w *world) do(name string, at time.Time, f func(ctx context.Context) error) {
	doing, when, claim := w.doing, w.at, w.claim
	defer func() { w.doing, w.at, w.claim = doing, when, claim }()
	w.doing, w.at = name, roundTime(at)
	err := f(context.Background())
	if _, refused := errors.AsType[*arcp.Error](err); err != nil && !refused && !errors.Is(err, errCrash) {
		w.Fatalf("%s: %v", name, err)
	}
}

// clock returns the time of one of several machines with different clocks.
func (w *world) clock() time.Time {
	return w.now.Add(time.Duration(rapid.IntRange(-20, 20).Draw(w.T, "skew")) * time.Second)
}

func (w *world) any() (Lease, bool) {
	ids := slices.Sorted(maps.Keys(w.last))
	if len(ids) == 0 {
		return Lease{}, false
	}
	return w.last[rapid.SampledFrom(ids).Draw(w.T, "lease")], true
}

func (w *world) take() {
	h := Holder{Principal: rapid.SampledFrom(principals).Draw(w.T, "who"), Session: "sess_a"}
	a := sandbox(rapid.SampledFrom([]string{"x", "y", "z"}).Draw(w.T, "thing"), rapid.SampledFrom([]int64{0, 1, 60, 4000}).Draw(w.T, "seconds"))
	w.do("take", w.clock(), func(ctx context.Context) error {
		_, err := w.registry.Acquire(ctx, w.at, h, a)
		return err
	})
}

func (w *world) touch() {
	if l, ok := w.any(); ok {
		w.do("touch", w.clock(), func(ctx context.Context) error {
			_, err := w.registry.Touch(ctx, w.at, l.Principal, l.ID)
			return err
		})
	}
}

func (w *world) release() {
	if l, ok := w.any(); ok {
		w.do("release", w.clock(), func(ctx context.Context) error {
			_, err := w.registry.Release(ctx, w.at, l.Principal, l.ID)
			return err
		})
	}
}

// scan claims due leases, or extends them as named.
func (w *world) scan() {
	at, named := w.clock(), rapid.IntRange(0, 4).Draw(w.T, "named") == 0
	due, _, err := w.registry.due(context.Background(), at, "", 2)
	if err != nil {
		w.Fatal(err)
	}
	for i := range due {
		r := &due[i]
		if named && r.Value.State != Cleaning {
			w.do("extend", at, func(ctx context.Context) error {
				w.named = true
				defer func() { w.named = false }()
				return w.registry.extend(ctx, at, r)
			})
			continue
		}
		w.do("claim", w.clock(), func(ctx context.Context) error { // it has taken its time, or the clock was set
			claim, ok, err := w.registry.claim(ctx, w.at, r)
			if ok {
				w.claims = append(w.claims, claim)
			}
			return err
		})
	}
}

// conclude finishes a clean-up, maybe after its claim has become stale.
func (w *world) conclude() {
	if len(w.claims) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.claims)-1).Draw(w.T, "cleaner")
	claim := w.claims[i]
	w.claims = slices.Delete(w.claims, i, i+1)
	var failure error
	if rapid.Bool().Draw(w.T, "fails") {
		failure = errors.New("no")
	}
	w.do("conclude", w.clock(), func(ctx context.Context) error {
		w.claim = &claim.Value
		_, err := w.registry.conclude(ctx, w.at, claim, failure)
		return err
	})
}

func (w *world) wait() {
	w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 20, 45, 299, 310, 4000}).Draw(w.T, "wait")) * time.Second)
}

// another runs another operation between the read and the write of the next one.
func (w *world) another() {
	other := rapid.SampledFrom([]func(){w.take, w.touch, w.release, w.scan, w.conclude}).Draw(w.T, "meanwhile")
	w.disk.before = func() {
		dies := w.disk.dies
		w.disk.dies = 0
		other()
		w.disk.dies = dies
	}
}

// crash has the process die at one of the next commits.
func (w *world) crash() {
	w.disk.dies, w.disk.delayed = rapid.IntRange(1, 3).Draw(w.T, "commit"), rapid.Bool().Draw(w.T, "late")
	w.step()
	w.disk.dies, w.disk.before = 0, nil
	w.boot() // the cleaners of the dead process still conclude, as those of another process would
}

func (w *world) step() {
	rapid.SampledFrom([]func(){w.take, w.touch, w.release, w.scan, w.scan, w.conclude, w.conclude}).Draw(w.T, "step")()
}

// check compares all that is stored with the model.
func (w *world) check() {
	var want, held []string
	perPrincipal := map[string]int{}
	for _, l := range w.last {
		want = append(want, leaseKey(l.Principal, l.ID))
		if l.State == Gone {
			want = append(want, timeKey(oldPrefix, l.ReleasedAt.Add(time.Hour), l.ID))
			continue
		}
		held = append(held, identityKey(&l.Identity))
		want = append(want, timeKey(duePrefix, l.Due(), l.ID))
		perPrincipal[l.Principal]++
	}
	want = append(want, held...)
	slices.Sort(want)
	if len(slices.Compact(slices.Clone(want))) != len(want) {
		w.Fatalf("two leases are on one thing: %v", want)
	}
	var got []string
	for _, prefix := range []string{duePrefix, identityPrefix, leasePrefix, oldPrefix} {
		err := w.disk.Records(context.Background(), prefix, "", func(rec store.Record) bool {
			got = append(got, rec.Key)
			return true
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.Fatalf("stored is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !maps.Equal(w.registry.leaseTable.quota.n, perPrincipal) {
		w.Fatalf("counted are %v, want %v", w.registry.leaseTable.quota.n, perPrincipal)
	}
}

// finish waits long enough: nothing that is due is forgotten.
func (w *world) finish() {
	w.now = w.now.Add(2 * cleanupBackoff.Max)
	s := &Scanner{Store: w.registry, Handlers: handlers(w.T, func(context.Context, Lease, int) error { return nil }), Now: func() time.Time { return w.now }}
	w.disk.wrote = nil
	for range len(w.last) + 1 {
		rep, err := s.Scan(context.Background(), Request{})
		if err != nil || rep.Failed > 0 {
			w.Fatalf("the last scan: %+v, %v", rep, err)
		}
	}
	for id := range w.last {
		l, err := w.registry.Lease(context.Background(), w.last[id].Principal, id)
		if err != nil || l.State != Gone {
			w.Fatalf("a lease that is over was forgotten: %+v, %v", l, err)
		}
	}
}

type fataler interface{ Fatal(args ...any) }

func handlers(t fataler, f HandlerFunc) Handlers {
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
		defer func() { _ = st.Close() }() // the test is over
		w := &world{T: t, disk: &disk{Store: st}, now: begin, last: map[arcp.LeaseID]Lease{}, success: map[arcp.LeaseID]int{}}
		w.disk.wrote = w.wrote
		w.boot()
		for range rapid.IntRange(1, steps).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "turn") {
			case 0, 1, 2:
				w.wait()
			case 3, 4:
				w.another()
				w.step()
				w.disk.before = nil
			case 5:
				w.crash()
			default:
				w.step()
			}
			w.check()
		}
		w.finish()
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
