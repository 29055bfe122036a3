package session

import (
	"sync"
	"sync/atomic"
)

// Granularity of a ReplayWindow: the bytes of a session are known to a sixteenth of the
// bound, and the window is trimmed every replayStep events at most.
const (
	replayParts = 16
	replayStep  = 1024
)

// ReplayWindow bounds the stored events of a session without acknowledgements, by number and by
// bytes: the last ones that were written to it. All connections of the session share it. The
// zero value is ready for use, and small.
type ReplayWindow struct{ counts atomic.Pointer[replayCounts] }

// replayCounts are the counts of a session with written events.
type replayCounts struct {
	mu      sync.Mutex
	seq     uint64 // last counted event
	bytes   uint64 // of all counted events
	marks   []replayMark
	trimmed uint64
}

// replayMark is the number of bytes up to an event.
type replayMark struct{ seq, bytes uint64 }

// lock returns the locked counts.
func (w *ReplayWindow) lock() *replayCounts {
	c := w.counts.Load()
	for c == nil {
		w.counts.CompareAndSwap(nil, new(replayCounts))
		c = w.counts.Load()
	}
	c.mu.Lock()
	return c
}

// SetTrimmed sets the event up to which the session is trimmed.
func (w *ReplayWindow) SetTrimmed(trimmed uint64) {
	if trimmed == 0 {
		return
	}
	c := w.lock()
	defer c.mu.Unlock()
	c.trimmed = max(c.trimmed, trimmed)
}

// Count counts an event of size bytes that is about to be written, once. written is the last
// written event, events and bytes are the bounds. Count checks the bounds only after each
// replayStep events or a part of the bytes; checked reports that this call did. trim is the event
// up to which the session may be trimmed, at most written; else 0.
func (w *ReplayWindow) Count(seq uint64, size int, written, events, bytes uint64) (trim uint64, checked bool) {
	c := w.lock()
	defer c.mu.Unlock()
	if seq <= c.seq {
		return 0, false
	}
	c.seq = seq
	c.bytes += uint64(size)
	last := replayMark{seq: c.trimmed}
	if n := len(c.marks); n > 0 {
		last = c.marks[n-1]
	}
	if seq-last.seq < replayStep && c.bytes-last.bytes < bytes/replayParts {
		return 0, false
	}
	c.marks = append(c.marks, replayMark{seq, c.bytes})
	trim = min(seq-min(events, seq), written)
	n := 0
	for n < len(c.marks) && c.marks[n].seq <= written && (c.marks[n].seq <= trim || c.bytes-c.marks[n].bytes >= bytes) {
		trim = max(trim, c.marks[n].seq)
		n++
	}
	c.marks = append(c.marks[:0], c.marks[n:]...)
	if trim <= c.trimmed {
		return 0, true
	}
	c.trimmed = trim
	return trim, true
}
