package conformance

import (
	"reflect"
	"regexp"
	"runtime"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// Source is the text of a check: a script with the macros that it uses, the name of a function of
// this package, or neither for a rule of the frames that all checks receive.
type Source struct {
	File     string `json:"file,omitzero"` // of the script, for example scripts/jobs.txt
	Line     int    `json:"line,omitzero"`
	Script   string `json:"script,omitzero"`
	Macros   []Text `json:"macros,omitempty"`
	Function string `json:"function,omitzero"`
	Frames   bool   `json:"frames,omitzero"` // a rule of frames
}

// Text is the text of a macro.
type Text struct {
	Name string `json:"name"`
	File string `json:"file"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

// Source returns the text of the check.
func (c *Check) Source() Source {
	if c.frames {
		return Source{Frames: true}
	}
	if c.script == nil || !c.script.Scripted() {
		return Source{Function: functionName(c.run)}
	}
	folder := scriptFolder(c.Dialect)
	own := c.script.Source
	s := Source{File: folder + "/" + own.File, Line: own.Line, Script: own.Text}
	for _, m := range c.script.Macros() {
		s.Macros = append(s.Macros, textOf(folder, m))
	}
	return s
}

func textOf(folder string, m script.Source) Text {
	return Text{Name: m.Name, File: folder + "/" + m.File, Line: m.Line, Text: m.Text}
}

// scriptFolder returns the folder with the scripts of a dialect.
func scriptFolder(d arcp.Dialect) string {
	if d == arcp.DialectDraft {
		return "scripts/draft"
	}
	return "scripts"
}

// closure matches the end of the name of a function literal.
var closure = regexp.MustCompile(`(\.func\d+|\.\d+)+$`)

// functionName returns the name of a function, or of the function that contains a literal.
func functionName(f any) string {
	name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	name = closure.ReplaceAllString(name, "")
	return name[strings.LastIndex(name, ".")+1:]
}

// FindCheck returns the check with an id.
func FindCheck(id string) (Check, bool) {
	for _, c := range registry() {
		if c.ID == id {
			return c, true
		}
	}
	return Check{}, false
}
