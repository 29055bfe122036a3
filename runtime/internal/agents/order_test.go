package agents

import (
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/runtime/store"
)

var eventID = regexp.MustCompile(eventPrefix + `[0-9A-Z]+`)

// The ids of events of concurrent emitters ascend in the order of their commits.
func TestIDsAscend(t *testing.T) {
	const emitters, each = 8, 50 // fits into a ring
	f := newFixture(t)
	var all sync.WaitGroup
	for i := range emitters {
		all.Go(func() {
			for n := range each {
				f.Emit("alice", Event{Kind: "x", Message: strconv.Itoa(i*each + n)})
			}
		})
	}
	all.Wait()
	f.flush(t)
	var ring, feed []string
	for _, e := range f.Events("alice", emitters*each) {
		ring = append(ring, e.ID)
	}
	slices.Reverse(ring) // it has the newest first
	if err := f.st.Feed(t.Context(), "alice", 0, func(e store.FeedEvent) bool {
		feed = append(feed, eventID.FindString(string(e.Event.Body)))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for name, ids := range map[string][]string{"the ring": ring, "the feed": feed} {
		if len(ids) != emitters*each || !slices.IsSorted(ids) {
			t.Errorf("%s has %d ids, ascending: %v", name, len(ids), slices.IsSorted(ids))
		}
	}
}
