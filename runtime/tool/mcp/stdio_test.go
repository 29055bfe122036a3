package mcp

import (
	"slices"
	"strings"
	"testing"
)

// The id of a message that is too large is read from the outermost object, at any position.
func TestIDOfALargeMessage(t *testing.T) {
	for text, want := range map[string]any{
		`{"jsonrpc":"2.0","id":7,"result":{"id":8}}`:                           int64(7),
		`{"result":{"id":8,"x":[{"id":9}],"s":"}],\"id\":1,\\"},"id":"a:\"b"}`: `a:"b`,
		` [ {"id":1} ] `:              nil,
		`{"result":{"id":8}}`:         nil,
		`{"id":{"x":1},"result":1}`:   nil,
		`{"id" : 12 , "result":"id"}`: int64(12),
		`{"idx":1,"id":"` + strings.Repeat("x", maxIDMember) + `"}`: nil,
	} {
		for _, size := range []int{1, 3, 1000} {
			var s idScanner
			for part := range slices.Chunk([]byte(text), size) {
				s.scan(part)
			}
			if got := s.id.Raw(); got != want {
				t.Errorf("id of %s = %v, want %v", text, got, want)
			}
		}
	}
}
