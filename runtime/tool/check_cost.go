package tool

import (
	"math"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxEffort bounds how many times a schema is looked at in one check, the same one
// counting each time: a small schema that refers to itself, or to another one
// twice, at each of many levels, would take hours and all memory. So many take a
// tenth of a second, and some 300 MB if all of them fail.
const maxEffort = 100_000

// measuredSchema is a schema with the cost of checking a value against it.
type measuredSchema struct {
	root  *jsonschema.Schema
	paths uint64 // ways through the schema; saturates for one that refers to itself
}

func newEffort(s *jsonschema.Schema) *measuredSchema {
	e := &measuredSchema{root: s}
	e.paths = e.ways(s, make(map[*jsonschema.Schema]uint64))
	return e
}

// open marks a schema whose ways are being counted.
const open = math.MaxUint64

// ways counts the paths from a schema to all others.
func (e *measuredSchema) ways(s *jsonschema.Schema, known map[*jsonschema.Schema]uint64) uint64 {
	if n, ok := known[s]; ok {
		return n // open: it refers to itself
	}
	known[s] = open
	n := uint64(1)
	for _, t := range append(beside(s), parts(s)...) {
		n = plus(n, e.ways(t, known))
	}
	known[s] = n
	return n
}

// bearable reports whether a value of so many bytes may be checked.
func (e *measuredSchema) bearable(doc any, size int) bool {
	if e.paths <= maxEffort/uint64(size+1) { // a byte is a value at most
		return true
	}
	w := costEstimate{known: make(map[*jsonschema.Schema]demand)}
	return w.add(doc, demand{e.root: 1})
}

// demand is how many times a value is checked against which schemas.
type demand map[*jsonschema.Schema]uint64

// costEstimate adds up the cost of checking a value, without checking it.
type costEstimate struct {
	spent   uint64
	known   map[*jsonschema.Schema]demand // see of
	entries int                           // in known
}

// add reports false as soon as it is too much.
func (w *costEstimate) add(doc any, d demand) bool {
	all := make(demand)
	for s, n := range d {
		for t, k := range w.of(s) {
			all[t] = plus(all[t], times(n, k))
		}
	}
	for _, n := range all {
		w.spent = plus(w.spent, n)
	}
	if w.spent > maxEffort {
		return false
	}
	switch doc := doc.(type) {
	case map[string]any:
		for name, value := range doc {
			if !w.part(all, value, func(s *jsonschema.Schema) []*jsonschema.Schema { return member(s, name) }) {
				return false
			}
		}
	case []any:
		for i, value := range doc {
			if !w.part(all, value, func(s *jsonschema.Schema) []*jsonschema.Schema { return item(s, i) }) {
				return false
			}
		}
	}
	return true
}

func (w *costEstimate) part(all demand, value any, schemas func(*jsonschema.Schema) []*jsonschema.Schema) bool {
	next := make(demand)
	for s, n := range all {
		for _, t := range schemas(s) {
			next[t] = plus(next[t], n)
		}
	}
	return len(next) == 0 || w.add(value, next)
}

// of is how many times a value that is checked against a schema is checked
// against which, that one included. It need not be exact where it is too much.
func (w *costEstimate) of(s *jsonschema.Schema) demand {
	if known, ok := w.known[s]; ok {
		return known
	}
	w.known[s] = demand{s: open} // it would be checked against itself for ever
	all := demand{s: 1}
	for _, t := range beside(s) {
		for u, n := range w.of(t) {
			all[u] = plus(all[u], n)
		}
	}
	if w.entries += len(all); w.entries > maxEffort {
		return demand{s: open}
	}
	w.known[s] = all
	return all
}

func plus(a, b uint64) uint64 {
	if a > open-b {
		return open
	}
	return a + b
}

func times(a, b uint64) uint64 {
	if b != 0 && a > open/b {
		return open
	}
	return a * b
}

// beside are the schemas that a value is checked against together with one.
func beside(s *jsonschema.Schema) (list []*jsonschema.Schema) {
	list = append(list, s.AllOf...)
	list = append(list, s.AnyOf...)
	list = append(list, s.OneOf...)
	list = append(list, s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else)
	if s.DynamicRef != nil {
		list = append(list, s.DynamicRef.Ref)
	}
	for _, t := range s.DependentSchemas {
		list = append(list, t)
	}
	for _, t := range s.Dependencies {
		list = append(list, schemas(t)...)
	}
	return present(list)
}

// parts are the schemas for the members and items of a value.
func parts(s *jsonschema.Schema) (list []*jsonschema.Schema) {
	for _, t := range s.Properties {
		list = append(list, t)
	}
	list = append(list, anyMember(s)...)
	list = append(list, s.PrefixItems...)
	return present(append(append(list, schemas(s.Items)...), anyItem(s)...))
}

// member are the schemas for a member of an object, and for its name.
func member(s *jsonschema.Schema, name string) []*jsonschema.Schema {
	list := anyMember(s)
	if t, ok := s.Properties[name]; ok {
		list = append(list, t)
	}
	return present(list)
}

func anyMember(s *jsonschema.Schema) []*jsonschema.Schema {
	list := []*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties}
	for _, t := range s.PatternProperties {
		list = append(list, t)
	}
	return append(list, schemas(s.AdditionalProperties)...)
}

// item are the schemas for an item of an array.
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
	return present(list)
}

func anyItem(s *jsonschema.Schema) []*jsonschema.Schema {
	return append([]*jsonschema.Schema{s.Contains, s.Items2020, s.UnevaluatedItems}, schemas(s.AdditionalItems)...)
}

// schemas is what a keyword has that is a schema, several, or something else.
func schemas(v any) []*jsonschema.Schema {
	switch v := v.(type) {
	case *jsonschema.Schema:
		return []*jsonschema.Schema{v}
	case []*jsonschema.Schema:
		return v
	}
	return nil
}

func present(list []*jsonschema.Schema) []*jsonschema.Schema {
	kept := list[:0]
	for _, s := range list {
		if s != nil {
			kept = append(kept, s)
		}
	}
	return kept
}
