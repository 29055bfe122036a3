package arcp

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// values are JSON texts and texts that are nearly JSON.
var values = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `-0.0e-0`, `1.5E+10`, `true`, `false`, `null`, ` [ 1 , 2 ] `, "\t{\"a\"\n:\r1}",
	`{"a":1,"b":{"a":2}}`, `[{"a":1},{"a":1}]`, `"\u0041\ud83d\ude00\"\\\/\b\f\n\r\t"`, `"é日本😀"`, `"exactly8"`, `"nine char"`,
	`01`, `1.`, `.5`, `-`, `+1`, `1e`, `1e+`, `0x1`, `NaN`, `tru`, `truex`, `nul`, `{`, `[`, `"`, `"\`, `"\u00`, `"\u00g0"`, `"\x"`,
	`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[,]`, `[1,]`, `[1 2]`, `{"a":1 "b":2}`, `{a:1}`, `{1:1}`, `{"a":1}}`, `[1]]`, `1 2`, ``, ` `,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"x":{"a":1,"a":1}}`, `[[{"a":0,"b":0,"a":0}]]`,
	`"\ud800"`, `"\ud800\u0041"`, `"\udc00\ud800"`, `"\ud800x"`, "\"\x00\"", "\"\x1f\"", "\"\x7f\"", "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"",
	"\"1234567\x01\"", "\"12345678\x01\"", "\"1234567\xff8\"", "\"123456\\\\\"", "\ufeff{}", "{\"\xff\":1}", `"` + strings.Repeat("é", 9) + `"`,
	`[` + strings.Repeat(`{"a":[`, 20) + strings.Repeat(`]}`, 20) + `]`,
	`{"k0":0,"k1":0,"k2":0,"k3":0,"k4":0,"k5":0,"k6":0,"k7":0,"k8":0,"k9":0,"ka":0,"kb":0,"kc":0,"kd":0,"ke":0,"kf":0,"kg":0,"kh":0,"ki":0,"kj":0,"kk":0,"kl":0,"km":0,"kn":0,"ko":0,"kp":0,"k0":0}`,
	`{"k0":0,"k1":0,"k2":0,"k3":0,"k4":0,"k5":0,"k6":0,"k7":0,"k8":0,"k9":0,"ka":0,"kb":0,"kc":0,"kd":0,"ke":0,"kf":0,"kg":0,"kh":0,"ki":0,"kj":0,"kk":0,"kl":0,"km":0,"kn":0,"ko":0,"kp":0,"kq":{"k0":0}}`,
	`{"k0":0,"k1":0,"k2":0,"k3":0,"k4":0,"k5":0,"k6":0,"k7":0,"k8":0,"k9":0,"ka":0,"kb":0,"kc":0,"kd":0,"ke":0,"kf":0,"kg":0,"kh":0,"ki":0,"kj":0,"kk":0,"kl":0,"km":0,"kn":0,"ko":0,"kp":0,"kq":0,"kp":0}`,
}

// scan reports whether text is one valid value.
func scan(text []byte) error {
	var s scanner
	s.reset(text, MaxDepth)
	_, err := s.value()
	if err == nil {
		err = s.end()
	}
	return err
}

// FuzzScanner holds the scanner against the JSON library.
func FuzzScanner(f *testing.F) {
	for _, v := range values {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := scan(text)
		if bad, ok := err.(*EncodingError); ok && bad.Reason == ReasonTooDeep {
			return // the library goes deeper
		}
		if valid := jsontext.Value(text).IsValid(); valid != Valid(text) {
			t.Errorf("Valid(%q) = %t, the library says %t", text, !valid, valid)
		}
		if valid := jsontext.Value(text).IsValid(); valid != (err == nil) {
			t.Errorf("scan(%q) = %v, the library says valid = %v", text, err, valid)
		}
	})
}

func TestScannerErrorsNameTheOffset(t *testing.T) {
	for text, want := range map[string]string{
		``:                       "the frame ends too early: a value is missing at offset 0",
		`{"a":1`:                 "the frame ends too early: a comma or } is missing at offset 6",
		`"abc`:                   "the frame ends too early: the end of a string is missing at offset 4",
		`{"a":1,"a":2}`:          `duplicate member name "a" at offset 7`,
		`{"a":1,"x":{"b":0,"b":`: `duplicate member name "b" at offset 18`,
		`[1 2]`:                  `'2' instead of a comma or ] at offset 3`,
		`{"a" 1}`:                `'1' instead of a colon at offset 5`,
		`{a:1}`:                  `'a' instead of a member name at offset 1`,
		`[01]`:                   `'1' instead of a comma or ] at offset 2`,
		`nope`:                   `'n' instead of a value at offset 0`,
		"\"a\xffb\"":             "invalid UTF-8 at offset 2",
		"\"a\nb\"":               "a control character in a string at offset 2",
		`"\ud800"`:               "half of a surrogate pair in a string at offset 1",
		`{} {}`:                  "'{' instead of the end of the frame at offset 3",
		"[\xff]":                 `'�' instead of a value at offset 1`,
		`{"a":1.}`:               "'}' instead of a digit at offset 7",
	} {
		if got := scan([]byte(text)); got == nil || got.Error() != want {
			t.Errorf("scan(%q) = %v, want %s", text, got, want)
		}
	}
}

func TestPlainLenEndsAtTheFirstSpecialByte(t *testing.T) {
	for at := range 40 {
		for c := range 256 {
			text := []byte(strings.Repeat("x", 40))
			text[at] = byte(c)
			want := len(text)
			if c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
				want = at
			}
			if got := plainLen(text); got != want {
				t.Fatalf("plainLen with %#x at %d = %d, want %d", c, at, got, want)
			}
			if got := plainLen(string(text)); got != want {
				t.Fatalf("plainLen of a string with %#x at %d = %d, want %d", c, at, got, want)
			}
		}
	}
}
