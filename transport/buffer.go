package transport

import "sync"

// buffer is the memory of one write or read. An idle connection has none.
type buffer [BufferSize]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// spare has up to 4 MiB of free buffers. Unlike the pool it survives garbage collections, because allocating
// a buffer costs more than most reads.
var spare = make(chan *buffer, 64)

func getBuffer() *buffer {
	select {
	case b := <-spare:
		return b
	default:
		return buffers.Get().(*buffer)
	}
}

// putBuffer returns a buffer to the pool. It ignores slices of other sizes.
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

// appendBuffer appends p to dst in memory from the pool. Above BufferSize the memory is allocated.
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

// growFrame makes room for n more bytes of a frame above BufferSize, or for a part of them: at most four times
// the bytes that the peer has sent, and at least a quarter of these, so that small fragments do not copy the
// frame each time.
func growFrame(frame []byte, n int) []byte {
	if len(frame) < cap(frame) {
		return frame
	}
	longer := make([]byte, len(frame), len(frame)+min(max(n, len(frame)/4), 4*len(frame)))
	copy(longer, frame)
	putBuffer(frame)
	return longer
}
