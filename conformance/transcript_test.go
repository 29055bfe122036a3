package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRedact(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"token of an open", `{"auth":{"scheme":"bearer","token":"s3cret"}}`, `{"auth":{"scheme":"bearer","token":"[redacted]"}}`},
		{"spaced", `{"token" : "s3cret"}`, `{"token" : "[redacted]"}`},
		{"with escapes", `{"token":"a\"b\\","x":1}`, `{"token":"[redacted]","x":1}`},
		{"resume token", `{"resume_token":"rt_1","x":2}`, `{"resume_token":"[redacted]","x":2}`},
		{"answer to a challenge", `{"type":"session.authenticate","payload":{"response":"0a0b"}}`,
			`{"type":"session.authenticate","payload":{"response":"[redacted]"}}`},
		{"credential", `{"credentials":[{"id":"c","scheme":"bearer","value":"sk-1","endpoint":"e"}]}`,
			`{"credentials":[{"id":"c","scheme":"bearer","value":"[redacted]","endpoint":"e"}]}`},
		{"cut frame", `{"token":"s3cr`, `{"token":"[redacted]"`},
		{"known secret anywhere", `closed by peer: 1008 bad token KNOWN`, `closed by peer: 1008 bad token [redacted]`},
		{"a challenge is no secret", `{"challenge":"nonce"}`, `{"challenge":"nonce"}`},
		{"a result is no secret", `{"value":"v","tokens":["t"]}`, `{"value":"v","tokens":["t"]}`},
	} {
		if got := redact(c.in, []string{"KNOWN", ""}); got != c.want {
			t.Errorf("%s: redact(%s) = %s, want %s", c.name, c.in, got, c.want)
		}
	}
}

func TestTranscriptIsBounded(t *testing.T) {
	tr := newTranscript(nil)
	for i := range 1000 {
		tr.add(1, Sent, fmt.Appendf(nil, "frame %d", i))
	}
	got := tr.entries()
	if len(got) != maxEntries+1 {
		t.Fatalf("a transcript of 1000 frames has %d entries, want %d", len(got), maxEntries+1)
	}
	if got[0].Text != "frame 0" || got[len(got)-1].Text != "frame 999" {
		t.Errorf("a transcript goes from %q to %q, want the first and the last frame", got[0].Text, got[len(got)-1].Text)
	}
	if note := got[maxEntries/2]; note.Dir != Noted || note.Text != "600 entries omitted" {
		t.Errorf("the gap is noted as %v", note)
	}
}

func TestTranscriptCutsFrames(t *testing.T) {
	tr := newTranscript([]string{"SECRET"})
	for _, c := range []struct{ name, in string }{
		{"long", strings.Repeat("x", 1<<20)},
		{"secret at the cut", strings.Repeat("x", maxEntryText-3) + "SECRET" + strings.Repeat("y", 100)},
		{"rune at the cut", strings.Repeat("é", maxEntryText)},
	} {
		got := tr.printable([]byte(c.in))
		if len(got) > maxEntryText+100 || strings.Contains(got, "SEC") || strings.Contains(got, "\uFFFD") {
			t.Errorf("%s: shown as %.40q… with %d bytes", c.name, got, len(got))
		}
		if !strings.Contains(got, "bytes more)") {
			t.Errorf("%s: the cut is not said", c.name)
		}
	}
	if got := tr.printable([]byte("a\nb\x00\xff")); got != "a b \uFFFD" {
		t.Errorf("a frame is shown as %q, want one printable line", got)
	}
}

func TestEntryString(t *testing.T) {
	e := Entry{At: Millis(1500 * time.Microsecond), Conn: 2, Dir: Received, Text: "{}"}
	if got, want := e.String(), "    1.500ms #2 <-- {}"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}
