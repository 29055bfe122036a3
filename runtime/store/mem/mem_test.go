package mem_test

import (
	"testing"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(testing.TB, string) store.Store { return mem.Open(mem.Options{}) }, false)
}
