package mem_test

import (
	"testing"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(testing.TB, string) store.Store { return mem.Open(mem.Options{}) })
}
