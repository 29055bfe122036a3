package tool

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// schema is the part of JSON Schema 2020-12 that describes Go types. The zero schema allows any
// value.
type schema struct {
	Type                 types       `json:"type,omitzero"`
	Description          string      `json:"description,omitzero"`
	Format               string      `json:"format,omitzero"`
	ContentEncoding      string      `json:"contentEncoding,omitzero"`
	Enum                 []arcp.Raw  `json:"enum,omitzero"`
	Default              arcp.Raw    `json:"default,omitzero"`
	Minimum              arcp.Number `json:"minimum,omitzero"`
	Maximum              arcp.Number `json:"maximum,omitzero"`
	ExclusiveMinimum     arcp.Number `json:"exclusiveMinimum,omitzero"`
	ExclusiveMaximum     arcp.Number `json:"exclusiveMaximum,omitzero"`
	MultipleOf           arcp.Number `json:"multipleOf,omitzero"`
	MinLength            arcp.Number `json:"minLength,omitzero"`
	MaxLength            arcp.Number `json:"maxLength,omitzero"`
	Pattern              string      `json:"pattern,omitzero"`
	MinItems             arcp.Number `json:"minItems,omitzero"`
	MaxItems             arcp.Number `json:"maxItems,omitzero"`
	Items                *schema     `json:"items,omitzero"`
	Properties           properties  `json:"properties,omitzero"`
	Required             []string    `json:"required,omitzero"`
	AdditionalProperties any         `json:"additionalProperties,omitzero"` // false or a *schema

	constrained bool // a tag in the schema allows less than the Go type
}

// types encodes one type as a string, several as a list.
type types []string

// MarshalJSON encodes the types.
func (t types) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return arcp.Marshal(t[0])
	}
	return arcp.Marshal([]string(t))
}

// properties are the members of an object in the order of the struct.
type properties []property

type property struct {
	name   string
	schema *schema
}

// MarshalJSON encodes the members in order.
func (ps properties) MarshalJSON() (out []byte, err error) {
	out = append(out, '{')
	for i, p := range ps {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(arcp.AppendString(out, p.name), ':')
		if out, err = arcp.AppendJSON(out, p.schema); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// schemaOf derives the schema of the JSON of a Go type. The module google/jsonschema-go would lose
// information: its bounds are floats, its lists may be null, it has no base64 and no text types,
// and its tags have only descriptions.
func schemaOf(t reflect.Type) (*schema, error) {
	g := generator{}
	s, err := g.schemaFor(t)
	if err == nil {
		s.constrained = g.constrained
	}
	return s, err
}

// derived is the schema of a Go type in its three forms.
type derived struct {
	schema  *schema
	encoded arcp.Raw
	compile func() (*validator, error)
}

// derivations has the *derived of each reflect.Type that a tool was made of: a program that makes
// its tools again, as after a restart of the runtime, compiles no schema twice. It has at most as
// many entries as the program has types.
var derivations sync.Map

func derive(t reflect.Type) (*derived, error) {
	if d, ok := derivations.Load(t); ok {
		return d.(*derived), nil
	}
	s, err := schemaOf(t)
	if err != nil {
		return nil, err
	}
	encoded, err := arcp.Marshal(s)
	if err != nil {
		return nil, err
	}
	d, _ := derivations.LoadOrStore(t, &derived{s, encoded, sync.OnceValues(func() (*validator, error) { return compile(encoded, true) })})
	return d.(*derived), nil
}

func (s *schema) isObject() bool { return s.Type == nil || slices.Equal(s.Type, types{"object"}) }

// defaults returns the object of the default values, or nil without default values.
func (s *schema) defaults() arcp.Raw {
	out := arcp.Raw{'{'}
	for _, p := range s.Properties {
		v := p.schema.Default
		if v == nil && slices.Equal(p.schema.Type, types{"object"}) {
			v = p.schema.defaults()
		}
		if v == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(arcp.AppendString(out, p.name), ':'), v...)
	}
	if len(out) == 1 {
		return nil
	}
	return append(out, '}')
}

// generator walks Go types.
type generator struct {
	path        []reflect.Type // the structs around the current type, to find cycles
	depth       int            // number of pointers, lists and maps around the current type
	constrained bool           // a tag allows less than its Go type
}

var special = map[reflect.Type]schema{
	reflect.TypeFor[arcp.Raw]():    {},
	reflect.TypeFor[arcp.Number](): {Type: types{"number"}},
	reflect.TypeFor[time.Time]():   {Type: types{"string"}, Format: "date-time"},
}

func (g *generator) schemaFor(t reflect.Type) (*schema, error) {
	if s, ok := special[t]; ok {
		return &s, nil
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return nil, fmt.Errorf("time.Duration has no unit in JSON; use an integer whose name ends in _ms")
	case t.Kind() == reflect.Pointer:
		return g.nullable(t.Elem())
	case hasAny(t, "MarshalJSON", "MarshalJSONTo", "UnmarshalJSON", "UnmarshalJSONFrom"):
		return &schema{}, nil
	case implements[encoding.TextMarshaler](t), implements[encoding.TextUnmarshaler](t):
		return &schema{Type: types{"string"}}, nil
	}
	return g.ofKind(t)
}

func hasAny(t reflect.Type, methods ...string) bool {
	return slices.ContainsFunc(methods, func(name string) bool {
		_, ok := reflect.PointerTo(t).MethodByName(name)
		return ok
	})
}

func implements[I any](t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[I]())
}

func (g *generator) ofKind(t reflect.Type) (*schema, error) {
	switch t.Kind() {
	case reflect.Bool:
		return &schema{Type: types{"boolean"}}, nil
	case reflect.String:
		return &schema{Type: types{"string"}}, nil
	case reflect.Float32, reflect.Float64:
		return &schema{Type: types{"number"}}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		top := int64(math.MaxInt64) >> (64 - t.Bits())
		return integer(strconv.FormatInt(-top-1, 10), strconv.FormatInt(top, 10)), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return integer("0", strconv.FormatUint(uint64(math.MaxUint64)>>(64-t.Bits()), 10)), nil
	case reflect.Slice, reflect.Array:
		return g.list(t)
	case reflect.Map:
		return g.dictionary(t)
	case reflect.Struct:
		return g.object(t)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return &schema{}, nil
		}
	}
	return nil, fmt.Errorf("%v has no JSON form", t)
}

func integer(lo, hi string) *schema {
	return &schema{Type: types{"integer"}, Minimum: arcp.Number(lo), Maximum: arcp.Number(hi)}
}

func (g *generator) nullable(elem reflect.Type) (*schema, error) {
	s, err := g.elementSchema(elem)
	if err == nil && s.Type != nil && !slices.Contains(s.Type, "null") {
		s.Type = append(slices.Clip(s.Type), "null")
	}
	return s, err
}

// elementSchema returns the schema of the element type of a pointer, list or map.
func (g *generator) elementSchema(t reflect.Type) (*schema, error) {
	g.depth++
	defer func() { g.depth-- }()
	return g.schemaFor(t)
}

func (g *generator) list(t reflect.Type) (*schema, error) {
	if t.Elem().Kind() == reflect.Uint8 {
		return &schema{Type: types{"string"}, ContentEncoding: "base64"}, nil
	}
	items, err := g.elementSchema(t.Elem())
	s := &schema{Type: types{"array"}, Items: items}
	if t.Kind() == reflect.Array {
		n := arcp.Number(strconv.Itoa(t.Len()))
		s.MinItems, s.MaxItems = n, n
	}
	return s, err
}

func (g *generator) dictionary(t reflect.Type) (*schema, error) {
	if t.Key().Kind() != reflect.String {
		return nil, fmt.Errorf("%v: the keys must be strings", t)
	}
	values, err := g.elementSchema(t.Elem())
	return &schema{Type: types{"object"}, AdditionalProperties: values}, err
}

func (g *generator) object(t reflect.Type) (*schema, error) {
	if slices.Contains(g.path, t) {
		return nil, fmt.Errorf("%v contains itself", t)
	}
	g.path = append(g.path, t)
	defer func() { g.path = g.path[:len(g.path)-1] }()
	s := &schema{Type: types{"object"}, AdditionalProperties: false}
	for f := range t.Fields() {
		if err := g.field(s, f); err != nil {
			return nil, fmt.Errorf("%v.%s: %w", t, f.Name, err)
		}
	}
	return s, nil
}

// field adds a struct's field to its object.
func (g *generator) field(s *schema, f reflect.StructField) error {
	name, optional, err := jsonTag(f)
	switch {
	case err != nil:
		return err
	case name == "":
		return nil
	case f.Anonymous && name == f.Name:
		return g.embedded(s, f.Type)
	}
	member, err := g.schemaFor(f.Type)
	if err != nil {
		return err
	}
	constrains, err := member.applyTag(f.Tag.Get("jsonschema"))
	if err != nil {
		return err
	}
	g.constrained = g.constrained || constrains
	if member.Default != nil && (g.depth > 0 || !scalar(f.Type)) {
		return fmt.Errorf("only a plain field can have a default, and not below a pointer, list or map")
	}
	required := !optional && f.Type.Kind() != reflect.Pointer && member.Default == nil
	return s.add(name, member, required)
}

// embedded adds the members of an embedded struct. The members of an embedded pointer are
// optional.
func (g *generator) embedded(s *schema, t reflect.Type) error {
	pointer := t.Kind() == reflect.Pointer
	walk := g.schemaFor
	if pointer {
		t, walk = t.Elem(), g.elementSchema
	}
	inner, err := walk(t)
	if err != nil {
		return err
	}
	if t.Kind() != reflect.Struct || !slices.Equal(inner.Type, types{"object"}) {
		return fmt.Errorf("only structs that are objects can be embedded")
	}
	for _, p := range inner.Properties {
		if err := s.add(p.name, p.schema, !pointer && slices.Contains(inner.Required, p.name)); err != nil {
			return err
		}
	}
	return nil
}

func scalar(t reflect.Type) bool {
	return t.Kind() == reflect.String || t.Kind() >= reflect.Bool && t.Kind() <= reflect.Float64
}

func (s *schema) add(name string, member *schema, required bool) error {
	if slices.ContainsFunc(s.Properties, func(p property) bool { return p.name == name }) {
		return fmt.Errorf("the member %q exists twice", name)
	}
	s.Properties = append(s.Properties, property{name, member})
	if required {
		s.Required = append(s.Required, name)
	}
	return nil
}

// jsonTag returns the member name of a field, or "" for a field that is not encoded.
func jsonTag(f reflect.StructField) (name string, optional bool, err error) {
	tag := f.Tag.Get("json")
	if tag == "-" || !f.IsExported() && !f.Anonymous {
		return "", false, nil
	}
	name, rest, _ := strings.Cut(tag, ",")
	if name == "" {
		name = f.Name
	}
	for option := range strings.SplitSeq(rest, ",") {
		switch option {
		case "":
		case "omitzero", "omitempty":
			optional = true
		default:
			return "", false, fmt.Errorf("the json option %q has no schema", option)
		}
	}
	return name, optional, nil
}
