package workflow

import (
	"strconv"
	"strings"
)

// KeyError is a mistake in the value of a key of a Config.
type KeyError struct {
	Path []string // keys, names of steps, members and indices from the Config, for example steps, charge, when
	Err  error    // about the value
}

// keyError returns an error about the value of a key. A KeyError about a key in this value becomes one with both keys.
func keyError(key string, err error) *KeyError {
	if below, ok := err.(*KeyError); ok {
		return &KeyError{append([]string{key}, below.Path...), below.Err}
	}
	return &KeyError{[]string{key}, err}
}

// Error returns the path and the text of Err, for example "step charge: when: the expression gives int, not bool".
func (e *KeyError) Error() string {
	var b strings.Builder
	for i, key := range e.Path {
		_, err := strconv.Atoi(key)
		switch {
		case i == 0 && key == "steps":
			b.WriteString("step ")
		case err == nil:
			b.WriteString("[" + key + "]: ")
		default:
			b.WriteString(key + ": ")
		}
	}
	return b.String() + e.Err.Error()
}

// Unwrap returns Err.
func (e *KeyError) Unwrap() error { return e.Err }
