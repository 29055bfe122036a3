package tool

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

var (
	numbers = []string{"integer", "number"}
	strs    = []string{"string"}
	lists   = []string{"array"}
	scalars = []string{"integer", "number", "string", "boolean"}
)

// keywords maps each keyword of the jsonschema tag to the JSON types that may have it; nil: every
// type.
var keywords = map[string][]string{
	"minimum":          numbers,
	"maximum":          numbers,
	"exclusiveMinimum": numbers,
	"exclusiveMaximum": numbers,
	"multipleOf":       numbers,
	"minLength":        strs,
	"maxLength":        strs,
	"minItems":         lists,
	"maxItems":         lists,
	"pattern":          strs,
	"format":           strs,
	"description":      nil,
	"enum":             scalars,
	"default":          scalars,
}

// tagItem matches the start of an item of a tag: a comma before a keyword. Other commas are part
// of a value.
var tagItem = regexp.MustCompile(`(?:^|,)([a-zA-Z]+)=`)

// applyTag adds the keywords of a jsonschema tag. constrains reports whether a keyword allows less
// than the Go type.
func (s *schema) applyTag(tag string) (constrains bool, err error) {
	if tag == "" {
		return false, nil
	}
	starts := slices.DeleteFunc(tagItem.FindAllStringSubmatchIndex(tag, -1), func(m []int) bool {
		_, known := keywords[tag[m[2]:m[3]]]
		return !known
	})
	if len(starts) == 0 || starts[0][0] != 0 {
		return false, fmt.Errorf("jsonschema tag %q: it must begin with a known keyword and =", tag)
	}
	for i, m := range starts {
		end := len(tag)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		name := tag[m[2]:m[3]]
		if err := s.apply(name, tag[m[1]:end]); err != nil {
			return false, fmt.Errorf("jsonschema tag: %s %w", name, err)
		}
		constrains = constrains || name != "description" && name != "default"
	}
	return constrains, nil
}

func (s *schema) apply(name, text string) error {
	if on := keywords[name]; on != nil && (len(s.Type) == 0 || !slices.Contains(on, s.Type[0])) {
		return fmt.Errorf("has no meaning for this type")
	}
	value, err := s.value(name, text)
	if err != nil {
		return err
	}
	return arcp.Unmarshal(fmt.Appendf(nil, "{%q:%s}", name, value), s)
}

// value returns the JSON of a keyword's value.
func (s *schema) value(name, text string) (arcp.Raw, error) {
	switch name {
	case "pattern", "format", "description":
		return arcp.AppendString(nil, text), nil
	case "default":
		return literal(s.Type[0], text)
	case "enum":
		var list []arcp.Raw
		for v := range strings.SplitSeq(text, "|") {
			raw, err := literal(s.Type[0], v)
			if err != nil {
				return nil, err
			}
			list = append(list, raw)
		}
		if slices.Contains(s.Type, "null") {
			list = append(list, arcp.Raw("null"))
		}
		return arcp.Marshal(list)
	}
	return literal("number", text)
}

// literal returns a text of a tag as JSON of a type.
func literal(typ, text string) (arcp.Raw, error) {
	if typ == "string" {
		return arcp.AppendString(nil, text), nil
	}
	raw := arcp.Raw(text)
	kind := raw.Kind()
	ok := kind == '0' && typ != "boolean" || (kind == 't' || kind == 'f') && typ == "boolean"
	if !ok || !raw.IsValid() {
		return nil, fmt.Errorf("%q is not %s", text, article([]string{typ}))
	}
	return raw, nil
}
