package session

import "sync"

// Granularity of a ReplayWindow: the bytes of a session are known to a sixteenth of the
// bound, and the window is trimmed every replayStep events at most.
const (
	replayParts = 16
	replayStep  = 1024
)

// ReplayWindow bounds the stored events of a session without acknowledgements, by number and by
// bytes: the last ones that were written to it. All connections of the session share it. The
// zero value is ready for use.
type ReplayWindow struct {
	mu      sync.Mutex
	seq     uint64 // last counted event
	bytes   uint64 // of all counted events
	marks   []replayMark
	trimmed uint64
}

// replayMark is the number of bytes up to an event.
type replayMark struct{ seq, bytes uint64 }

// Begin sets the event up to which the session is trimmed.
func (w *ReplayWindow) Begin(trimmed uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trimmed = max(w.trimmed, trimmed)
}

// Next counts an event of size bytes that is about to be written, once. written is the last
// written event, events and bytes are the bounds. Next checks the bounds only every so many
// events or bytes; look reports that this call did. trim is the event up to which the session
// may be trimmed, at most written; else 0.
func (w *ReplayWindow) Next(seq uint64, size int, written, events, bytes uint64) (trim uint64, look bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seq <= w.seq {
		return 0, false
	}
	w.seq = seq
	w.bytes += uint64(size)
	last := replayMark{seq: w.trimmed}
	if n := len(w.marks); n > 0 {
		last = w.marks[n-1]
	}
	if seq-last.seq < replayStep && w.bytes-last.bytes < bytes/replayParts {
		return 0, false
	}
	w.marks = append(w.marks, replayMark{seq, w.bytes})
	trim = min(seq-min(events, seq), written)
	n := 0
	for n < len(w.marks) && w.marks[n].seq <= written && (w.marks[n].seq <= trim || w.bytes-w.marks[n].bytes >= bytes) {
		trim = max(trim, w.marks[n].seq)
		n++
	}
	w.marks = append(w.marks[:0], w.marks[n:]...)
	if trim <= w.trimmed {
		return 0, true
	}
	w.trimmed = trim
	return trim, true
}
