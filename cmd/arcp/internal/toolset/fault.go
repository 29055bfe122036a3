package toolset

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// fault is a mistake in a value, at a path below the value.
type fault struct {
	path  []string
	onKey bool // the mistake is the last key in path, not its value
	text  string
}

func (f fault) Error() string { return f.text }

// faults are the mistakes in a value. The readers of mappings and lists return faults; other readers return any error
// about their own value.
type faults []fault

// Error returns the mistakes without their paths.
func (list faults) Error() string {
	texts := make([]string, len(list))
	for i, f := range list {
		texts[i] = f.text
	}
	return strings.Join(texts, "\n")
}

// add appends the mistakes in err, which is about the value at a path; nil appends nothing.
func (list *faults) add(err error, path ...string) {
	if err == nil {
		return
	}
	found, ok := errors.AsType[faults](err)
	if !ok {
		f, ok := errors.AsType[fault](err)
		if !ok {
			f = fault{text: err.Error()}
		}
		found = faults{f}
	}
	for _, f := range found {
		f.path = append(append([]string(nil), path...), f.path...)
		*list = append(*list, f)
	}
}

// orNil returns the list as an error; nil if the list is empty.
func (list faults) orNil() error {
	if len(list) == 0 {
		return nil
	}
	return list
}

// below returns err as a mistake at a path.
func below(err error, path ...string) error {
	var list faults
	list.add(err, path...)
	return list.orNil()
}

// at returns a mistake at a path.
func at(path, format string, args ...any) error {
	return fault{path: strings.Split(path, "."), text: fmt.Sprintf(format, args...)}
}

// mistakes returns faults of a list of entries as mistakes in the configuration. The first step of each path is the
// index of the entry, and where returns the name of the entry in the text.
func (list faults) mistakes(v *settings.Values, setting string, where func(index string) string) error {
	all := make([]error, len(list))
	for i, f := range list {
		name := setting
		for k, step := range f.path {
			switch {
			case k == 0:
				name = where(step)
			case f.onKey && k == len(f.path)-1: // the text names the key
			case strings.IndexFunc(step, unicode.IsControl) >= 0:
				name += fmt.Sprintf(".%q", step)
			default:
				name += "." + step
			}
		}
		all[i] = v.Mistake(settings.Position{Path: append([]string{setting}, f.path...), OnKey: f.onKey, Name: name}, f.text)
	}
	return settings.Join(all...)
}
