package yamlsyntax

import (
	"fmt"
	"strings"
	"testing"
)

// The line is the one that a user has to change, wherever the parser gave up.
func TestLineOfTheMistake(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{"an open quote in the first line", "a: \"x\nb: 1\nc: 2\n", "1: the text that begins with a quote in this line has no closing quote"},
		{"alone", "a: 'x\n", "1: the text that begins with a quote"},
		{"below a quoted text", "a: \"x\n  y\"\nb: 'z\nc: 1\nd: 2\n", "3: the text that begins with a quote"},
		{"in a list", "a: 1\nb: [\"x, y]\nc: 2\n", "2: the text that begins with a quote"},
		{"as a key", "\"a: x\nb: 1\n", "1: the text that begins with a quote"},
		{"behind a byte order mark, with CRLF", "\ufeffa: \"x\r\nb: 1\r\n", "1: the text that begins with a quote"},
		{"before a second document", "a: 1\nb: \"x\n---\nc: 1\n", "2: the text that begins with a quote"},
		{"a quote that another text closes", "a: 1\nb: 'x\nc: 'y'\nd: 2\n", "3: the line does not continue its mapping"},
		{"a quote inside a text", "t:\n  - a: 1\n    b: 'it's'\n    c: 2\n", "3: the line does not continue its mapping"},
		{"a text behind a quote", "a: 1\nb: \"x\" y\nc: 2\n", "2: the line does not continue its mapping"},
		{"a bracket too many", "a: 1\nb: [x]]\nc: 2\n", "2: the line does not continue its mapping"},
		{"an open list in the first line", "a: [x,\nb: 1\nc: 2\n", "1: the list of this line, which begins with [, lacks a comma"},
		{"an open list", "a: 1\nb: [x, y\nc: 2\nd: 3\n", "2: the list of this line"},
		{"in the last line", "a: 1\nb: [x, y\n", "2: the list of this line"},
		{"an open mapping", "t:\n  - {a: [x]\n  - {a: y}\n", "2: the mapping of this line, which begins with {, lacks a comma"},
		{"the wrong bracket", "b: {a: 1]\n", "1: the mapping of this line"},
		{"a list without an item", "a: 1\n\nb: [\n\n", "3: a value is missing"},
		{"a bracket for nothing", "a: 1\nb: ]\nc: 2\n", "2: a value is missing"},
		{"a tab before a dash", "t:\n\t- a\n", "2: a value cannot begin with this character: indent with spaces"},
		{"a tab before a key", "t:\n  - a: 1\n\tb: 2\n", "3: the line begins with a tab"},
		{"a tab in the first line", "\ta: 1\n", "1: a value cannot begin with this character: indent with spaces"},
		{"a key without a colon", "a: 1\nb\nc: 2\n", "2: a key without a colon"},
		{"a colon without a space", "a: 1\nb:2\nc: 3\n", "2: a key without a colon"},
		{"no colon in the first line", "a 1\nb: 2\n", "2: a key cannot be here: begin it in the column of the other keys, end the key of the line above with a colon"},
		{"a key too far right", "a: 1\n  b: 2\nc: 3\n", "2: a key cannot be here"},
		{"a colon in a text", "a: 1\nb: c: d\n", "2: a key cannot be here"},
		{"a key too far left", "t:\n  - a: 1\n   b: 2\n", "3: the line does not continue its list"},
		{"a dash too far left", "t:\n    - a: 1\n  - b: 2\n", "3: the line does not continue its mapping"},
		{"an item in a mapping", "a: 1\nb: 2\n- c\n", "3: the line does not continue its mapping"},
		{"an item behind a key", "a: 1\nb: - c\n", "2: an item cannot be here"},
		{"a special character", "a: 1\nb: %c\n", "2: a value cannot begin with this character"},
		{"a backslash", "a: 1\nb: \"C:\\q\"\n", `2: a text in " has an escape that YAML does not know`},
		{"a backslash and U", "a: 1\nb: \"C:\\Users\"\n", `2: a text in " has an escape`},
		{"in the second line of a text", "a: 1\nb: \"x\n  C:\\q\"\n", `3: a text in " has an escape`},
		{"a control character", "a: 1\nb: \x01\nc: 2\n", "2: the line has a control character"},
		{"an unknown anchor", "a: 1\nb: [x,\n  *c]\n", "3: unknown anchor 'c' referenced"},
		{"another message", "a: 1\nb: !x!y z\n", "2: found undefined tag handle"},
	} {
		err := parse([]byte(c.text))
		if err == nil {
			t.Errorf("%s: %q has no mistake", c.why, c.text)
			continue
		}
		line, text := Mistake([]byte(c.text), err)
		if got := fmt.Sprintf("%d: %s", line, text); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q: %s\nwant %s\n(%v)", c.why, c.text, got, c.want, err)
		}
	}
}
