package runtime_test

import (
	"fmt"
	"strings"
	"testing"
)

// A page of sessions is bounded, whatever names their clients give themselves: an admin reads the sessions of
// all principals.
func TestPagesOfSessionsAreBounded(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		const sessions, kind = 100, 60 << 10
		for range sessions {
			p := f.connect(nil)
			p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":%q,"version":"1"}}`,
				token, strings.Repeat("k", kind)))
			p.expect("session.accepted")
		}
		page := f.dial("root").must("sessions.list", `{"limit":1000}`)
		items, _ := page["items"].([]any)
		if n := len(items) * kind; n > 5<<20 || page["next_cursor"] == nil {
			t.Errorf("a page has %d sessions of %d bytes, next_cursor %v", len(items), n, page["next_cursor"])
		}
	})
}
