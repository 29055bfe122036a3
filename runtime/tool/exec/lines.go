package exec

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	maxLine   = 8 << 10 // bytes of a line that become an event; what follows is left out
	tailBytes = 4 << 10 // of standard error, in the details of a failure

	// Lines that become events: so many at once, and so many a second. A command that
	// writes without end must not fill a session's replay.
	lineBurst = 1000
	lineRate  = 100
)

// lines makes log events of standard error. One goroutine has it.
type lines struct {
	sink    func(level, message string) error
	line    []byte // that has begun, at most maxLine of it
	cut     bool   // there was more of it
	last    []byte // the end of everything, at most tailBytes
	tokens  float64
	filled  time.Time
	left    int  // lines that were left out since one was not
	deadend bool // nobody listens any more
}

func newLines(sink func(level, message string) error) *lines {
	return &lines{sink: sink, tokens: lineBurst, filled: time.Now()}
}

// read reads to the end: a command must not wait for somebody to read its errors.
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
		l.cut = l.cut || len(line) > room
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

// tail is the end of standard error.
func (l *lines) tail() string { return text(bytes.TrimRight(l.last, "\n")) }

// end emits what is left when there comes no more.
func (l *lines) end() {
	if len(l.line) > 0 || l.cut {
		l.emit()
	}
	l.confess()
}

// emit emits the line, if it is not one too many.
func (l *lines) emit() {
	line := bytes.TrimSuffix(l.line, []byte("\r"))
	switch {
	case len(line) == 0:
	case !l.allowed(time.Now()):
		l.left++
	default:
		l.confess()
		message := text(line)
		if l.cut {
			message += "…"
		}
		l.log("info", message)
	}
	l.line, l.cut = l.line[:0], false
}

// confess says how many lines were left out.
func (l *lines) confess() {
	if l.left > 0 {
		l.log("warn", fmt.Sprintf("%d lines of standard error were left out: more than %d a second", l.left, lineRate))
		l.left = 0
	}
}

func (l *lines) log(level, message string) {
	if !l.deadend {
		l.deadend = l.sink(level, message) != nil
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

// text makes valid UTF-8 of what may be anything.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

func trimSpace(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }
