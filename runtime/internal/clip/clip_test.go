package clip

import "testing"

func TestText(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"aé", 2, "a"}, {"é", 1, ""}, {"", 0, ""}, {"日本", 5, "日"}} {
		if got := Text(c.text, c.n); got != c.want {
			t.Errorf("Text(%q, %d) = %q, want %q", c.text, c.n, got, c.want)
		}
	}
}
