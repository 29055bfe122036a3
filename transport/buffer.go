package transport

import (
	"math/bits"
	"sync"
)

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

// Bounds of the memory of frames that is used again, in bytes.
const (
	minReleased = 4 * BufferSize
	maxReleased = 8<<20 - 1
)

// largeFrames has released memory, by the power of 2 that its capacity reaches.
var largeFrames [8]sync.Pool

// releasedFrames returns the pool for memory of n bytes.
func releasedFrames(n int) *sync.Pool { return &largeFrames[bits.Len(uint(n))-bits.Len(minReleased)] }

// ReleaseFrame gives memory that KeepFrame has returned, or the rest of it behind a header, to later frames of all
// Conns. Nothing may use it afterwards. It ignores memory that is too small or too large to be worth that.
func ReleaseFrame(frame []byte) {
	if c := cap(frame); c >= minReleased && c <= maxReleased {
		frame = frame[:0]
		releasedFrames(c).Put(&frame)
	}
}

// releasedFrame returns released memory for n bytes, and for at most a quarter more and BufferSize; nil: there is
// none. Memory that does not fit is left to the garbage collector.
func releasedFrame(n int) []byte {
	if n < minReleased || n > maxReleased {
		return nil
	}
	p, _ := releasedFrames(n).Get().(*[]byte)
	if p == nil || cap(*p) < n || cap(*p) > n+n/4+BufferSize {
		return nil
	}
	return *p
}

// growFrame makes room for n more bytes of a frame above BufferSize, or for a part of them: at most four times
// the bytes that the peer has sent, and at least a quarter of these, so that small fragments do not copy the
// frame each time. It uses released memory if there is some, which may have a quarter more.
func growFrame(frame []byte, n int) []byte {
	if len(frame) < cap(frame) {
		return frame
	}
	size := len(frame) + min(max(n, len(frame)/4), 4*len(frame))
	longer := releasedFrame(size)
	if longer == nil {
		longer = make([]byte, 0, frameSize(size))
	}
	longer = append(longer, frame...)
	putBuffer(frame)
	ReleaseFrame(frame)
	return longer
}

// frameSize returns the size of new memory for a frame of n bytes. Memory that will be released has more than n:
// each use may cost it the bytes of a header.
func frameSize(n int) int {
	if n < minReleased {
		return n
	}
	return n + BufferSize
}
