package pebble_test

import (
	"testing"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/pebble"
	"github.com/arcpd/arcpd/runtime/store/storetest"
)

func open(t testing.TB, dir string) store.Store {
	t.Helper()
	st, err := pebble.Open(dir, pebble.Options{Errorf: t.Errorf})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestStore(t *testing.T) { storetest.Run(t, open, true) }

func BenchmarkStore(b *testing.B) { storetest.Bench(b, open) }

func BenchmarkFsync(b *testing.B) { storetest.BenchFsync(b) }
