package engine

import "sync"

// scratches hold the encoding of a payload until it has become part of an
// event.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// maxScratch bounds what is kept for the next payload.
const maxScratch = 64 << 10

// recycle takes back a scratch that has grown to raw.
func recycle(scratch *[]byte, raw []byte) {
	if cap(raw) <= maxScratch {
		*scratch = raw[:0]
		scratches.Put(scratch)
	}
}
