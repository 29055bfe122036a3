package machine

import (
	"hash/maphash"

	"github.com/arcpd/arcpd/arcp"
)

var seed = maphash.MakeSeed()

// dedup is the set of the last dedupWindow message ids. It stores a keyed 64 bit hash of each:
// at most 200 kB a session.
type dedup struct {
	set  map[uint64]struct{}
	ring []uint64
	next int
}

// add adds an id, and reports whether it is new.
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
