package machine

import (
	"hash/maphash"

	"github.com/arcpd/arcpd/arcp"
)

var seed = maphash.MakeSeed()

// dedup remembers the last dedupWindow message ids by a 64 bit keyed hash, so
// that a busy session costs 200 kB and an idle one nothing.
type dedup struct {
	set  map[uint64]struct{}
	ring []uint64
	next int
}

// add reports whether the id is new, and remembers it.
func (d *dedup) add(id arcp.MessageID) bool {
	h := maphash.String(seed, string(id))
	if _, dup := d.set[h]; dup {
		return false
	}
	if d.set == nil {
		d.set = make(map[uint64]struct{})
	}
	if len(d.ring) < dedupWindow {
		d.ring = append(d.ring, h)
	} else {
		delete(d.set, d.ring[d.next])
		d.ring[d.next] = h
		d.next = (d.next + 1) % dedupWindow
	}
	d.set[h] = struct{}{}
	return true
}
