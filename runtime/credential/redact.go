package credential

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

const (
	anchorLen  = 8
	filterBits = 16

	// maxValues bounds the known values. It exceeds the number of live credentials. When it is
	// reached, the values forgotten first are dropped.
	maxValues = 50_000

	// forgetAfter is how long a revoked value is still redacted: output written before the
	// revocation may still be buffered.
	forgetAfter = 10 * time.Minute
)

// Redactor finds credential values in output. The zero value is ready and knows no values. A
// Redactor may be used by many goroutines.
//
// The input is scanned once, however many values are known. Eight bytes of each value are its
// anchor; all anchors are searched at once. Around an anchor the value is compared character
// by character, both as plain text and as JSON escapes, also in JSON within JSON.
type Redactor struct {
	known atomic.Int64 // len(values); read without the lock

	mu      sync.RWMutex
	values  map[Secret]*value
	anchors map[uint64][]*value
	filter  []uint32 // number of anchors by hash
	old     []*value // forgotten ones in the order of Forget; some were added again
	timer   *time.Timer
	closed  bool
}

type value struct {
	text string
	at   int       // of the anchor in text
	uses int       // 0: forgotten
	old  int       // number of entries in Redactor.old
	gone time.Time // time of the last Forget
}

// Add adds a value to the redacted ones. Each Add needs its own Forget.
func (r *Redactor) Add(s Secret) {
	if len(s) < minValue {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.values[s]; v != nil {
		v.uses++
		return
	}
	if r.values == nil {
		r.values, r.anchors = make(map[Secret]*value), make(map[uint64][]*value)
		r.filter = make([]uint32, 1<<filterBits)
	}
	for len(r.values) >= maxValues && len(r.old) > 0 {
		r.dropLocked()
	}
	v := &value{text: string(s), at: anchor(string(s)), uses: 1}
	r.values[s] = v
	key := v.key()
	r.anchors[key] = append(r.anchors[key], v)
	r.filter[slot(key)]++
	r.known.Store(int64(len(r.values)))
}

// Forget undoes one Add. The value is still redacted for forgetAfter.
func (r *Redactor) Forget(s Secret) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.values[s]
	if v == nil || v.uses == 0 {
		return
	}
	if v.uses--; v.uses > 0 || r.closed {
		return
	}
	v.gone = time.Now()
	v.old++
	r.old = append(r.old, v)
	if len(r.old) == 1 {
		r.armLocked()
	}
}

// close stops the timer that drops forgotten values.
func (r *Redactor) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// armLocked sets the timer for the value that was forgotten first.
func (r *Redactor) armLocked() {
	d := time.Until(r.old[0].gone.Add(forgetAfter))
	if r.timer == nil {
		r.timer = time.AfterFunc(d, r.expire)
	} else {
		r.timer.Reset(d)
	}
}

func (r *Redactor) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := time.Now().Add(-forgetAfter)
	for len(r.old) > 0 && !r.old[0].gone.After(limit) {
		r.dropLocked()
	}
	if len(r.old) > 0 && !r.closed {
		r.armLocked()
	}
}

// dropLocked drops the first of old, unless the value was added again, or has a later entry in
// old.
func (r *Redactor) dropLocked() {
	v := r.old[0]
	r.old[0] = nil
	r.old = r.old[1:]
	if v.old--; v.uses > 0 || v.old > 0 {
		return
	}
	delete(r.values, Secret(v.text))
	r.known.Store(int64(len(r.values)))
	key := v.key()
	r.filter[slot(key)]--
	list := r.anchors[key]
	for i := range list {
		if list[i] == v {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if r.anchors[key] = list; len(list) == 0 {
		delete(r.anchors, key)
	}
}

// Found reports whether b contains a value.
func (r *Redactor) Found(b []byte) bool {
	if r.known.Load() == 0 {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	from, _ := r.nextLocked(b, 0)
	return from >= 0
}

// Scrub returns a copy of b with every value replaced by [redacted], or b itself if it
// contains none. Valid JSON stays valid.
func (r *Redactor) Scrub(b []byte) []byte {
	if r.known.Load() == 0 {
		return b
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	from, to := r.nextLocked(b, 0)
	if from < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	done := 0
	for from >= 0 {
		out = append(append(out, b[done:from]...), arcp.Redacted...)
		done = to
		from, to = r.nextLocked(b, done)
	}
	return append(out, b[done:]...)
}

// nextLocked returns the bounds of the next value at or after floor, or -1. Overlapping values
// count as one.
func (r *Redactor) nextLocked(b []byte, floor int) (from, to int) {
	from = -1
	for i, end := floor, len(b); i+anchorLen <= end; i++ {
		key := binary.LittleEndian.Uint64(b[i:])
		if r.filter[slot(key)] == 0 {
			continue
		}
		for _, v := range r.anchors[key] {
			f, t := v.match(b, i, floor)
			switch {
			case f < 0:
				continue
			case from < 0:
				from, to = f, t
			case f < to && t > from:
				from, to = min(from, f), max(to, t)
			}
			end = min(len(b), to+maxValue) // where a value that has this one in it has its anchor
		}
	}
	if from < 0 {
		return -1, -1
	}
	return skipEscape(b, from, to), to
}

// skipEscape moves the start of a match that begins within a JSON escape behind the escape, so that
// the JSON stays valid. An example is the match of "nabcdefgh" in \nabcdefgh.
func skipEscape(b []byte, from, to int) int {
	n := 0
	for from > n && b[from-n-1] == '\\' {
		n++
	}
	if n%2 == 0 || !escape(b[from:to]) {
		return from
	}
	if b[from] == 'u' {
		return from + 5
	}
	return from + 1
}

// escape reports whether a backslash before b makes an escape.
func escape(b []byte) bool {
	switch b[0] {
	case 'b', 'f', 'n', 'r', 't', '/':
		return true
	case 'u':
		_, ok := hex4(b[1:])
		return ok
	}
	return false
}

// match compares the value with the text around the anchor at i.
func (v *value) match(b []byte, i, floor int) (from, to int) {
	from, to = backward(b, i, floor, v.text[:v.at]), forward(b, i+anchorLen, v.text[v.at+anchorLen:])
	if from < 0 || to < 0 {
		return -1, -1
	}
	return from, to
}

// forward returns the end of the match of s that begins at i, or -1.
func forward(b []byte, i int, s string) int {
	for k := range len(s) {
		switch {
		case i < len(b) && b[i] == s[k]:
			i++
			continue
		case i >= len(b) || b[i] != '\\':
			return -1
		}
		for i < len(b) && b[i] == '\\' {
			i++
		}
		if i < len(b) && b[i] == s[k] {
			i++
			continue
		}
		if i >= len(b) || b[i] != 'u' {
			return -1
		}
		if c, ok := hex4(b[i+1:]); !ok || c != s[k] {
			return -1
		}
		i += 5
	}
	return i
}

// backward returns the start of the match of s that ends at i, or -1.
func backward(b []byte, i, floor int, s string) int {
	for k := len(s) - 1; k >= 0; k-- {
		escaped := false
		switch {
		case i > floor && b[i-1] == s[k]:
			i--
			escaped = s[k] == '/'
		case i-6 >= floor && b[i-5] == 'u' && b[i-6] == '\\':
			if c, ok := hex4(b[i-4:]); !ok || c != s[k] {
				return -1
			}
			i -= 5
			escaped = true
		default:
			return -1
		}
		for escaped && i > floor && b[i-1] == '\\' {
			i--
		}
	}
	return i
}

// hex4 decodes the four hex digits of an escaped ASCII character.
func hex4(b []byte) (byte, bool) {
	if len(b) < 4 || b[0] != '0' || b[1] != '0' {
		return 0, false
	}
	hi, ok1 := nibble(b[2])
	lo, ok2 := nibble(b[3])
	return hi<<4 | lo, ok1 && ok2
}

func nibble(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// anchor returns the eight bytes of a value to search for: the middle of the longest part
// without escaped characters. Values are least likely to share the middle.
func anchor(s string) int {
	best, bestLen := 0, 0
	for i := 0; i < len(s); {
		n := 0
		for i+n < len(s) && plain(s[i+n]) {
			n++
		}
		if n > bestLen {
			best, bestLen = i, n
		}
		i += n + 1
	}
	if bestLen < anchorLen {
		return 0
	}
	return best + (bestLen-anchorLen)/2
}

func plain(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '-' || c == '_' || c == '.' || c == '~'
}

func (v *value) key() uint64 {
	return binary.LittleEndian.Uint64([]byte(v.text[v.at : v.at+anchorLen]))
}

func slot(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> (64 - filterBits) }
