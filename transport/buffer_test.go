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

// A frame grows into released memory, at once and with its bytes.
func TestFrameGrowsIntoReleasedMemory(t *testing.T) {
	received := bytes.Repeat([]byte("x"), BufferSize)
	const size = 1 << 20
	for range 1000 { // the pool may drop memory
		released := make([]byte, frameSize(size))
		ReleaseFrame(released[40:]) // without a header
		frame := growFrame(bytes.Clone(received), size-BufferSize)
		if cap(frame) < size {
			continue
		}
		if !bytes.Equal(frame, received) {
			t.Fatal("growFrame has changed the received bytes")
		}
		_ = append(frame, "y"...) // into released
		if released[40] == 'x' && released[40+BufferSize] == 'y' {
			return
		}
	}
	t.Error("released memory was never used")
}

// Memory is kept only for frames between the two bounds.
func TestReleasedMemoryIsBounded(t *testing.T) {
	for _, n := range []int{0, minReleased - 1, maxReleased + BufferSize + 1} {
		ReleaseFrame(make([]byte, n))
		if p, _ := largeFrames.Get().(*[]byte); p != nil && cap(*p) == n {
			t.Errorf("memory of %d bytes is kept", n)
		}
	}
	ReleaseFrame(make([]byte, minReleased))
	if got := releasedFrame(maxReleased); got != nil {
		t.Errorf("releasedFrame has %d bytes, fewer than asked for", cap(got))
	}
}
