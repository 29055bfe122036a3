package mem_test

import (
	"context"
	"fmt"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// Of two writes that change the same revision of a record, only one happens.
func ExampleOpen() {
	st := mem.Open(mem.Options{})
	writes := []*store.Write{
		store.NewWrite().Put(store.Record{Key: "color", Value: []byte("red")}),
		store.NewWrite().Put(store.Record{Key: "color", Value: []byte("blue")}),
	}
	results := make([]store.Result, len(writes))
	if err := st.Commit(writes, results); err != nil {
		fmt.Println(err)
	}
	rec, err := st.Get(context.Background(), "color")
	fmt.Println(string(rec.Value), err)
	fmt.Println(results[0].Err, results[1].Err != nil)
	// Output:
	// red <nil>
	// <nil> true
}
