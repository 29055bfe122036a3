package transport

import (
	"bytes"
	"testing"
)

// Small parts of a large frame do not copy the frame each time.
func TestFrameGrowsByAQuarter(t *testing.T) {
	frame := make([]byte, 1<<20)
	moved := 0
	for range 100_000 {
		before := cap(frame)
		frame = growFrame(frame, 1)
		if cap(frame) != before {
			moved++
		}
		frame = append(frame, 0)
	}
	if moved != 1 {
		t.Errorf("100,000 bytes moved a frame of 1 MiB %d times, want once", moved)
	}
	if got := cap(growFrame(make([]byte, BufferSize), 8<<20)); got > 6*BufferSize {
		t.Errorf("%d bytes have room for %d", BufferSize, got)
	}
}

// A frame grows into released memory, in two steps and with its bytes.
func TestFrameGrowsIntoReleasedMemory(t *testing.T) {
	const size = 1 << 20
	for range 1000 { // the pools may drop memory
		first, last := make([]byte, frameSize(5*BufferSize)), make([]byte, frameSize(size))
		ReleaseFrame(first[40:]) // without a header
		ReleaseFrame(last[40:])
		frame := bytes.Repeat([]byte("x"), BufferSize)
		for len(frame) < size {
			frame = growFrame(frame, size-len(frame))
			frame = append(frame, bytes.Repeat([]byte("x"), min(cap(frame), size)-len(frame))...)
		}
		if bytes.Count(frame, []byte("x")) != size {
			t.Fatal("growFrame has changed the received bytes")
		}
		if first[40] == 'x' && last[40] == 'x' {
			return
		}
	}
	t.Error("released memory was never used")
}

// Memory is kept only for frames between the two bounds, and used only for frames of about its size.
func TestReleasedMemoryIsBounded(t *testing.T) {
	ReleaseFrame(nil)
	ReleaseFrame(make([]byte, minReleased-1))
	ReleaseFrame(make([]byte, maxReleased+1))
	for _, c := range []struct{ released, wanted int }{{minReleased, minReleased + 1}, {2*minReleased - 1, minReleased}, {maxReleased, 5 << 20}} {
		ReleaseFrame(make([]byte, c.released))
		if got := releasedFrame(c.wanted); got != nil && (cap(got) < c.wanted || cap(got) > c.wanted+c.wanted/4+BufferSize) {
			t.Errorf("memory of %d bytes is used for %d", cap(got), c.wanted)
		}
	}
	if releasedFrame(minReleased-1) != nil || releasedFrame(maxReleased+1) != nil {
		t.Error("memory outside of the bounds is kept")
	}
}
