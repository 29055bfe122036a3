package paging

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

func key(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

// A cursor is valid for its own scope and key only, and unchanged.
func TestCursorIsValidForItsScopeOnly(t *testing.T) {
	c, other := NewCursors(key(1)), NewCursors(key(2))
	const scope = "list\x00alice"
	cursor := c.seal("k/1", scope)
	if key, err := NewCursors(key(1)).open(cursor, scope); err != nil || key != "k/1" {
		t.Errorf("open = %q, %v", key, err)
	}
	if key, err := c.open("", scope); err != nil || key != "" {
		t.Errorf("open of no cursor = %q, %v", key, err)
	}
	for why, is := range map[string]struct {
		c             *Cursors
		cursor, scope string
	}{
		"another scope": {c, cursor, "list\x00bob"},
		"another key":   {other, cursor, scope},
		"a shorter one": {c, cursor[:len(cursor)-4], scope},
		"no base64":     {c, "!", scope},
		"no cursor":     {c, "AAAA", scope},
	} {
		_, err := is.c.open(is.cursor, is.scope)
		if e, ok := errors.AsType[*arcp.Error](err); !ok || e.Code != arcp.CodeInvalidArgument {
			t.Errorf("%s: error %v, want %s", why, err, arcp.CodeInvalidArgument)
		}
	}
}

// Pages hold every selected row once, whatever bounds them.
func TestPagesHoldEachRowOnce(t *testing.T) {
	rows := func(n, size int) func(string, Add[int]) error {
		return func(after string, add Add[int]) error {
			for i := range n {
				item := &i
				if i%3 == 0 {
					item = nil
				}
				if key := fmt.Sprintf("%06d", i); key > after && !add(key, size, item) {
					return nil
				}
			}
			return nil
		}
	}
	for why, c := range map[string]struct{ n, size, limit, bytes, pages int }{
		"no rows":             {0, 1, 0, 0, 1},
		"the limit":           {30, 1, 4, 0, 5},
		"the default limit":   {300, 1, 0, 0, 2},
		"bytes":               {12, 10, 100, 20, 6},
		"the scan":            {2*MaxScan + 1, 0, 100_000, 0, 3},
		"exactly as many":     {3, 1, 2, 0, 1},
		"one that is too big": {3, 100, 10, 50, 3},
	} {
		t.Run(why, func(t *testing.T) {
			cursors := NewCursors(key(1))
			var got []int
			r := Request{Scope: "rows", Limit: c.limit, MaxBytes: c.bytes}
			for pages := 1; ; pages++ {
				page, err := Page(cursors, r, rows(c.n, c.size))
				if err != nil || page.Items == nil {
					t.Fatalf("page %d: items %v, error %v", pages, page.Items, err)
				}
				got = append(got, page.Items...)
				if r.Cursor = page.NextCursor; r.Cursor == "" {
					if pages != c.pages {
						t.Errorf("%d pages, want %d", pages, c.pages)
					}
					break
				}
			}
			want := 0
			for i := range c.n {
				if i%3 != 0 {
					want++
				}
			}
			if len(got) != want || !slices.IsSorted(got) {
				t.Errorf("%d rows, want %d in their order", len(got), want)
			}
		})
	}
	failure := errors.New("broken")
	if _, err := Page(NewCursors(key(1)), Request{}, func(string, Add[int]) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("error %v, want %v", err, failure)
	}
}

func TestTimeKey(t *testing.T) {
	at := time.Unix(1, 5)
	if got, id := ParseTimeKey(TimeKey(at, "a/b")); !got.Equal(at) || id != "a/b" {
		t.Errorf("ParseTimeKey = %v, %q", got, id)
	}
	if got, id := ParseTimeKey(""); !got.IsZero() || id != "" {
		t.Errorf("ParseTimeKey of no key = %v, %q", got, id)
	}
	if TimeKey(at, "b") >= TimeKey(at.Add(time.Hour), "a") {
		t.Error("a later time does not have a larger key")
	}
}
