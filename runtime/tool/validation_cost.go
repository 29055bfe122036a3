package tool

import (
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxChecks bounds the checks of a value against a schema in one validation. Without a bound, a small
// schema with two references at each level needs hours and all memory. 100,000 checks need a tenth
// of a second, and some 50 MB if all of them fail.
const maxChecks = 100_000

// affordable reports whether the validation of a value takes at most maxChecks checks. size
// is the length of the value's JSON.
func (v *validator) affordable(doc any, size int) bool {
	var c checkCount
	return v.paths*(size+1) <= maxChecks || c.add(v.schema, doc) // each value has at least one byte
}

// countPaths returns the number of paths from a schema to its subschemas, at most maxChecks+1. A
// recursive schema has maxChecks+1. known caches the results.
func countPaths(s *jsonschema.Schema, known map[*jsonschema.Schema]int) int {
	if s == nil {
		return 0
	}
	if n, ok := known[s]; ok {
		return n
	}
	known[s] = maxChecks + 1
	n := 1
	children := slices.Concat(inPlace(s), slices.Collect(maps.Values(s.Properties)), anyMember(s), s.PrefixItems, schemas(s.Items), anyItem(s))
	for _, t := range children {
		n = min(n+countPaths(t, known), maxChecks+1)
	}
	known[s] = n
	return n
}

// checkCount counts the checks of a validation without performing them.
type checkCount int

// add counts the checks of a value against a schema. It returns false at more than maxChecks.
func (c *checkCount) add(s *jsonschema.Schema, doc any) bool {
	if *c++; *c > maxChecks {
		return false
	}
	if !c.addAll(inPlace(s), doc) {
		return false
	}
	switch doc := doc.(type) {
	case map[string]any:
		for name, value := range doc {
			if !c.addAll(append(anyMember(s), s.Properties[name]), value) {
				return false
			}
		}
	case []any:
		for i, value := range doc {
			if !c.addAll(item(s, i), value) {
				return false
			}
		}
	}
	return true
}

func (c *checkCount) addAll(list []*jsonschema.Schema, doc any) bool {
	for _, s := range list {
		if s != nil && !c.add(s, doc) {
			return false
		}
	}
	return true
}

// inPlace returns the subschemas of s that apply to the same value. Some may be nil, here and in the
// lists below.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	list := slices.Concat(s.AllOf, s.AnyOf, s.OneOf, []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else})
	if s.DynamicRef != nil {
		list = append(list, s.DynamicRef.Ref)
	}
	list = slices.AppendSeq(list, maps.Values(s.DependentSchemas))
	for _, t := range s.Dependencies {
		list = append(list, schemas(t)...)
	}
	return list
}

// anyMember returns the schemas for the values and names of all members of an object.
func anyMember(s *jsonschema.Schema) []*jsonschema.Schema {
	list := []*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties}
	list = slices.AppendSeq(list, maps.Values(s.PatternProperties))
	return append(list, schemas(s.AdditionalProperties)...)
}

// item returns the schemas for an item of an array.
func item(s *jsonschema.Schema, i int) []*jsonschema.Schema {
	list := anyItem(s)
	if i < len(s.PrefixItems) {
		list = append(list, s.PrefixItems[i])
	}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		list = append(list, items)
	case []*jsonschema.Schema:
		if i < len(items) {
			list = append(list, items[i])
		}
	}
	return list
}

func anyItem(s *jsonschema.Schema) []*jsonschema.Schema {
	return append([]*jsonschema.Schema{s.Contains, s.Items2020, s.UnevaluatedItems}, schemas(s.AdditionalItems)...)
}

// schemas returns the schemas in the value of a keyword.
func schemas(v any) []*jsonschema.Schema {
	switch v := v.(type) {
	case *jsonschema.Schema:
		return []*jsonschema.Schema{v}
	case []*jsonschema.Schema:
		return v
	}
	return nil
}
