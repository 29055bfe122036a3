package transport

import "sync"

// buffer is the memory of one write or one read. Connections borrow it from
// the pool while they have something to move and hold none while idle.
type buffer [BufferSize]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// spare outlives garbage collections, which empty the pool: making a buffer
// costs more than most reads. It holds at most 4 MiB.
var spare = make(chan *buffer, 64)

func getBuffer() *buffer {
	select {
	case b := <-spare:
		return b
	default:
		return buffers.Get().(*buffer)
	}
}

// putBuffer returns an unused slice to the pool. Slices that did not come from the pool are
// left to the garbage collector.
func putBuffer(p []byte) {
	if cap(p) != BufferSize {
		return
	}
	select {
	case spare <- (*buffer)(p[:BufferSize]):
	default:
		buffers.Put((*buffer)(p[:BufferSize]))
	}
}

// appendBuffer appends p to dst in memory from the pool. Beyond the pool's size the memory
// grows with the bytes that have arrived.
func appendBuffer(dst, p []byte) []byte {
	if dst == nil {
		dst = getBuffer()[:0]
	}
	longer := append(dst, p...)
	if cap(longer) != cap(dst) {
		putBuffer(dst)
	}
	return longer
}
