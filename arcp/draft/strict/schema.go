package strict

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// field is a member that a library decodes. Its text form is "path kind": the path has names
// joined by dots, [] after the name of a list stands for each of its items, and ? after a name
// means that the member may be missing.
type field struct {
	path []step
	kind string
}

// step is a name in a path.
type step struct {
	name     string
	list     bool // the rest of the path is about each item
	optional bool
}

func (f *field) String() string {
	names := make([]string, len(f.path))
	for i, s := range f.path {
		names[i] = s.name
	}
	return strings.Join(names, ".")
}

// parse reads one field a line.
func parse(text string) (fields []field) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 2 || words[1][0] != '=' && kinds[words[1]] == nil {
			panic("strict: field " + line)
		}
		f := field{kind: words[1]}
		for name := range strings.SplitSeq(words[0], ".") {
			var st step
			name, st.optional = strings.CutSuffix(name, "?")
			st.name, st.list = strings.CutSuffix(name, "[]")
			f.path = append(f.path, st)
		}
		fields = append(fields, f)
	}
	return fields
}

// kinds are the tests of values. A kind =a|b has its values in its name.
var kinds = map[string]func(v any) bool{
	"any":    func(any) bool { return true },
	"text":   func(v any) bool { _, ok := v.(string); return ok },
	"name":   func(v any) bool { s, ok := v.(string); return ok && s != "" },
	"bool":   func(v any) bool { _, ok := v.(bool); return ok },
	"object": func(v any) bool { _, ok := v.(map[string]any); return ok },
	"array":  func(v any) bool { _, ok := v.([]any); return ok },
	"number": func(v any) bool { _, ok := v.(json.Number); return ok },
	"amount": func(v any) bool { n, ok := v.(json.Number); return ok && !strings.HasPrefix(n.String(), "-") },
	"uint":   isUint,
	"above0": func(v any) bool { return isUint(v) && v.(json.Number) != "0" },
	"time":   isTime,
	"utc":    func(v any) bool { return isTime(v) && strings.HasSuffix(v.(string), "Z") },
	"trace": func(v any) bool {
		s, ok := v.(string)
		return ok && traceID.MatchString(s) && strings.Trim(s, "0") != ""
	},
	"numbers": func(v any) bool {
		return each(v, func(v any) bool { _, ok := v.(json.Number); return ok })
	},
	"texts":    func(v any) bool { return each(v, func(v any) bool { _, ok := v.(string); return ok }) },
	"patterns": func(v any) bool { return each(v, isTexts) },
	"names":    isTexts,
	"code":     func(v any) bool { s, ok := v.(string); return ok && slices.Contains(codes, s) },
}

var traceID = regexp.MustCompile(`^[0-9a-f]{32}$`)

var uint64s = regexp.MustCompile(`^(0|[1-9][0-9]{0,15})$`)

func isUint(v any) bool {
	n, ok := v.(json.Number)
	return ok && uint64s.MatchString(n.String())
}

func isTime(v any) bool {
	s, ok := v.(string)
	_, err := time.Parse(time.RFC3339Nano, s)
	return ok && err == nil
}

func each(v any, test func(any) bool) bool {
	m, ok := v.(map[string]any)
	for _, v := range m {
		ok = ok && test(v)
	}
	return ok
}

func isTexts(v any) bool {
	list, ok := v.([]any)
	for _, v := range list {
		_, is := v.(string)
		ok = ok && is
	}
	return ok
}

// check returns what is wrong with the field in an object; empty: nothing.
func (f *field) check(object map[string]any) string { return f.at(object, 0) }

func (f *field) at(v any, depth int) string {
	if depth == len(f.path) {
		if !f.holds(v) {
			return fmt.Sprintf("%s is not %s: %v", f, f.kind, v)
		}
		return ""
	}
	object, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprintf("%s: %v is not an object", f, v)
	}
	s := f.path[depth]
	value, present := object[s.name]
	switch {
	case s.optional && value == nil:
		return ""
	case !present:
		return f.String() + " is missing"
	case !s.list:
		return f.at(value, depth+1)
	}
	items, ok := value.([]any)
	if !ok {
		return s.name + " is not a list"
	}
	for _, item := range items {
		if text := f.at(item, depth+1); text != "" {
			return text
		}
	}
	return ""
}

func (f *field) holds(v any) bool {
	if words, ok := strings.CutPrefix(f.kind, "="); ok {
		s, is := v.(string)
		return is && slices.Contains(strings.Split(words, "|"), s)
	}
	return kinds[f.kind](v)
}

// opaque are the members with values of the user, which may contain null.
var opaque = []string{"result", "output", "input", "args", "fields", "attributes", "details", "dims", "dimensions",
	"data", "lease", "lease_request", "constraints"}

// nulls returns the path of a null that is not allowed; empty: there is none.
func nulls(v any, path string) string {
	switch v := v.(type) {
	case nil:
		return path
	case map[string]any:
		for name, value := range v {
			if slices.Contains(opaque, name) && value != nil || name == "next_cursor" || name == "parent_job_id" && strings.HasSuffix(path, "jobs[]") {
				continue
			}
			if p := nulls(value, path+"."+name); p != "" {
				return p
			}
		}
	case []any:
		for _, value := range v {
			if p := nulls(value, path+"[]"); p != "" {
				return p
			}
		}
	}
	return ""
}
