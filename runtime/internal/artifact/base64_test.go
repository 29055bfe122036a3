package artifact

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"
)

// The encoding of content of each length is the one of package base64, and is decoded again.
func TestBase64OfEachLength(t *testing.T) {
	content := make([]byte, 100)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	for n := range len(content) + 1 {
		want := base64.StdEncoding.EncodeToString(content[:n])
		if got := AppendBase64([]byte("before"), content[:n]); string(got) != "before"+want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
		if got, err := Decode(want); err != nil || !bytes.Equal(got, content[:n]) {
			t.Errorf("%s = %x, %v, want %x", want, got, err, content[:n])
		}
	}
}

// Each byte is refused or decoded as package base64 does, at each position. Line breaks are refused.
func TestDecodeRefusesWhatIsNotBase64(t *testing.T) {
	const valid = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZQ=="
	for at := range len(valid) {
		for c := range 256 {
			data := valid[:at] + string([]byte{byte(c)}) + valid[at+1:]
			checkDecode(t, data)
		}
		checkDecode(t, valid[:at])
		checkDecode(t, valid[:at]+"\n"+valid[at:])
		checkDecode(t, valid[:at]+"=="+valid[at:])
	}
	checkDecode(t, valid+"\r\n")
	checkDecode(t, valid+valid)
	checkDecode(t, valid[:len(valid)-3]+"f==") // bits behind the content
}

func checkDecode(t *testing.T, data string) {
	t.Helper()
	want, err := base64.StdEncoding.Strict().DecodeString(data)
	valid := err == nil && !strings.ContainsAny(data, "\r\n")
	got, gotErr := Decode(data)
	if gotErr == nil != valid || valid && !bytes.Equal(got, want) {
		t.Errorf("Decode(%q) = %q, %v, want %q, %v", data, got, gotErr, want, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("QUJDREVGR0hJSktMTU5P")
	f.Add("QUJDREVG\nR0g=")
	f.Fuzz(checkDecode)
}

func BenchmarkBase64(b *testing.B) {
	content := bytes.Repeat([]byte("content!"), 1<<17)
	data := base64.StdEncoding.EncodeToString(content)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		out := make([]byte, 0, len(data))
		for b.Loop() {
			AppendBase64(out, content)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			if _, err := Decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
