package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Mistake is a mistake in the configuration. It is an error for the user, with the remedy.
type Mistake struct {
	File    string `json:"file,omitzero"`   // empty: the mistake is in a flag, a variable or a combination of them
	Line    int    `json:"line,omitzero"`   // from 1; 0: no line
	Column  int    `json:"column,omitzero"` // from 1; 0: no column
	Key     string `json:"key,omitzero"`    // path of the value, such as tools[0].limits.memory; empty: no single key
	Message string `json:"message"`

	text string   // line for people
	at   Position // below the value that has been read, until Values.Locate sets File, Line and Column
}

// MistakeAt returns a mistake at a place below a value. Mistakes.Add and Values.Locate complete its position.
func MistakeAt(at Position, message string) Mistake {
	return Mistake{Message: message, text: message, at: at}
}

// Path returns the path of a mistake below the value that has been read.
func (m Mistake) Path() []string { return m.at.Path }

// Error returns one line: the position, the key and the message.
func (m Mistake) Error() string { return m.text }

// Mistakes are all mistakes in the configuration, in the order of the file.
type Mistakes []Mistake

// Error returns a line for each mistake.
func (list Mistakes) Error() string {
	lines := make([]string, len(list))
	for i, m := range list {
		lines[i] = m.text
	}
	return strings.Join(lines, "\n")
}

// Add appends the mistakes in err, which is about the value at a path; nil appends nothing.
func (list *Mistakes) Add(err error, path ...string) {
	for _, m := range mistakesIn(err) {
		m.at.Path = append(append([]string(nil), path...), m.at.Path...)
		*list = append(*list, m)
	}
}

// mistakesIn returns the mistakes in err. An error that is not a Mistake becomes a Mistake without a position.
func mistakesIn(err error) Mistakes {
	if err == nil {
		return nil
	}
	if found, ok := errors.AsType[Mistakes](err); ok {
		return found
	}
	if m, ok := errors.AsType[Mistake](err); ok {
		return Mistakes{m}
	}
	return Mistakes{MistakeAt(Position{}, err.Error())}
}

// OrNil returns the list sorted by position as an error; nil if the list is empty.
func (list Mistakes) OrNil() error {
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b Mistake) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return list
}

// Join returns the mistakes in errs, in the order of the file; nil if there are none. An error that is not a Mistake
// becomes a Mistake without a position.
func Join(errs ...error) error {
	var list Mistakes
	for _, err := range errs {
		list = append(list, mistakesIn(err)...)
	}
	return list.OrNil()
}

// Position is the position of a mistake in the configuration file.
type Position struct {
	Path  []string // keys and indices from the top of the file
	OnKey bool     // the position is the last key in Path, not its value
	Name  string   // of the place in the text for people; empty: the path
}

// Mistake returns a mistake at a place in the configuration file.
func (v *Values) Mistake(at Position, message string) Mistake {
	return v.doc.mistake(at, message)
}

// Locate returns mistakes in the entries of a setting with their positions. The first step of each path is the index
// of an entry, and where returns the name of the entry in the text.
func (v *Values) Locate(list Mistakes, setting string, where func(index string) string) error {
	all := make([]error, len(list))
	for i, m := range list {
		name := setting
		for k, step := range m.at.Path {
			switch {
			case k == 0:
				name = where(step)
			case m.at.OnKey && k == len(m.at.Path)-1: // the text names the key
			case strings.IndexFunc(step, unicode.IsControl) >= 0:
				name += fmt.Sprintf(".%q", step)
			default:
				name += "." + step
			}
		}
		all[i] = v.Mistake(Position{Path: append([]string{setting}, m.at.Path...), OnKey: m.at.OnKey, Name: name}, m.Message)
	}
	return Join(all...)
}

// MistakeIn returns err as a mistake in the value of a setting, at the position of the value. The text for people begins
// with Where(name), unless the setting has its default. Message does not.
func (v *Values) MistakeIn(name string, err error) Mistake {
	m := Mistake{Key: name, text: err.Error()}
	rest, begins := strings.CutPrefix(m.text, v.Where(name))
	if m.Message = strings.TrimLeft(rest, ": "); !begins && v.IsSet(name) {
		m.text = v.Where(name) + ": " + m.text
	}
	if v.get(name).Source == FromFile {
		m.File = v.File
		m.Line, m.Column = v.doc.position(Position{Path: []string{name}})
	}
	return m
}

// NewMistake returns a mistake in another file that the configuration names. An empty key is the whole file.
func NewMistake(file string, line, column int, key, message string) Mistake {
	m := Mistake{File: file, Line: line, Column: column, Key: key, Message: message}
	m.text = m.position() + ": " + message
	if key != "" {
		m.text = m.position() + ": " + key + ": " + message
	}
	return m
}

// position returns the file, the line and the column.
func (m *Mistake) position() string { return fmt.Sprintf("%s:%d:%d", m.File, m.Line, m.Column) }

func (d *document) mistake(at Position, message string) Mistake {
	line, column := d.position(at)
	m := NewMistake(d.file, line, column, pathText(at.Path), message)
	if at.Name != "" {
		m.text = m.position() + ": " + at.Name + ": " + message
	}
	return m
}

// pathText writes a path as tools[0].limits.
func pathText(path []string) string {
	var b strings.Builder
	for i, step := range path {
		_, err := strconv.Atoi(step)
		switch {
		case err == nil && i > 0:
			fmt.Fprintf(&b, "[%s]", step)
		case i > 0:
			b.WriteString("." + step)
		default:
			b.WriteString(step)
		}
	}
	return b.String()
}
