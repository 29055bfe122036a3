package exec

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	maxLine   = 8 << 10 // bytes of a line in an event; the rest is dropped
	tailBytes = 4 << 10 // of standard error, in the details of a failure

	// Rate limit of the lines that become events, which bounds the events of a session.
	lineBurst = 1000
	lineRate  = 100
)

// lines turns standard error into log events. One goroutine uses it.
type lines struct {
	sink      func(level, message string) error
	line      []byte // the first maxLine bytes of the current line
	truncated bool   // the current line is longer than maxLine
	last      []byte // the last tailBytes of the output
	tokens    float64
	filled    time.Time
	dropped   int  // lines without an event since the last event
	failed    bool // sink has returned an error, and is not called again
}

func newLines(sink func(level, message string) error) *lines {
	return &lines{sink: sink, tokens: lineBurst, filled: time.Now()}
}

// read reads r to its end. It also reads lines that are not logged, so that the command does not block.
func (l *lines) read(r io.Reader) {
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		l.write(buf[:n])
		if err != nil {
			l.end()
			return
		}
	}
}

func (l *lines) write(p []byte) {
	l.remember(p)
	for {
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		room := maxLine - len(l.line)
		l.truncated = l.truncated || len(line) > room
		l.line = append(l.line, line[:min(len(line), room)]...)
		if !ended {
			return
		}
		l.emit()
		p = rest
	}
}

func (l *lines) remember(p []byte) {
	l.last = append(l.last, p[max(0, len(p)-tailBytes):]...)
	if over := len(l.last) - tailBytes; over > 0 {
		l.last = append(l.last[:0], l.last[over:]...)
	}
}

// tail returns the last tailBytes of standard error.
func (l *lines) tail() string { return text(bytes.TrimRight(l.last, "\n")) }

// end emits a last line without a newline.
func (l *lines) end() {
	if len(l.line) > 0 || l.truncated {
		l.emit()
	}
	l.reportDropped()
}

// emit emits the current line within the rate limit.
func (l *lines) emit() {
	line := bytes.TrimSuffix(l.line, []byte("\r"))
	switch {
	case len(line) == 0:
	case !l.allowed(time.Now()):
		l.dropped++
	default:
		l.reportDropped()
		message := text(line)
		if l.truncated {
			message += "…"
		}
		l.log("info", message)
	}
	l.line, l.truncated = l.line[:0], false
}

// reportDropped emits the number of dropped lines.
func (l *lines) reportDropped() {
	if l.dropped > 0 {
		l.log("warn", fmt.Sprintf("%d lines of standard error were left out: more than %d a second", l.dropped, lineRate))
		l.dropped = 0
	}
}

func (l *lines) log(level, message string) {
	if !l.failed {
		l.failed = l.sink(level, message) != nil
	}
}

func (l *lines) allowed(now time.Time) bool {
	l.tokens = min(lineBurst, l.tokens+now.Sub(l.filled).Seconds()*lineRate)
	l.filled = now
	if l.tokens < 1 {
		return false
	}
	l.tokens--
	return true
}

// text returns b as valid UTF-8.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

func trimSpace(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }
