package engine

import "sync"

// buffers hold the encoding of a payload until it is copied into an event.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxBuffer bounds the buffers that are used again, in bytes.
const maxBuffer = 64 << 10

// putBuffer puts back a buffer that has grown to raw.
func putBuffer(buffer *[]byte, raw []byte) {
	if cap(raw) <= maxBuffer {
		*buffer = raw[:0]
		buffers.Put(buffer)
	}
}
