package clip

import (
	"testing"
	"unicode/utf8"
)

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text                  string
		n                     int
		cut, ellipsis, quoted string
	}{
		{"abcd", 4, "abcd", "abcd", `"abcd"`},
		{"abcde", 4, "abcd", "a…", `"abcd"…`},
		{"aébcd", 5, "aébc"[:5], "a…", `"aébc"…`},
		{"é", 1, "", "…", `"\xc3"…`},
		{"", 0, "", "", `""`},
		{"日本語", 7, "日本", "日…", `"日本\xe8"…`},
		{"a\xffb", 5, "ab", "a\uFFFDb", `"a\xffb"`},
		{"a\xffb", 4, "ab", "a…", `"a\xffb"`},
		{"a\xffbcdef", 7, "abcdef"[:6], "a\uFFFD…", `"a\xffbcdef"`},
		{"\xff", 1, "", "…", `"\xff"`},
	} {
		if got := Text(c.text, c.n); got != c.cut {
			t.Errorf("Text(%q, %d) = %q, want %q", c.text, c.n, got, c.cut)
		}
		if got := Ellipsis(c.text, c.n); got != c.ellipsis {
			t.Errorf("Ellipsis(%q, %d) = %q, want %q", c.text, c.n, got, c.ellipsis)
		}
		if got := Quote(c.text, c.n); got != c.quoted {
			t.Errorf("Quote(%q, %d) = %s, want %s", c.text, c.n, got, c.quoted)
		}
	}
}

func FuzzEllipsis(f *testing.F) {
	f.Add("a\xff\xfeb日本語", 5)
	f.Fuzz(func(t *testing.T, s string, n int) {
		got := Ellipsis(s, n)
		if len(got) > max(n, len("…")) || !utf8.ValidString(got) {
			t.Errorf("Ellipsis(%q, %d) = %q, %d bytes", s, n, got, len(got))
		}
	})
}
