package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// reader reads one YAML value. at is the path of the value. An error has the line and the path, and repeats
// at most a misspelt name.
//
// The decoder of the library is not used, because its errors quote values.
type reader func(n *yaml.Node, at string) error

const maxDepth = 64 // of a JSON value in the file

// FileError is a mistake in an auth file.
type FileError struct {
	Line, Column int    // from 1
	Path         string // of the value, such as principals[0].roles; empty: the file
	Text         string // with the remedy
}

// Error returns the line, the path and the text.
func (e *FileError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Text)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Path, e.Text)
}

// FileErrors returns the mistakes in an error of Load, in the order of the file. It returns none for an error that is
// about the whole file.
func FileErrors(err error) (list []*FileError) {
	if e, ok := err.(*FileError); ok {
		return []*FileError{e}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return FileErrors(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			list = append(list, FileErrors(err)...)
		}
	}
	return list
}

func errorAt(n *yaml.Node, at, text string) error {
	return &FileError{n.Line, n.Column, at, text}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" }

// object reads a mapping. Each key must be known and unique. null is an empty mapping.
func object(fields map[string]reader) reader {
	return func(n *yaml.Node, at string) error {
		if isNull(n) {
			return nil
		}
		if n.Kind != yaml.MappingNode {
			return errorAt(n, at, "want a mapping: "+strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		return eachPair(n, at, func(key, value *yaml.Node) error {
			read, ok := fields[key.Value]
			if !ok {
				return errorAt(key, at, unknownWord("key", key.Value, slices.Sorted(maps.Keys(fields))).Error())
			}
			return read(value, joinPath(at, key.Value))
		})
	}
}

// eachPair visits a mapping in order. It refuses keys that are not a text, and duplicate keys. It returns every error.
func eachPair(n *yaml.Node, at string, visit func(key, value *yaml.Node) error) error {
	lines := map[string]int{}
	var list []error
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !isText(key) {
			list = append(list, errorAt(key, at, "a key must be a text"))
			continue
		}
		if first := lines[key.Value]; first != 0 {
			list = append(list, errorAt(key, at, fmt.Sprintf("key %s is also in line %d: remove one", shown(key.Value), first)))
			continue
		}
		lines[key.Value] = key.Line
		if err := visit(key, value); err != nil {
			list = append(list, err)
		}
	}
	return errors.Join(list...)
}

func joinPath(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

// sequence reads a list. null is an empty list.
func sequence(item reader) reader {
	return func(n *yaml.Node, at string) error {
		if isNull(n) {
			return nil
		}
		if n.Kind != yaml.SequenceNode {
			return errorAt(n, at, "want a list: [...]")
		}
		var list []error
		for i, e := range n.Content {
			list = append(list, item(e, fmt.Sprintf("%s[%d]", at, i)))
		}
		return errors.Join(list...)
	}
}

// text reads a text and passes it to set, which may refuse it.
func text(set func(string) error) reader {
	return func(n *yaml.Node, at string) error {
		if !isText(n) {
			return errorAt(n, at, "want a text: put it in quotes")
		}
		if err := set(n.Value); err != nil {
			return errorAt(n, at, err.Error())
		}
		return nil
	}
}

func textInto(dst *string) reader {
	return text(func(s string) error {
		if s == "" {
			return errors.New("the text is empty: fill it in or remove the key")
		}
		*dst = s
		return nil
	})
}

// count reads a whole number of at least 0.
func count(dst *int) reader {
	return func(n *yaml.Node, at string) error {
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" {
			if v, err := strconv.Atoi(n.Value); err == nil && v >= 0 {
				*dst = v
				return nil
			}
		}
		return errorAt(n, at, errCount.Error())
	}
}

func flag(dst *bool) reader {
	return func(n *yaml.Node, at string) error {
		value, err := strconv.ParseBool(n.Value)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || err != nil {
			return errorAt(n, at, "want true or false")
		}
		*dst = value
		return nil
	}
}

// word reads a text and passes it to set, which refuses it unless it is one of the known words.
func word[T ~string](kind string, known []T, set func(T) error) reader {
	return func(n *yaml.Node, at string) error {
		err := unknownWord(kind, T(n.Value), known)
		if isText(n) && n.Value != "" {
			err = set(T(n.Value))
		}
		if err != nil {
			return errorAt(n, at, err.Error())
		}
		return nil
	}
}

// unsupported refuses a key that a later version reads, unless its value is empty.
func unsupported(feature string) reader {
	return func(n *yaml.Node, at string) error {
		if isNull(n) || (n.Kind != yaml.ScalarNode && len(n.Content) == 0) {
			return nil
		}
		return errorAt(n, at, feature+" is not supported by this version: remove it")
	}
}

// unknownWord returns an error that names the unknown word, if it may be shown, and the known word
// that it resembles, or else all known words.
func unknownWord[T ~string](kind string, value T, known []T) error {
	if near := nearest(string(value), known); near != "" {
		return fmt.Errorf("unknown %s %s: did you mean %q?", kind, shown(string(value)), near)
	}
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	return fmt.Errorf("unknown %s %s: want one of %s", kind, shown(string(value)), strings.Join(words, ", "))
}

// nearest returns the first known word that starts with s, or else the one with the
// fewest edits to it, at most a third of its length or 2; "": there is none.
func nearest[T ~string](s string, known []T) T {
	s = strings.ToLower(s)
	start := s[:min(len(s), 2*maxShown)] // of a long one only the start counts
	best, least := known[0], len(s)+maxShown
	for _, k := range known {
		if len(s) > 2 && strings.HasPrefix(string(k), s) {
			return k
		}
		if d := levenshtein.ComputeDistance(start, strings.ToLower(string(k))); d < least {
			best, least = k, d
		}
	}
	if least > max(2, len(s)/3) {
		return ""
	}
	return best
}

// jsonObject reads a mapping as a JSON object, with the members in order.
func jsonObject(dst *[]byte) reader {
	return func(n *yaml.Node, at string) error {
		if isNull(n) {
			return nil
		}
		if n.Kind != yaml.MappingNode {
			return errorAt(n, at, "want a mapping")
		}
		out, err := appendJSON(nil, n, at, maxDepth)
		if err == nil {
			*dst = out
		}
		return err
	}
}

func appendJSON(out []byte, n *yaml.Node, at string, depth int) ([]byte, error) {
	if depth == 0 {
		return nil, errorAt(n, at, fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	switch n.Kind {
	case yaml.MappingNode:
		return appendMembers(out, n, at, depth)
	case yaml.SequenceNode:
		return appendItems(out, n, at, depth)
	}
	scalar, err := jsonScalar(n)
	if err != nil {
		return nil, errorAt(n, at, err.Error())
	}
	return append(out, scalar...), nil
}

func appendMembers(out []byte, n *yaml.Node, at string, depth int) ([]byte, error) {
	out = append(out, '{')
	err := eachPair(n, at, func(key, value *yaml.Node) (err error) {
		if key != n.Content[0] {
			out = append(out, ',')
		}
		out = append(append(out, quoted(key.Value)...), ':')
		out, err = appendJSON(out, value, at, depth-1)
		return err
	})
	return append(out, '}'), err
}

func appendItems(out []byte, n *yaml.Node, at string, depth int) (_ []byte, err error) {
	out = append(out, '[')
	for i, e := range n.Content {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = appendJSON(out, e, at, depth-1); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

func jsonScalar(n *yaml.Node) ([]byte, error) {
	switch n.ShortTag() {
	case "!!str":
		return quoted(n.Value), nil
	case "!!null":
		return []byte("null"), nil
	case "!!bool", "!!int", "!!float":
		if v := []byte(strings.ToLower(n.Value)); json.Valid(v) {
			return v, nil
		}
	}
	return nil, errors.New("the value has no JSON form: put it in quotes")
}

func quoted(s string) []byte {
	out, _ := json.Marshal(s) // a string always encodes
	return out
}
