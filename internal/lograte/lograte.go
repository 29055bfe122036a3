// Package lograte bounds the number of log lines about an event that others can repeat at will.
package lograte

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// PerMinute is the number of lines that a Limiter admits in a minute.
const PerMinute = 10

// Limiter admits the first PerMinute lines of each minute. The first minute begins with the first line. The zero value
// is ready to use, by any goroutine.
type Limiter struct {
	mu      sync.Mutex
	until   time.Time // end of the minute
	lines   int       // lines in this minute
	omitted int       // refused lines since the last admitted one
}

// Limit returns the line, with the number of lines that were refused before it as the field omitted unless that is 0.
// It discards a line that is refused.
func (l *Limiter) Limit(line *zerolog.Event) *zerolog.Event {
	omitted, ok := l.admit(time.Now())
	switch {
	case !ok:
		return line.Discard()
	case omitted > 0:
		return line.Int("omitted", omitted)
	}
	return line
}

// admit reports whether a line is admitted, and how many were refused since the last admitted one.
func (l *Limiter) admit(now time.Time) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !now.Before(l.until) {
		l.until, l.lines = now.Add(time.Minute), 0
	}
	if l.lines == PerMinute {
		l.omitted++
		return 0, false
	}
	l.lines++
	omitted, l.omitted = l.omitted, 0
	return omitted, true
}
