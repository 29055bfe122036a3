package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/internal/clip"
)

// Entry is one line of a transcript.
type Entry struct {
	At   Millis    `json:"at_ms"` // since the start of the check
	Conn int       `json:"conn"`  // number of the connection, from 1
	Dir  Direction `json:"dir"`
	Text string    `json:"text"` // at most maxEntryText bytes, without secrets
}

// Direction is the direction of a transcript entry.
type Direction string

// The directions.
const (
	Sent     Direction = "sent"
	Received Direction = "received"
	Noted    Direction = "noted" // opened, closed or broken connection
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

// Bounds of a transcript.
const (
	maxEntryText = 2 << 10
	maxEntries   = 400 // the first and the last entries, half of each
)

// transcript records the frames of a check. It belongs to the goroutine of the check.
type transcript struct {
	now         func() time.Time
	start       time.Time
	secrets     []string // that the server must not send
	credentials []string // that the server sent to the client
	head        []Entry
	tail        []Entry
	dropped     int
}

func newTranscript(secrets []string) *transcript {
	return &transcript{now: time.Now, start: time.Now(), secrets: secrets}
}

func (tr *transcript) add(conn int, dir Direction, text []byte) {
	e := Entry{At: Millis(tr.now().Sub(tr.start)), Conn: conn, Dir: dir, Text: tr.printable(text)}
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

// entries returns the transcript in order, with a note in place of dropped entries.
func (tr *transcript) entries() []Entry {
	all := append([]Entry{}, tr.head...)
	if tr.dropped > 0 {
		all = append(all, Entry{At: tr.tail[0].At, Dir: Noted, Text: fmt.Sprintf("%d entries omitted", tr.dropped)})
	}
	return append(all, tr.tail...)
}

// printable returns a frame as one line of bounded length without secrets.
func (tr *transcript) printable(text []byte) string {
	s := replaceSecrets(strings.ToValidUTF8(string(text), "\uFFFD"), tr.hidden())
	if excess := len(s) - maxEntryText; excess > 0 {
		s = fmt.Sprintf("%s… (%d bytes more)", clip.Text(redactMembers(clip.Text(s, maxEntryText)), maxEntryText), excess)
	} else {
		s = redactMembers(s)
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}

const redacted = "[redacted]"

// secretMember and credential match the secret members of a frame: tokens, resume tokens, answers
// to challenges and credentials. They match text, so malformed frames are redacted too.
var (
	secretMember = regexp.MustCompile(`("(?:token|resume_token|response)"\s*:\s*)"(?:[^"\\]|\\.)*("|$)`)
	credential   = regexp.MustCompile(`("scheme"\s*:\s*"[^"]*"\s*,\s*"value"\s*:\s*)"(?:[^"\\]|\\.)*("|$)`)
)

// redact replaces the secrets and the credentials of the check in a text.
func (tr *transcript) redact(s string) string { return redact(s, tr.hidden()) }

// hidden returns the texts that are not shown, the longest first: one may begin with another.
func (tr *transcript) hidden() []string {
	list := slices.Concat(tr.secrets, tr.credentials)
	slices.SortStableFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}

// receive records a frame of the server. The credentials in it are not shown from then on.
func (tr *transcript) receive(conn int, text []byte) {
	if bytes.Contains(text, []byte(`"credentials"`)) || bytes.Contains(text, []byte(`"credential_rotated"`)) {
		walkStrings(text, func(member, value string, start, end int) {
			if slices.Contains(credentialValues, member) {
				tr.hide(value, string(text[start+1:end-1]))
			}
		})
	}
	tr.add(conn, Received, text)
}

// credentialValues are the members of a credential, and of the status of a replaced one, that have its value.
var credentialValues = []string{"value", "credential_value"}

// hide adds a credential in the forms in which a text may have it: its content, and the content as the server and as this
// program encode it in JSON.
func (tr *transcript) hide(value, encoded string) {
	ours, _ := json.Marshal(value) // a string always encodes
	for _, form := range []string{encoded, string(ours[1 : len(ours)-1]), value} {
		if !slices.Contains(tr.credentials, form) {
			tr.credentials = append(tr.credentials, form)
		}
	}
}

// redact replaces the secrets in a frame.
func redact(s string, secrets []string) string { return replaceSecrets(redactMembers(s), secrets) }

// redactMembers replaces the content of the secret members of a frame, which may be cut.
func redactMembers(s string) string {
	s = secretMember.ReplaceAllString(s, `$1"`+redacted+`"`)
	return credential.ReplaceAllString(s, `$1"`+redacted+`"`)
}

// replaceSecrets replaces known secrets.
func replaceSecrets(s string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, redacted)
		}
	}
	return s
}
