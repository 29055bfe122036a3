package pebble_test

import (
	"context"
	"fmt"
	"os"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/pebble"
)

// A record is still stored when the directory is opened again.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	st, err := pebble.Open(dir, pebble.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	write := store.NewWrite().Put(store.Record{Key: "color", Value: []byte("red")})
	if err := st.Commit([]*store.Write{write}, make([]store.Result, 1)); err != nil {
		fmt.Println(err)
	}
	if err := st.Close(); err != nil {
		fmt.Println(err)
	}
	if st, err = pebble.Open(dir, pebble.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	defer st.Close()
	rec, err := st.Get(context.Background(), "color")
	fmt.Println(string(rec.Value), err)
	// Output: red <nil>
}
