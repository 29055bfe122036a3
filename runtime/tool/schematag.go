package tool

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// keyword is one keyword of the jsonschema tag: the types it makes sense for,
// none for all, and what sets it.
type keyword struct {
	types []string
	set   func(s *schema, value string) error
}

var (
	numbers = []string{"integer", "number"}
	strs    = []string{"string"}
	lists   = []string{"array"}
	scalars = []string{"integer", "number", "string", "boolean"}
)

var keywords = map[string]keyword{
	"minimum":          {numbers, toNumber(func(s *schema) *arcp.Number { return &s.Minimum })},
	"maximum":          {numbers, toNumber(func(s *schema) *arcp.Number { return &s.Maximum })},
	"exclusiveMinimum": {numbers, toNumber(func(s *schema) *arcp.Number { return &s.ExclusiveMinimum })},
	"exclusiveMaximum": {numbers, toNumber(func(s *schema) *arcp.Number { return &s.ExclusiveMaximum })},
	"multipleOf":       {numbers, toNumber(func(s *schema) *arcp.Number { return &s.MultipleOf })},
	"minLength":        {strs, toNumber(func(s *schema) *arcp.Number { return &s.MinLength })},
	"maxLength":        {strs, toNumber(func(s *schema) *arcp.Number { return &s.MaxLength })},
	"minItems":         {lists, toNumber(func(s *schema) *arcp.Number { return &s.MinItems })},
	"maxItems":         {lists, toNumber(func(s *schema) *arcp.Number { return &s.MaxItems })},
	"pattern":          {strs, func(s *schema, v string) error { s.Pattern = v; return nil }},
	"format":           {strs, func(s *schema, v string) error { s.Format = v; return nil }},
	"description":      {nil, func(s *schema, v string) error { s.Description = v; return nil }},
	"enum":             {scalars, (*schema).setEnum},
	"default":          {scalars, (*schema).setDefault},
}

// tagItem finds where the items of a tag begin: a comma inside of a value is
// not followed by a keyword.
var tagItem = regexp.MustCompile(`(?:^|,)([a-zA-Z]+)=`)

// applyTag adds what a jsonschema tag says.
func (s *schema) applyTag(tag string) error {
	if tag == "" {
		return nil
	}
	starts := slices.DeleteFunc(tagItem.FindAllStringSubmatchIndex(tag, -1), func(m []int) bool {
		_, known := keywords[tag[m[2]:m[3]]]
		return !known
	})
	if len(starts) == 0 || starts[0][0] != 0 {
		return fmt.Errorf("jsonschema tag %q: it must begin with a known keyword and =", tag)
	}
	for i, m := range starts {
		end := len(tag)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		if err := s.apply(tag[m[2]:m[3]], tag[m[1]:end]); err != nil {
			return err
		}
	}
	return nil
}

func (s *schema) apply(name, value string) error {
	k := keywords[name]
	if k.types != nil && (len(s.Type) == 0 || !slices.Contains(k.types, s.Type[0])) {
		return fmt.Errorf("jsonschema tag: %s has no meaning for this type", name)
	}
	if err := k.set(s, value); err != nil {
		return fmt.Errorf("jsonschema tag: %s: %w", name, err)
	}
	if name != "description" && name != "default" {
		s.tagged = true
	}
	return nil
}

func toNumber(field func(*schema) *arcp.Number) func(*schema, string) error {
	return func(s *schema, v string) error {
		raw := arcp.Raw(v)
		if !raw.IsValid() || raw.Kind() != '0' {
			return fmt.Errorf("%q is not a number", v)
		}
		*field(s) = arcp.Number(v)
		return nil
	}
}

func (s *schema) setEnum(list string) error {
	for v := range strings.SplitSeq(list, "|") {
		raw, err := s.literal(v)
		if err != nil {
			return err
		}
		s.Enum = append(s.Enum, raw)
	}
	if slices.Contains(s.Type, "null") {
		s.Enum = append(s.Enum, arcp.Raw("null"))
	}
	return nil
}

func (s *schema) setDefault(v string) (err error) {
	s.Default, err = s.literal(v)
	return err
}

// literal turns the text of a tag into a value of the schema's type.
func (s *schema) literal(v string) (arcp.Raw, error) {
	if s.Type[0] == "string" {
		return arcp.AppendString(nil, v), nil
	}
	raw := arcp.Raw(v)
	kind := raw.Kind()
	ok := kind == '0' && s.Type[0] != "boolean" || (kind == 't' || kind == 'f') && s.Type[0] == "boolean"
	if !ok || !raw.IsValid() {
		return nil, fmt.Errorf("%q is not %s", v, article(s.Type[:1]))
	}
	return raw, nil
}
