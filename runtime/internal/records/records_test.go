package records_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/store"
)

type value struct {
	N int `json:"n"`
}

// reader has sorted records.
type reader []store.Record

func (r reader) Get(_ context.Context, key string) (store.Record, error) {
	for _, rec := range r {
		if rec.Key == key {
			return rec, nil
		}
	}
	return store.Record{Key: key}, nil
}

func (r reader) Records(_ context.Context, prefix, after string, fn func(store.Record) bool) error {
	for _, rec := range r {
		if len(rec.Key) >= len(prefix) && rec.Key[:len(prefix)] == prefix && rec.Key > after && !fn(rec) {
			break
		}
	}
	return nil
}

func table() records.Table[value] {
	var r reader
	for i, key := range []string{"t/a%2Fb/1", "t/a%2Fb/2", "t/c/1", "t/d/1"} {
		raw, _ := arcp.Marshal(value{i}) // a number
		r = append(r, store.Record{Key: key, Rev: uint64(i + 1), Value: raw})
	}
	r[3].Value = arcp.Raw("[")
	return records.Table[value]{Reader: r}
}

func TestTableReadsAndWritesRecords(t *testing.T) {
	row, err := table().Get(t.Context(), "t/c/1")
	if err != nil || row.Value.N != 2 || row.Rev != 3 || row.Size != len(`{"n":2}`) {
		t.Errorf("Get = %+v, %v", row, err)
	}
	if rec, err := row.Put(&value{7}); err != nil || rec.Key != "t/c/1" || rec.Rev != 3 || string(rec.Value) != `{"n":7}` {
		t.Errorf("Put = %+v, %v", rec, err)
	}
	if rec := row.Delete(); rec.Key != "t/c/1" || rec.Rev != 3 || rec.Value != nil {
		t.Errorf("Delete = %+v", rec)
	}
	if row, err := table().Get(t.Context(), "t/x"); err != nil || row.Rev != 0 || row.Key != "t/x" {
		t.Errorf("Get of no record = %+v, %v", row, err)
	}
	if _, err := table().Get(t.Context(), "t/d/1"); err == nil {
		t.Error("a value that is no JSON is read")
	}
	var got []int
	err = table().Scan(t.Context(), "t/", "t/a%2Fb/1", func(row records.Row[value], bad error) bool {
		if bad != nil {
			got = append(got, -1)
		} else {
			got = append(got, row.Value.N)
		}
		return true
	})
	if err != nil || !slices.Equal(got, []int{1, 2, -1}) {
		t.Errorf("Scan gave %v, %v", got, err)
	}
}

func TestCheckRefusesAValue(t *testing.T) {
	odd := errors.New("odd")
	tab := table()
	tab.Check = func(_ string, v *value) error {
		if v.N%2 == 1 {
			return odd
		}
		return nil
	}
	if _, err := tab.Get(t.Context(), "t/c/1"); err != nil {
		t.Errorf("Get = %v", err)
	}
	if _, err := tab.Get(t.Context(), "t/a%2Fb/2"); !errors.Is(err, odd) {
		t.Errorf("Get = %v, want %v", err, odd)
	}
}

func TestNextGroupListsEachGroupOnce(t *testing.T) {
	var names []string
	for after := ""; ; {
		name, end, err := records.NextGroup(t.Context(), table().Reader, "t/", after)
		if err != nil {
			t.Fatal(err)
		}
		if name == "" {
			break
		}
		names, after = append(names, name), end
	}
	if !slices.Equal(names, []string{"a/b", "c", "d"}) {
		t.Errorf("the groups are %v", names)
	}
	if got := records.Group("t/", "a/b"); got != "t/a%2Fb/" {
		t.Errorf("Group = %s", got)
	}
}

func TestRetryRepeatsOnlyConflicts(t *testing.T) {
	broken := errors.New("broken")
	n := 0
	err := records.Retry(func() error {
		if n++; n < 3 {
			return errors.Join(errors.New("write"), store.ErrConflict)
		}
		return broken
	})
	if n != 3 || !errors.Is(err, broken) {
		t.Errorf("%d tries, error %v", n, err)
	}
}
