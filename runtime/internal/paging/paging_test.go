package paging

import (
	"bytes"
	"testing"
	"time"
)

// A cursor is good for its own scope and key only, and unchanged.
func TestCursors(t *testing.T) {
	c, other := NewCursors(bytes.Repeat([]byte{1}, 32)), NewCursors(bytes.Repeat([]byte{2}, 32))
	scope := []byte("list\x00alice")
	at := time.Unix(1, 5)
	byTime, byKey := c.SealTime(at, "job_1", scope), c.SealKey("k/1", scope)
	if got, id, ok := c.OpenTime(byTime, scope); !ok || id != "job_1" || !got.Equal(at) {
		t.Errorf("OpenTime = %v, %q, %t", got, id, ok)
	}
	if key, err := c.OpenKey(byKey, scope); err != nil || key != "k/1" {
		t.Errorf("OpenKey = %q, %v", key, err)
	}
	if key, err := c.OpenKey("", scope); err != nil || key != "" {
		t.Errorf("OpenKey of no cursor = %q, %v", key, err)
	}
	for why, is := range map[string]struct {
		c         *Cursors
		time, key string
		scope     []byte
	}{
		"another scope":     {c, byTime, byKey, []byte("list\x00bob")},
		"another key":       {other, byTime, byKey, scope},
		"a shorter one":     {c, byTime[:len(byTime)-4], byKey[:len(byKey)-4], scope},
		"no base64":         {c, "!", "!", scope},
		"of the other kind": {c, byKey, byTime, scope},
	} {
		if _, _, ok := is.c.OpenTime(is.time, is.scope); ok {
			t.Errorf("%s: OpenTime takes it", why)
		}
		if _, err := is.c.OpenKey(is.key, is.scope); err == nil {
			t.Errorf("%s: OpenKey takes it", why)
		}
	}
}
