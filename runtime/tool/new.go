package tool

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/rule"
)

// NewRaw returns a tool whose function decodes its arguments and encodes its result itself. The
// error is an invalid member of c, or a schema with an external reference.
func NewRaw(c Capability, fn Func) (*Tool, error) {
	t, err := newTool(c, fn)
	if err != nil {
		return nil, err
	}
	t.raw = true
	if t.input, err = compile(c.InputSchema, false); err != nil {
		return nil, fmt.Errorf("tool %s: input schema: %w", t.ref, err)
	}
	if t.output, err = compile(c.OutputSchema, false); err != nil {
		return nil, fmt.Errorf("tool %s: output schema: %w", t.ref, err)
	}
	return t, nil
}

// New returns a tool that runs a Go function. If c has no schemas, New derives them from In and
// Out:
//
//   - A struct is an object with a member for each exported field and no others. The json
//     tag names the member. A member is required unless its field is a pointer, has omitzero
//     or omitempty, or has a default.
//   - Integers have the bounds of their type, []byte is base64, time.Time is RFC 3339,
//     arcp.Number is any number, arcp.Raw and any are any value.
//   - The value of a pointer may also be null.
//   - The tag jsonschema:"keyword=value,…" adds minimum, maximum, exclusiveMinimum,
//     exclusiveMaximum, multipleOf, minLength, maxLength, pattern, format, minItems,
//     maxItems, enum=a|b, default and description. The function receives the default for a
//     missing member.
//
// In must be an object: a struct, a map, arcp.Raw or any. The error is an invalid member of c, or
// a field whose type has no JSON Schema.
func New[In, Out any](c Capability, fn func(ctx context.Context, job Job, in In) (Out, error)) (*Tool, error) {
	t, err := newTool(c, nil)
	if err != nil {
		return nil, err
	}
	in, err := t.deriveInput(reflect.TypeFor[In]())
	if err != nil {
		return nil, fmt.Errorf("tool %s: input: %w", t.ref, err)
	}
	if err := t.deriveOutput(reflect.TypeFor[Out]()); err != nil {
		return nil, fmt.Errorf("tool %s: output: %w", t.ref, err)
	}
	var defaults In
	if in != nil {
		if err := arcp.Unmarshal(in, &defaults); err != nil {
			return nil, fmt.Errorf("tool %s: input: defaults: %w", t.ref, err)
		}
	}
	t.run = typed(defaults, fn)
	return t, nil
}

// MustNew is like New but panics on an error.
func MustNew[In, Out any](c Capability, fn func(ctx context.Context, job Job, in In) (Out, error)) *Tool {
	t, err := New(c, fn)
	if err != nil {
		panic(err)
	}
	return t
}

func newTool(c Capability, fn Func) (*Tool, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("tool %s: %w", c.Ref(), err)
	}
	t := &Tool{Capability: c, ref: c.Ref(), run: fn}
	if c.Approval.Rule != "" {
		var err error
		if t.rule, err = rule.Compile(c.Approval.Rule); err != nil {
			return nil, fmt.Errorf("tool %s: approval rule: %w", c.Ref(), err)
		}
	}
	return t, nil
}

// Ref returns the reference name@version.
func (t *Tool) Ref() string { return t.ref }

// deriveInput sets the input schema. It returns the object of the default values, or nil without
// default values.
func (t *Tool) deriveInput(in reflect.Type) (defaults arcp.Raw, err error) {
	d, err := derive(in)
	if err != nil {
		return nil, err
	}
	if !d.schema.isObject() {
		return nil, fmt.Errorf("%v is not a JSON object", in)
	}
	if t.InputSchema == nil {
		t.InputSchema = slices.Clone(d.encoded)
		t.input, err = d.compile()
	} else {
		t.input, err = compile(t.InputSchema, true)
	}
	return d.schema.defaults(), err
}

// deriveOutput sets the output schema. Results are checked against a derived schema only if a tag
// constrains the Go type.
func (t *Tool) deriveOutput(out reflect.Type) error {
	d, err := derive(out)
	if err != nil {
		return err
	}
	if t.OutputSchema != nil {
		t.output, err = compile(t.OutputSchema, true)
		return err
	}
	t.OutputSchema = slices.Clone(d.encoded)
	if d.schema.constrained {
		t.output, err = d.compile()
	}
	return err
}

// typed returns a Func that decodes the arguments over a copy of the defaults and encodes
// the result. Defaults are scalars, so a shallow copy is enough.
func typed[In, Out any](defaults In, fn func(context.Context, Job, In) (Out, error)) Func {
	return func(ctx context.Context, job Job, args arcp.Raw) (arcp.Raw, error) {
		in, err := decode(args, defaults)
		if err != nil {
			return nil, err
		}
		out, err := fn(ctx, job, in)
		if err != nil {
			return nil, err
		}
		raw, err := arcp.Marshal(out)
		if err != nil {
			return nil, arcp.Errorf(arcp.CodeInternal, "the tool's result cannot be encoded")
		}
		return raw, nil
	}
}

// decode decodes arguments that satisfy the schema. JSON Schema counts 1.0 and 1e3 as integers, but
// the decoder refuses them: decode rewrites them after a failure.
func decode[In any](args arcp.Raw, defaults In) (In, error) {
	in := defaults
	err := arcp.Unmarshal(args, &in)
	if err == nil {
		return in, nil
	}
	if plain, ok := plainIntegers(args); ok {
		in := defaults
		if arcp.Unmarshal(plain, &in) == nil {
			return in, nil
		}
	}
	text := goType.ReplaceAllString(strings.TrimPrefix(err.Error(), "json: "), "")
	return in, arcp.Errorf(arcp.CodeInvalidArgument, "arguments: %s", text)
}

// goType matches the Go type in an error of the decoder.
var goType = regexp.MustCompile(` into Go \S+`)
