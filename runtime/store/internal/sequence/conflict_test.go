package sequence

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// conflictModel defines hasConflicts: it compares each operation with those of every other write.
func conflictModel(w *store.Write) bool {
	all := append(slices.Clone(w.With), w)
	for i, a := range all {
		if i < len(w.With) && len(a.With) > 0 {
			return true
		}
		for j, b := range all {
			if i != j && slices.ContainsFunc(a.Ops, func(a store.Op) bool {
				return slices.ContainsFunc(b.Ops, func(b store.Op) bool { return opConflicts(a, b) })
			}) {
				return true
			}
		}
	}
	return false
}

// opConflicts reports whether a changes a record or a job that b is about.
func opConflicts(a, b store.Op) bool {
	switch a := a.(type) {
	case *store.PutRecord:
		o, ok := b.(*store.PutRecord)
		return ok && o.Key == a.Key
	case *store.AppendEvents:
		return a.Job != "" && jobOf(b) == a.Job
	case *store.DeliverUnlogged:
		return a.Job != "" && jobOf(b) == a.Job
	case *store.DeleteJob:
		return a.Job != "" && jobOf(b) == a.Job
	}
	return false
}

// randomOp returns an operation about one of n jobs or records. Some have an empty id or key.
func randomOp(r *rand.Rand, n int) store.Op {
	name := ""
	if i := r.IntN(n + 1); i > 0 {
		name = fmt.Sprint("x", i)
	}
	job := arcp.JobID(name)
	return []store.Op{
		&store.PutRecord{Key: name},
		&store.PutRecord{Key: name},
		&store.SubmitJob{Row: &store.Job{ID: job}},
		&store.Follow{Job: job},
		&store.Unfollow{Job: job},
		&store.DeliverEvent{Job: job},
		&store.AppendEvents{Job: job},
		&store.DeliverUnlogged{Job: job},
		&store.DeleteJob{Job: job},
		&store.DeleteJob{Job: job},
		&store.EndSession{Session: arcp.SessionID(name)},
	}[r.IntN(11)]
}

func randomWrite(r *rand.Rand, names int) *store.Write {
	w := new(store.Write)
	for range r.IntN(4) {
		w.Add(randomOp(r, names))
	}
	return w
}

func TestConflictsAreThoseOfAllPairs(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	found := map[bool]int{}
	for range 50_000 {
		names := 1 + r.IntN(8)
		w := randomWrite(r, names)
		for range r.IntN(5) {
			part := randomWrite(r, names)
			if r.IntN(50) == 0 {
				part.With = []*store.Write{{}}
			}
			w.With = append(w.With, part)
		}
		want := conflictModel(w)
		found[want]++
		if got := hasConflicts(w); got != want {
			t.Fatalf("seed %d: hasConflicts = %v, the model %v: %s", seed, got, want, describe(w))
		}
	}
	if found[true] < 1000 || found[false] < 1000 {
		t.Errorf("writes with and without conflicts: %v", found)
	}
}

func describe(w *store.Write) (text string) {
	for _, op := range w.Ops {
		text += fmt.Sprintf("%T %+v; ", op, op)
	}
	for _, part := range w.With {
		text += "[" + describe(part) + "] "
	}
	return text
}

// handoffs returns a write of n writes that change a job and two records each.
func handoffs(n int) *store.Write {
	w := new(store.Write)
	for i := range n {
		id := arcp.JobID(fmt.Sprintf("job_%08d", i))
		w.With = append(w.With, store.NewWrite(&store.Follow{Job: id}, &store.AppendEvents{Job: id}, &store.Unfollow{Job: id},
			&store.PutRecord{Key: string(id)}, &store.PutRecord{Key: "of " + string(id)}))
	}
	return w
}

// To compare all pairs of these writes would take hours.
func TestConflictsOfManyWrites(t *testing.T) {
	w := handoffs(200_000)
	if hasConflicts(w) {
		t.Error("writes of different jobs conflict")
	}
	w.Add(&store.Follow{Job: jobOf(w.With[0].Ops[0])})
	if !hasConflicts(w) {
		t.Error("the write follows a job that the first one with it changes: no conflict")
	}
}

func TestConflictsOfOneWriteAllocateNothing(t *testing.T) {
	w := handoffs(1).With[0]
	if n := testing.AllocsPerRun(100, func() { hasConflicts(w) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkConflicts(b *testing.B) {
	for _, n := range []int{1, 1000, 10_000} {
		w := handoffs(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				hasConflicts(w)
			}
		})
	}
}

// recordWrite returns a write of n records and one operation of another type in the middle.
func recordWrite(n int) *store.Write {
	w := new(store.Write)
	for i := range n {
		if i == n/2 {
			w.Add(&store.ReadFeedPosition{Principal: "alice"})
		}
		w.Add(&store.PutRecord{Key: fmt.Sprintf("record/%06d", i), Value: []byte("1")})
	}
	return w
}

func TestRepeatedRecordIsRefused(t *testing.T) {
	for _, n := range []int{2, smallWrite, smallWrite + 1, smallWrite + 2, 3 * smallWrite} {
		for i := range n {
			for j := range i {
				ops := recordWrite(n).Ops
				key := ops[j]
				ops[i] = key
				core := New(new(stub), new(arcp.IDSource), 0)
				_, twice := key.(*store.PutRecord)
				if d := core.check(&store.Write{Ops: ops}); !errors.Is(d.refused, store.ErrInvalid) {
					t.Errorf("%d operations, operation %d is operation %d (a record: %v): %v", n, i, j, twice, d.refused)
				}
			}
		}
		core := New(new(stub), new(arcp.IDSource), 0)
		if d := core.check(recordWrite(n)); !d.allows() {
			t.Errorf("%d different records: %v", n, d.refused)
		}
	}
}
