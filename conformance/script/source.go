package script

import (
	"slices"
	"strings"
)

// Source is the text of a check or a macro, as it is in its file.
type Source struct {
	Name string // of the check or the macro
	File string // name of the file, with its suffix
	Line int    // of the first line, from 1
	Text string // lines without the comments before and after it
}

// sourceFrom returns the text from a line up to the next check or macro.
func (p *parser) sourceFrom(name string, from int) Source {
	end := len(p.text)
	if p.next < len(p.lines) {
		end = p.lines[p.next].number - 1
	}
	lines := p.text[from-1 : end]
	for len(lines) > 0 && isComment(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	return Source{Name: name, File: p.name, Line: from, Text: strings.Join(lines, "\n")}
}

// isComment reports whether a line is empty or a comment that is not indented.
func isComment(line string) bool { return strings.TrimSpace(line) == "" || line[0] == '#' }

// Macros returns the macros that the steps of the check use, directly or through other macros, in
// the order of their first use.
func (c *Check) Macros() []Source {
	var found []*macro
	c.file.collect(c.steps, &found)
	list := make([]Source, len(found))
	for i, m := range found {
		list[i] = m.source
	}
	return list
}

// collect appends the macros that the steps use.
func (f *File) collect(steps []*step, found *[]*macro) {
	for _, st := range steps {
		if m := f.macro(st.verb); m != nil && st.conn != "" && st.conn != serverName && !slices.Contains(*found, m) {
			*found = append(*found, m)
			f.collect(m.steps, found)
		}
		f.collect(st.body, found)
		f.collect(st.orElse, found)
	}
}
