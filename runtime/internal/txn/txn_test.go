package txn

import (
	"errors"
	"slices"
	"testing"

	"github.com/arcpd/arcpd/runtime/store"
)

// testLog has the appended writes. Each has the same result.
type testLog struct {
	err    error
	writes []*store.Write
}

func (l *testLog) Append(w *store.Write, done func(*store.Result)) {
	l.writes = append(l.writes, w)
	done(&store.Result{Err: l.err})
}

func write(ops ...store.Op) *store.Write { return &store.Write{Ops: ops} }

// An event of the caller is written before the end of its session, as a write of With.
func TestCombinePutsTheEndOfASessionLast(t *testing.T) {
	record, end := write(new(store.PutRecord)), write(&store.EndSession{Session: "sess_1"})
	own := write(new(store.AppendEvents))
	tests := []struct {
		name   string
		staged []*store.Write
		own    *store.Write
		want   *store.Write
		with   []*store.Write
		at     int
	}{
		{"own alone", nil, own, own, nil, -1},
		{"own after a record", []*store.Write{record}, own, own, []*store.Write{record}, -1},
		{"a change in memory only", []*store.Write{nil}, own, own, nil, -1},
		{"own before the end", []*store.Write{end}, own, end, []*store.Write{own}, 0},
		{"record and own before the end", []*store.Write{end, record}, own, end, []*store.Write{record, own}, 1},
		{"the end without own", []*store.Write{record, end}, nil, end, []*store.Write{record}, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var tx Txn
			for _, w := range tt.staged {
				tx.Add(Change{Write: w})
			}
			w, at := tx.Combine(tt.own)
			if w != tt.want || at != tt.at {
				t.Errorf("Combine = %v, %d, want %v, %d", w.Ops, at, tt.want.Ops, tt.at)
			}
			if !slices.Equal(w.With, tt.with) {
				t.Errorf("With = %v, want %v", w.With, tt.with)
			}
		})
	}
}

func TestFinishCallsEveryDoneOnce(t *testing.T) {
	refused := errors.New("refused")
	var tx Txn
	var got []error
	done := func(err error) { got = append(got, err) }
	tx.Add(Change{Done: done})
	tx.Add(Change{}) // without Done
	tx.Add(Change{Done: done})
	tx.Finish(refused)
	tx.Finish(nil)
	if want := []error{refused, refused}; !slices.Equal(got, want) {
		t.Errorf("errors = %v, want %v", got, want)
	}
}

func TestAppendWritesNothingIfFillFails(t *testing.T) {
	failed := errors.New("failed")
	var tx Txn
	tx.Add(Change{Write: write(), Fill: func() error { return failed }})
	log := new(testLog)
	w, _ := tx.Combine(write())
	var res *store.Result
	tx.Append(log, w, func(r *store.Result) { res = r })
	if res == nil || res.Err != failed || len(res.With) != len(w.With) {
		t.Errorf("result = %+v, want the error of Fill and %d results of With", res, len(w.With))
	}
	if len(log.writes) != 0 {
		t.Errorf("%d writes appended, want none", len(log.writes))
	}
}

// Without a transaction, Commit appends the write alone and returns its error.
func TestCommitWithoutATransaction(t *testing.T) {
	refused := errors.New("refused")
	log := &testLog{err: refused}
	w := write(new(store.PutRecord))
	var got error
	err := Committer{log}.Commit(t.Context(), w, func(err error) { got = err })
	if err != refused || got != refused {
		t.Errorf("Commit = %v, done got %v, want %v for both", err, got, refused)
	}
	if !slices.Equal(log.writes, []*store.Write{w}) || len(w.With) != 0 {
		t.Errorf("writes = %v with %v, want the write alone", log.writes, w.With)
	}
}

// In a transaction, Commit leaves the write and the call of done to its owner.
func TestCommitInATransaction(t *testing.T) {
	var tx Txn
	log := new(testLog)
	w := write(new(store.PutRecord))
	var done int
	if err := (Committer{log}).Commit(With(t.Context(), &tx), w, func(error) { done++ }); err != nil {
		t.Fatalf("Commit = %v, want nil", err)
	}
	if len(log.writes) != 0 || done != 0 {
		t.Errorf("%d writes and %d calls of done before the owner commits, want none", len(log.writes), done)
	}
	if combined, _ := tx.Combine(write()); !slices.Equal(combined.With, []*store.Write{w}) {
		t.Errorf("With = %v, want the staged write", combined.With)
	}
	tx.Finish(nil)
	if done != 1 {
		t.Errorf("done was called %d times, want once", done)
	}
}

// ErrorOf names the refused write of a group, not only the group.
func TestErrorOfJoinsTheErrorsOfAGroup(t *testing.T) {
	err := ErrorOf(&store.Result{Err: store.ErrTogether, With: []store.Result{{}, {Err: store.ErrConflict}}})
	if !errors.Is(err, store.ErrTogether) || !errors.Is(err, store.ErrConflict) {
		t.Errorf("ErrorOf = %v, want both ErrTogether and ErrConflict", err)
	}
	if err := ErrorOf(new(store.Result)); err != nil {
		t.Errorf("ErrorOf of a durable write = %v, want nil", err)
	}
}
