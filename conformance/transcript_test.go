package conformance

import (
	"context"
	"encoding/json"
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

// The value of a credential that the server sends is in no report, whatever the members around it, and later texts
// neither.
func TestCredentialsAreNotShown(t *testing.T) {
	long := "sk-" + strings.Repeat("z", 2*maxEntryText)
	for _, c := range []struct{ name, frame, value string }{
		{"another order", `{"type":"job.accepted","payload":{"credentials":[{"value":"sk-1","id":"c","scheme":"bearer"}]}}`, "sk-1"},
		{"a second one", `{"payload":{"credentials":[{"value":"sk-1","id":"c"},{"id":"d","value":"sk-2"}]}}`, "sk-2"},
		{"one begins with another", `{"payload":{"credentials":[{"value":"sk","id":"c"},{"value":"sk-sk","id":"d"}]}}`, "sk-sk"},
		{"rotated", `{"type":"job.event","payload":{"kind":"status","body":{"phase":"credential_rotated","id":"c","value":"sk-1"}}}`, "sk-1"},
		{"rotated, another member", `{"payload":{"body":{"credential_value":"sk-1","phase":"credential_rotated"}}}`, "sk-1"},
		{"rotated, of RFC 0001", `{"type":"event.emit","payload":{"name":"credential_rotated","data":{"id":"c","value":"sk-1"}}}`, "sk-1"},
		{"with escapes", `{"payload":{"credentials":[{"value":"sk\/1\u003d","id":"c"}]}}`, "sk/1="},
		{"cut frame", `{"payload":{"credentials":[{"value":"sk-1","id":`, "sk-1"},
		{"longer than an entry", `{"payload":{"credentials":[{"value":"` + long + `","id":"c"}]}}`, long},
	} {
		run := newCheckRun(t.Context(), &Target{}, nil)
		run.tr.receive(1, []byte(c.frame))
		quoted, _ := json.Marshal(c.value) // a string always encodes
		run.tr.add(1, Received, []byte("again "+c.value+" "+string(quoted)))
		run.execute(func(_ context.Context, t *checkRun) {
			t.Failf("%s: got %s", "not "+c.value, `{"value":`+string(quoted)+`}`)
		})
		for _, shown := range []string{run.tr.entries()[0].Text, run.tr.entries()[1].Text, run.failure, run.rule, run.got} {
			if !strings.Contains(shown, redacted) || strings.Contains(shown, "sk") || strings.Contains(shown, redacted+"-") {
				t.Errorf("%s: the report shows %s", c.name, shown)
			}
		}
		if len(run.tr.secrets) > 0 {
			t.Errorf("%s: the server must not send its credential again", c.name)
		}
	}
}

// A value that is no credential is shown.
func TestResultsAreShown(t *testing.T) {
	tr := newTranscript(nil)
	for _, frame := range []string{`{"payload":{"value":"v"}}`, `{"payload":{"credentials":[],"credential":"c","label":"v"}}`} {
		tr.receive(1, []byte(frame))
		if entries := tr.entries(); entries[len(entries)-1].Text != frame {
			t.Errorf("%s is shown as %s", frame, entries[len(entries)-1].Text)
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
