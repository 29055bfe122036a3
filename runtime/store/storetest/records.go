package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/runtime/store"
)

func put(key string, rev uint64, value string) *store.Write {
	return store.NewWrite().Put(store.Record{Key: key, Rev: rev, Value: []byte(value)})
}

func (d *db) record(key string) store.Record {
	d.Helper()
	rec, err := d.Get(context.Background(), key)
	if err != nil || rec.Key != key {
		d.Fatalf("Get(%q) = %+v, %v", key, rec, err)
	}
	return rec
}

func testRecordsHaveRevisions(t *testing.T, open Open) {
	d := openEmpty(t, open)
	if rec := d.record("a"); rec.Rev != 0 || rec.Value != nil {
		t.Errorf("no record = %+v", rec)
	}
	d.refuse(put("a", 1, "x"), store.ErrConflict)
	d.do(put("a", 0, "one"))
	d.refuse(put("a", 0, "two"), store.ErrConflict)
	one := d.record("a")
	d.do(put("a", one.Rev, "two"))
	two := d.record("a")
	if two.Rev != one.Rev+1 || string(two.Value) != "two" {
		t.Errorf("changed record = %+v", two)
	}
	d.refuse(put("a", one.Rev, "three"), store.ErrConflict)
	d.do(put("empty", 0, ""))
	if rec := d.record("empty"); rec.Rev == 0 || rec.Value == nil || len(rec.Value) != 0 {
		t.Errorf("empty record = %+v", rec)
	}

	d.refuse(store.NewWrite().Put(store.Record{Key: "a", Rev: one.Rev}), store.ErrConflict)
	d.do(store.NewWrite().Put(store.Record{Key: "a", Rev: two.Rev}))
	if rec := d.record("a"); rec.Rev != 0 || rec.Value != nil {
		t.Errorf("deleted record = %+v", rec)
	}
	d.do(store.NewWrite().Put(store.Record{Key: "a"})) // deletes nothing
	d.do(put("a", 0, "new"))
	if rec := d.record("a"); rec.Rev <= two.Rev {
		t.Errorf("revision %d came back after %d", rec.Rev, two.Rev)
	}

	d.refuse(store.NewWrite().Put(store.Record{Key: "b", Value: []byte("1")}, store.Record{Key: "a", Rev: 99, Value: []byte("2")}),
		store.ErrConflict)
	if rec := d.record("b"); rec.Rev != 0 {
		t.Errorf("half of a refused write happened: %+v", rec)
	}
	d.refuse(store.NewWrite().Put(store.Record{Key: "b", Value: []byte("1")}, store.Record{Key: "b", Value: []byte("2")}), store.ErrInvalid)
	results := d.batch(put("c", 0, "1"), put("c", 0, "2"))
	if results[0].Err != nil || !errors.Is(results[1].Err, store.ErrConflict) || string(d.record("c").Value) != "1" {
		t.Errorf("two creations in one batch: %v, %v", results[0].Err, results[1].Err)
	}
}

func testRecordsAreListedByPrefix(t *testing.T, open Open) {
	d := openEmpty(t, open)
	var want []string
	for i := range 1500 {
		key := fmt.Sprintf("p/%04d", (i*7)%1500)
		d.do(put(key, 0, key))
	}
	for i := range 1500 {
		if key := fmt.Sprintf("p/%04d", i); i%3 == 0 {
			d.do(store.NewWrite().Put(store.Record{Key: key, Rev: d.record(key).Rev}))
		} else {
			want = append(want, key)
		}
	}
	d.do(put("p", 0, "before"))
	d.do(put("p0", 0, "after"))
	list := func(prefix, after string, limit int) (got []string) {
		err := d.Store.Records(context.Background(), prefix, after, func(rec store.Record) bool {
			if rec.Rev == 0 || prefix == "p/" && string(rec.Value) != rec.Key {
				t.Errorf("record %+v", rec)
			}
			got = append(got, rec.Key)
			return len(got) != limit
		})
		if err != nil {
			t.Fatalf("Records = %v", err)
		}
		return got
	}
	for _, c := range []struct {
		prefix, after string
		limit         int
		want          []string
	}{
		{"p/", "", 0, want}, {"p/", "p/", 0, want}, {"p/", want[200], 10, want[201:211]}, {"p/", "p/0003", 0, want[2:]},
		{"p/", "z", 0, nil}, {"q", "", 0, nil}, {"", "p/1499", 0, []string{"p0"}}, {"p", "o", 2, []string{"p", want[0]}},
	} {
		if diff := cmp.Diff(c.want, list(c.prefix, c.after, c.limit)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.prefix+" after "+c.after, diff)
		}
	}
}
