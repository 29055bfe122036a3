package sequence

import (
	"cmp"
	"slices"
)

// trail is a numbered sequence of pointers to events: what a session was given,
// or a principal's feed. Numbers begin at 1 and have no gap.
type trail struct {
	last    uint64
	trimmed uint64
	used    uint64 // batch it was last asked for in
}

// trim forgets what has a number up to seq and reports whether that is news.
func (t *trail) trim(seq uint64) bool {
	seq = min(seq, t.last)
	if seq <= t.trimmed {
		return false
	}
	t.trimmed = seq
	return true
}

func (t *trail) lastUsed() uint64 { return t.used }

// cached is an entry of the cache that has a trail, and may have to stay in memory.
type cached interface {
	idle() bool // no live job points to it
	lastUsed() uint64
}

// evict bounds how many are in memory: those that were not used for longest go,
// down to three quarters of the limit. Those that a live job points to stay
// whatever the limit, which grows with them: or every batch would search in
// vain.
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
