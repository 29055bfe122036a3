package transport

import "testing"

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
