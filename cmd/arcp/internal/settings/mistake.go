package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mistake is a mistake in the configuration. It is an error for the user, with the remedy.
type Mistake struct {
	File    string `json:"file,omitzero"`   // empty: the mistake is in a flag, a variable or a combination of them
	Line    int    `json:"line,omitzero"`   // from 1; 0: no line
	Column  int    `json:"column,omitzero"` // from 1; 0: no column
	Key     string `json:"key,omitzero"`    // path of the value, such as tools[0].limits.memory; empty: no single key
	Message string `json:"message"`

	text string // line for people
}

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

// orNil returns the list sorted by position as an error; nil if the list is empty.
func (list Mistakes) orNil() error {
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
		if err == nil {
			continue
		}
		if found, ok := errors.AsType[Mistakes](err); ok {
			list = append(list, found...)
		} else if m, ok := errors.AsType[Mistake](err); ok {
			list = append(list, m)
		} else {
			list = append(list, Mistake{Message: err.Error(), text: err.Error()})
		}
	}
	return list.orNil()
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

// MistakeIn returns err as a mistake in the value of a setting, at the position of the value. Where(name) at the
// beginning of its text is not part of Message.
func (v *Values) MistakeIn(name string, err error) Mistake {
	m := Mistake{Key: name, text: err.Error()}
	m.Message = strings.TrimLeft(strings.TrimPrefix(m.text, v.Where(name)), ": ")
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
