package mem_test

import (
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// Trimming a feed frees the announced events, except for one piece.
func TestAnnouncedEventsAreFreed(t *testing.T) {
	s := mem.Open(mem.Options{})
	defer s.Close()
	commit := func(w *store.Write) {
		t.Helper()
		results := make([]store.Result, 1)
		if err := s.Commit([]*store.Write{w}, results); err != nil || results[0].Err != nil {
			t.Fatal(err, results[0].Err)
		}
	}
	const n, size = 2000, 1000
	payload := []byte(`{"x":"` + strings.Repeat("x", size) + `"}`)
	for range n {
		e := store.NewEvent(arcp.EventEmit, time.Unix(1, 0), new(store.JobContext), "", payload)
		commit(store.NewWrite(&store.Announce{Principal: "ann", Events: []*store.Event{e}}))
	}
	if full := s.Stat().Bytes; full < n*size {
		t.Fatalf("%d bytes are counted", full)
	}
	commit(store.NewWrite(&store.TrimFeed{Principal: "ann", Position: n - 1}))
	if left := s.Stat().Bytes; left < size || left > 300*2*size {
		t.Errorf("%d bytes are left", left)
	}
}
