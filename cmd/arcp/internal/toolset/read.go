package toolset

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// keys maps the keys of a mapping to the functions that read their values.
type keys map[string]func(any) error

// read reads a mapping, and returns all its mistakes. A dash in a key counts as an underscore.
func (k keys) read(v any, required ...string) error {
	m, err := mapping(v)
	if m == nil {
		return err
	}
	var list settings.Mistakes
	list.Add(err)
	known := slices.Sorted(maps.Keys(k))
	meant := make(map[string]bool) // by unknown keys
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if read, ok := k[key]; ok {
			list.Add(read(m[key]), key)
			continue
		}
		list.Add(unknown(key, known))
		meant[suggestion(key, known)] = true
	}
	for _, key := range required {
		if _, ok := m[key]; !ok && !meant[key] {
			list.Add(errors.New(key + " is missing"))
		}
	}
	return list.OrNil()
}

// maxTypos is the largest edit distance of a typo. Two swapped letters have the distance 2.
const maxTypos = 2

// moved has keys of other programs, and the keys in their place. The first applies whose first part is known.
var moved = map[string][]string{
	"args":            {"exec", "command"},
	"arguments":       {"exec", "command"},
	"cmd":             {"exec", "command"},
	"command":         {"exec"},
	"concurrency":     {"limits.concurrency"},
	"cwd":             {"dir"},
	"environment":     {"env"},
	"headers":         {"headers_file"},
	"max_attempts":    {"retry.max_attempts"},
	"memory":          {"limits.memory"},
	"parameters":      {"input_schema"},
	"rate_per_min":    {"limits.rate_per_min"},
	"retries":         {"retry.max_attempts"},
	"run":             {"exec", "command"},
	"schema":          {"input_schema"},
	"timeout":         {"limits.timeout_ms", "timeout_ms"},
	"timeout_ms":      {"limits.timeout_ms"},
	"timeout_seconds": {"limits.timeout_ms", "timeout_ms"},
	"working_dir":     {"dir"},
}

// suggestion returns the key that an unknown key probably means, or "".
func suggestion(key string, known []string) string {
	if near, off := settings.Closest(key, known); off <= maxTypos {
		return near
	}
	for _, name := range moved[strings.ToLower(key)] {
		if first, _, _ := strings.Cut(name, "."); slices.Contains(known, first) {
			return name
		}
	}
	return ""
}

// unknown returns the mistake of an unknown key.
func unknown(key string, known []string) settings.Mistake {
	text := fmt.Sprintf("unknown key %.40q; there are %s", key, strings.Join(known, ", "))
	if name := suggestion(key, known); name != "" {
		text = fmt.Sprintf("unknown key %.40q; did you mean %q?", key, name)
	}
	return settings.MistakeAt(settings.Position{Path: []string{key}, OnKey: true}, text)
}

// mapping returns a mapping, with underscores for the dashes in its keys. It is nil only for another value.
func mapping(v any) (clean map[string]any, err error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("want a mapping")
	}
	clean = make(map[string]any, len(m))
	for key, v := range m {
		name := strings.ReplaceAll(key, "-", "_")
		if _, twice := clean[name]; twice {
			err = settings.MistakeAt(settings.Position{Path: []string{name}}, "it is there twice: remove one")
		}
		clean[name] = v
	}
	return clean, err
}

func text(dst *string) func(any) error {
	return func(v any) error {
		s, ok := v.(string)
		if !ok || s == "" {
			return errors.New("want a text: put it in quotes")
		}
		*dst = s
		return nil
	}
}

func boolean(dst **bool) func(any) error {
	return func(v any) error {
		b, ok := v.(bool)
		if !ok {
			return errors.New("want true or false")
		}
		*dst = &b
		return nil
	}
}

func oneOf[T ~string](dst *T, words []T) func(any) error {
	return func(v any) error {
		s, ok := v.(string)
		if !ok || !slices.Contains(words, T(s)) {
			return fmt.Errorf("want one of %s", join(words))
		}
		*dst = T(s)
		return nil
	}
}

func join[T ~string](words []T) string {
	var texts []string
	for _, w := range words {
		texts = append(texts, string(w))
	}
	return strings.Join(texts, ", ")
}

func integerIn[T int | int64](dst *T, least, most int64) func(any) error {
	return func(v any) error {
		n, ok := integer(v)
		if !ok || n < least || n > most {
			return fmt.Errorf("want a whole number from %d to %d", least, most)
		}
		*dst = T(n)
		return nil
	}
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

func number(dst *float64) func(any) error {
	return func(v any) error {
		n, ok := v.(float64)
		if i, is := integer(v); is {
			n, ok = float64(i), true
		}
		if !ok || math.IsNaN(n) || math.IsInf(n, 0) {
			return errors.New("want a number")
		}
		*dst = n
		return nil
	}
}

// size reads a number of bytes: 1048576, "64KiB", 8MiB.
func size[T int | int64](dst *T, least, most int64) func(any) error {
	return func(v any) error {
		n, ok := integer(v)
		if s, is := v.(string); is {
			parsed, err := settings.ParseSize(s)
			n, ok = parsed, err == nil
		}
		if !ok || n < least || n > most {
			return fmt.Errorf("want a size such as 64KiB or 8MiB, from %d to %d bytes", least, most)
		}
		*dst = T(n)
		return nil
	}
}

func texts(v any) ([]string, error) {
	items, ok := v.([]any)
	if !ok {
		return nil, errors.New("want a list of texts: [...]")
	}
	list := make([]string, len(items))
	for i, item := range items {
		s, is := item.(string)
		if !is || strings.Contains(s, "\x00") {
			return nil, fmt.Errorf("want a list of texts: item %d is none, put it in quotes", i+1)
		}
		list[i] = s
	}
	return list, nil
}

// argv reads a program and its arguments. A program with a slash is a path; another program is searched in PATH
// at its start.
func argv(dst *[]string, dir string) func(any) error {
	return func(v any) error {
		list, err := texts(v)
		switch {
		case err != nil:
			return err
		case len(list) == 0 || list[0] == "":
			return errors.New("name a program: [program, argument, …]")
		case strings.Contains(list[0], "/"), filepath.Base(list[0]) != list[0]:
			list[0] = within(dir, list[0])
		}
		*dst = list
		return nil
	}
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variables reads names of environment variables. An error does not contain the invalid name, which may be a
// secret value.
func variables(dst *[]string) func(any) error {
	return func(v any) error {
		list, err := texts(v)
		if err != nil {
			return err
		}
		for _, name := range list {
			switch {
			case !variable.MatchString(name):
				return errors.New("want names of variables, without values: a value is taken from the environment of the server")
			case name == "ARCP_JOB_ID":
				return errors.New("ARCP_JOB_ID is the job's: remove it")
			}
		}
		*dst = list
		return nil
	}
}

func globs(dst *[]string) func(any) error {
	return func(v any) error {
		list, err := texts(v)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return errors.New("it allows nothing: name patterns of tools, or leave it out for all of them")
		}
		for _, p := range list {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				return errors.New(`a pattern is empty or has a bracket without its end: close it or put a \ before it`)
			}
		}
		*dst = list
		return nil
	}
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func name(dst *string) func(any) error {
	return func(v any) error {
		s, ok := v.(string)
		if !ok || !namePattern.MatchString(s) {
			return errors.New("want a name of at most 64 lower-case letters, digits, dots, dashes and underscores")
		}
		*dst = s
		return nil
	}
}

func within(dir, name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(dir, name)
}

// file reads the path of a file without opening the file.
func file(dst *string, dir string) func(any) error {
	return func(v any) error {
		if err := text(dst)(v); err != nil {
			return err
		}
		*dst = within(dir, *dst)
		return nil
	}
}

// directory reads the path of an existing directory.
func directory(dst *string, dir string) func(any) error {
	return func(v any) error {
		if err := file(dst, dir)(v); err != nil {
			return err
		}
		info, err := os.Stat(*dst)
		if err != nil || !info.IsDir() {
			return fmt.Errorf("there is no directory %s: make it, or name another", *dst)
		}
		return nil
	}
}

// maxSchema bounds the bytes of a schema file.
const maxSchema = 1 << 20

// schema reads a JSON Schema: a mapping, or a text with the path of a file.
func schema(dst *arcp.Raw, dir string) func(any) error {
	return func(v any) (err error) {
		switch v := v.(type) {
		case map[string]any, bool:
			if *dst, err = arcp.Marshal(v); err != nil {
				return errors.New("it has something that JSON has not: keys that are no texts, or numbers that are none")
			}
			return nil
		case string:
			*dst, err = readSchema(within(dir, v))
			return err
		}
		return errors.New("want a JSON Schema as a mapping, or the path of a file with one")
	}
}

func readSchema(name string) (arcp.Raw, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w; make it readable, or name another", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSchema+1))
	switch {
	case err != nil:
		return nil, err
	case len(raw) > maxSchema:
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxSchema)
	case !arcp.Raw(raw).IsValid():
		return nil, fmt.Errorf("%s is not JSON", name)
	}
	return arcp.Canonical(raw)
}
