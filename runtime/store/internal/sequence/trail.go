package sequence

import (
	"cmp"
	"slices"
)

// trail is a numbered list of pointers to events: the log of a session, or the feed of
// a principal. Numbers begin at 1 and have no gap.
type trail struct {
	last    uint64
	trimmed uint64
	used    uint64 // number of the last batch that used it
}

// trim deletes the pointers up to seq. It reports whether there were any.
func (t *trail) trim(seq uint64) bool {
	seq = min(seq, t.last)
	if seq <= t.trimmed {
		return false
	}
	t.trimmed = seq
	return true
}

func (t *trail) lastUsed() uint64 { return t.used }

// cached is an entry of a table in memory.
type cached interface {
	idle() bool // no live job points to it
	lastUsed() uint64
}

// evict removes the least recently used idle entries of a table that is past its limit,
// down to three quarters of the limit. Entries of live jobs stay. The limit grows with
// them, so that not every batch searches in vain.
func evict[K comparable, V cached](m map[K]V, limit *int) {
	if len(m) <= *limit {
		return
	}
	var idle []K
	for k, v := range m {
		if v.idle() {
			idle = append(idle, k)
		}
	}
	slices.SortFunc(idle, func(a, b K) int { return cmp.Compare(m[a].lastUsed(), m[b].lastUsed()) })
	pinned := len(m) - len(idle)
	for _, k := range idle[:min(len(m)-*limit/4*3, len(idle))] {
		delete(m, k)
	}
	if pinned > *limit/2 {
		*limit = 2 * pinned
	}
}
