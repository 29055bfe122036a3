package tool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// Validate checks arguments against the tool's input schema, then against its MaxRequestBytes.
// Empty arguments and null count as {}. The error is RESOURCE_EXHAUSTED for their size. For the
// schema it is INVALID_ARGUMENT with details {path, keyword} of the first mistake: a JSON pointer into
// the arguments and the keyword of the schema. Its member others has the same of at most 9 further
// mistakes.
func (t *Tool) Validate(args arcp.Raw) *arcp.Error {
	if t.input != nil {
		if fs := t.input.check(orEmpty(args)); fs != nil {
			return fs.invalidArgument()
		}
	}
	if limit := t.Limits.MaxRequestBytes; limit > 0 && len(args) > limit {
		return tooLarge("arguments object", len(args), limit, t.limitKey("max_request_bytes"))
	}
	return nil
}

// validator checks values against a compiled schema.
type validator struct {
	schema *jsonschema.Schema
	paths  int // see countPaths
}

// compile compiles a JSON Schema of 2020-12, or of the draft that its $schema names. It returns nil
// for a schema that allows every value. The error is an invalid schema, an external reference, a
// schema beyond the bounds of checkCost, or a number beyond maxNumber.
func compile(raw arcp.Raw, assertFormat bool) (*validator, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("it has %d bytes; a schema may have %d", len(raw), maxSchemaBytes)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if err := checkCost(doc); err != nil {
		return nil, err
	}
	if f := checkNumbers(doc, nil); f != nil {
		return nil, errors.New(f.text("the schema", "member"))
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if assertFormat {
		c.AssertFormat()
	}
	const url = "schema:///tool"
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(url)
	if err != nil {
		return nil, schemaError(err)
	}
	if s.Bool != nil && *s.Bool {
		return nil, nil
	}
	return &validator{s, countPaths(s, make(map[*jsonschema.Schema]int))}, nil
}

// schemaError returns an error of the compiler in one sentence: what is wrong in the schema with the first path.
func schemaError(err error) error {
	if bad, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if verr, ok := errors.AsType[*jsonschema.ValidationError](bad.Err); ok {
			f := faultsOf(verr)[0]
			return errors.New(f.text("the schema", "member"))
		}
	}
	return err
}

// CheckSchema returns INVALID_ARGUMENT for a schema that cannot be compiled. An empty schema allows
// every value.
func CheckSchema(schema arcp.Raw) *arcp.Error {
	if _, err := compile(schema, true); err != nil {
		return arcp.Errorf(arcp.CodeInvalidArgument, "the schema: %s", clip.Ellipsis(err.Error(), maxMessageBytes))
	}
	return nil
}

// CheckValue returns INVALID_ARGUMENT for a value that a schema does not allow.
func CheckValue(schema, value arcp.Raw) *arcp.Error {
	v, err := compile(schema, true)
	if err != nil {
		return arcp.Errorf(arcp.CodeInvalidArgument, "the schema: %s", clip.Ellipsis(err.Error(), maxMessageBytes))
	}
	if v == nil {
		return nil
	}
	if fs := v.check(value); fs != nil {
		return arcp.Errorf(arcp.CodeInvalidArgument, "%s", fs.text("the value", "member"))
	}
	return nil
}

// noLoader refuses external references.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("references outside of the schema are not allowed: %s", url)
}

// check returns the faults of a value by path, or nil.
func (v *validator) check(raw arcp.Raw) faults {
	doc, err := decodeValue(raw)
	if err != nil {
		return faults{{keyword: "json", want: "must be valid JSON"}}
	}
	if f := checkNumbers(doc, nil); f != nil {
		return faults{*f}
	}
	if !v.affordable(doc, len(raw)) {
		return faults{{keyword: "schema", want: "would take too long to check: too many values, or a schema that looks at each too often"}}
	}
	err = v.schema.Validate(doc)
	if err == nil {
		return nil
	}
	verr, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return faults{{keyword: "schema", want: "cannot be checked"}}
	}
	list := faultsOf(verr)
	v.addKnown(list)
	return list
}

// addKnown adds the known arguments to the last told fault about an unknown one.
func (v *validator) addKnown(list faults) {
	for i := min(len(list), maxFaults) - 1; i >= 0 && len(v.schema.Properties) > 0; i-- {
		if f := &list[i]; f.keyword == "additionalProperties" && strings.Count(f.path, "/") == 1 {
			f.want += "; known are " + strings.Join(slices.Sorted(maps.Keys(v.schema.Properties)), ", ")
			return
		}
	}
}

// maxFaults bounds the faults in an error. More would not be read, and a value may have one in each of its items.
const maxFaults = 10

// faults are the violations of a schema, sorted by path.
type faults []fault

// text returns a part of a sentence about each of the first faults; see fault.text.
func (fs faults) text(root, part string) string {
	var texts []string
	for i := range fs[:min(len(fs), maxFaults)] {
		texts = append(texts, fs[i].text(root, part))
	}
	if more := len(fs) - maxFaults; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

func (fs faults) invalidArgument() *arcp.Error {
	type location struct {
		Path    string `json:"path"`
		Keyword string `json:"keyword"`
	}
	var all []location
	for _, f := range fs[:min(len(fs), maxFaults)] {
		all = append(all, location{clip.Ellipsis(f.path, arcp.MaxIDLen), f.keyword})
	}
	return arcp.Errorf(arcp.CodeInvalidArgument, "%s", clip.Ellipsis(fs.text("the arguments", "argument"), maxMessageBytes)).WithDetails(struct {
		location
		Others []location `json:"others,omitempty"`
	}{all[0], all[1:]})
}

// fault is a violation of a schema.
type fault struct {
	path    string // JSON pointer into the value
	keyword string // of the schema
	want    string // requirement as a predicate, such as "must be at least 1"
}

// text returns a sentence about the fault. root names the whole value, part a part of the value.
func (f *fault) text(root, part string) string {
	if f.path == "" {
		return root + " " + f.want
	}
	return part + " " + clip.Ellipsis(f.path, arcp.MaxIDLen) + " " + f.want
}

// faultsOf returns the different leaves of an error tree by path.
func faultsOf(e *jsonschema.ValidationError) faults {
	order := func(a, b fault) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.keyword, b.keyword), strings.Compare(a.want, b.want))
	}
	list := leaves(e)
	slices.SortFunc(list, order)
	return slices.Compact(list)
}

// leaves returns the leaves of an error tree. For anyOf and oneOf it returns only the fault that is
// deepest in the value.
func leaves(e *jsonschema.ValidationError) []fault {
	var all []fault
	for _, cause := range e.Causes {
		all = append(all, leaves(cause)...)
	}
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		if len(all) > 0 {
			return []fault{alternatives(all)}
		}
	}
	if len(all) > 0 {
		return all
	}
	return leaf(e)
}

func alternatives(all []fault) fault {
	depth := func(f fault) int { return strings.Count(f.path, "/") }
	deepest := slices.MaxFunc(all, func(a, b fault) int {
		return cmp.Or(cmp.Compare(depth(a), depth(b)), strings.Compare(b.path, a.path))
	})
	var wants []string
	for _, f := range all {
		if f.path == deepest.path {
			wants = append(wants, f.want)
		}
	}
	slices.Sort(wants)
	deepest.want = strings.Join(slices.Compact(wants), ", or ")
	return deepest
}

// leaf returns the faults of one keyword.
func leaf(e *jsonschema.ValidationError) []fault {
	at := e.InstanceLocation
	keyword := strings.Join(e.ErrorKind.KeywordPath(), "/")
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		return eachMember(at, k.Missing, keyword, "is required")
	case *kind.AdditionalProperties:
		return eachMember(at, k.Properties, keyword, "is not known")
	case *kind.FalseSchema:
		return []fault{{pointer(at), "false", "is not allowed"}}
	}
	if want := requirement(e.ErrorKind); want != "" {
		return []fault{{pointer(at), keyword, "must " + want}}
	}
	return []fault{{pointer(at), keyword, "breaks the schema: " + describe(e)}}
}

// eachMember returns a fault for each of the members of the object at a location.
func eachMember(at, names []string, keyword, want string) (list []fault) {
	for _, name := range names {
		list = append(list, fault{pointer(append(slices.Clip(at), name)), keyword, want})
	}
	return list
}

// requirement returns the requirement of a common keyword, or "".
func requirement(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "be " + article(k.Want) + ", not " + article([]string{k.Got})
	case *kind.Enum:
		return "be one of " + jsonList(k.Want)
	case *kind.Const:
		return "be " + jsonList([]any{k.Want})
	case *kind.Minimum:
		return "be at least " + number(k.Want)
	case *kind.Maximum:
		return "be at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "be greater than " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "be less than " + number(k.Want)
	case *kind.MultipleOf:
		return "be a multiple of " + number(k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("have at most %d characters", k.Want)
	case *kind.Pattern:
		return "match " + k.Want
	case *kind.Format:
		return "have the format " + k.Want
	case *kind.MinItems:
		return fmt.Sprintf("have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("have at most %d items", k.Want)
	}
	return ""
}

// describe returns the library's text about a rare keyword.
func describe(e *jsonschema.ValidationError) string {
	alone := jsonschema.ValidationError{ErrorKind: e.ErrorKind}
	return clip.Ellipsis(strings.TrimPrefix(alone.Error(), "at '': "), maxMessageBytes)
}

func article(types []string) string {
	named := make([]string, len(types))
	for i, t := range types {
		switch t {
		case "null":
			named[i] = "null"
		case "array", "object", "integer":
			named[i] = "an " + t
		default:
			named[i] = "a " + t
		}
	}
	return strings.Join(named, " or ")
}

// number formats a bound of a schema.
func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return string(arcp.FloatNumber(f))
}

func jsonList(values []any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		raw, err := json.Marshal(v)
		if err != nil {
			raw = fmt.Append(nil, v)
		}
		texts[i] = string(raw)
	}
	return clip.Ellipsis(strings.Join(texts, ", "), maxMessageBytes)
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

// pointer returns a JSON pointer (RFC 6901).
func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString("/" + escapePointer.Replace(t))
	}
	return b.String()
}
