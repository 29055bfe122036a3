package conformance

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/arcpd/arcpd/internal/clip"
)

// Entry is one line of a transcript.
type Entry struct {
	At   Millis    `json:"at_ms"` // since the check began
	Conn int       `json:"conn"`  // connections are counted from 1
	Dir  Direction `json:"dir"`
	Text string    `json:"text"` // secrets replaced, cut to maxEntryText bytes
}

// Direction is the way a transcript entry went.
type Direction string

// The directions.
const (
	Sent     Direction = "sent"
	Received Direction = "received"
	Noted    Direction = "noted" // opened, closed, broken
)

func (d Direction) arrow() string {
	switch d {
	case Sent:
		return "-->"
	case Received:
		return "<--"
	}
	return "---"
}

func (e Entry) String() string {
	return fmt.Sprintf("%9.3fms #%d %s %s", float64(time.Duration(e.At).Microseconds())/1000, e.Conn, e.Dir.arrow(), e.Text)
}

// Bounds of a transcript: enough to see how a failure came about.
const (
	maxEntryText = 2 << 10
	maxEntries   = 400 // the first and the last half are kept
)

// transcript collects what a check sent and received. It belongs to the
// check's goroutine.
type transcript struct {
	now     func() time.Time
	start   time.Time
	secrets []string
	head    []Entry
	tail    []Entry
	dropped int
}

func newTranscript(secrets []string) *transcript {
	return &transcript{now: time.Now, start: time.Now(), secrets: secrets}
}

func (tr *transcript) add(conn int, dir Direction, text []byte) {
	e := Entry{At: Millis(tr.now().Sub(tr.start)), Conn: conn, Dir: dir, Text: tr.show(text)}
	if len(tr.head) < maxEntries/2 {
		tr.head = append(tr.head, e)
		return
	}
	if len(tr.tail) == maxEntries/2 {
		tr.tail = tr.tail[:copy(tr.tail, tr.tail[1:])]
		tr.dropped++
	}
	tr.tail = append(tr.tail, e)
}

// entries is the transcript in order, with a note where lines were left out.
func (tr *transcript) entries() []Entry {
	all := append([]Entry{}, tr.head...)
	if tr.dropped > 0 {
		all = append(all, Entry{At: tr.tail[0].At, Dir: Noted, Text: fmt.Sprintf("%d entries left out", tr.dropped)})
	}
	return append(all, tr.tail...)
}

// show makes a frame printable: no secrets, one line, bounded.
func (tr *transcript) show(text []byte) string {
	rest := len(text) - maxEntryText
	if rest > 0 {
		// A secret cut in two would not be recognised, so leave room for it.
		text = text[:min(len(text), maxEntryText+1024)]
	}
	s := redact(strings.ToValidUTF8(string(text), "\uFFFD"), tr.secrets)
	if rest > 0 {
		s = fmt.Sprintf("%s… (%d bytes more)", clip.Text(s, maxEntryText), rest)
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}

const redacted = "[redacted]"

// secretMember finds the members whose value is a secret wherever they are:
// tokens, resume tokens, answers to challenges and the values of credentials.
// It works on text so that it also covers frames that are broken.
var (
	secretMember = regexp.MustCompile(`("(?:token|resume_token|response)"\s*:\s*)"(?:[^"\\]|\\.)*("|$)`)
	credential   = regexp.MustCompile(`("scheme"\s*:\s*"[^"]*"\s*,\s*"value"\s*:\s*)"(?:[^"\\]|\\.)*("|$)`)
)

// redact replaces secrets in a frame.
func redact(s string, secrets []string) string {
	s = secretMember.ReplaceAllString(s, `$1"`+redacted+`"`)
	s = credential.ReplaceAllString(s, `$1"`+redacted+`"`)
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, redacted)
		}
	}
	return s
}
