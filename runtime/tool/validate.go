package tool

import (
	"bytes"
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
			f := faultsOf(verr).list[0]
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

// check returns the faults of a value, or nil.
func (v *validator) check(raw arcp.Raw) *faults {
	doc, err := decodeValue(raw)
	if err != nil {
		return oneFault(fault{keyword: "json", want: "must be valid JSON"})
	}
	if f := checkNumbers(doc, nil); f != nil {
		return oneFault(*f)
	}
	if !v.affordable(doc, len(raw)) {
		return oneFault(fault{keyword: "schema", want: "would take too long to check: too many values, or a schema that looks at each too often"})
	}
	err = v.schema.Validate(doc)
	if err == nil {
		return nil
	}
	verr, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return oneFault(fault{keyword: "schema", want: "cannot be checked"})
	}
	fs := faultsOf(verr)
	fs.known = v.knownFor(fs.list)
	return fs
}

// knownFor returns the names of the known members if one of the faults is an unknown one.
func (v *validator) knownFor(list []fault) []string {
	unknown := func(f fault) bool { return f.keyword == "additionalProperties" && strings.Count(f.path, "/") == 1 }
	if !slices.ContainsFunc(list, unknown) {
		return nil
	}
	return slices.Sorted(maps.Keys(v.schema.Properties))
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

// maxPointer is a length at which a JSON pointer needs no more tokens. Texts show less of it.
const maxPointer = 2 * arcp.MaxIDLen

// pointer returns a JSON pointer (RFC 6901). One that is longer than maxPointer may be incomplete.
func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		if b.Len() > maxPointer {
			break
		}
		b.WriteString("/" + escapePointer.Replace(clip.Ellipsis(t, maxPointer)))
	}
	return b.String()
}
