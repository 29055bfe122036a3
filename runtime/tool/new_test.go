package tool

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
)

type addArgs struct {
	A     int64     `json:"a"`
	B     int64     `json:"b" jsonschema:"default=10,maximum=100"`
	Scale float64   `json:"scale,omitzero"`
	Tags  []string  `json:"tags,omitzero"`
	Extra arcp.Raw  `json:"extra,omitzero"`
	Limit *addLimit `json:"limit"`
}

type addLimit struct {
	Max int64 `json:"max"`
}

type addResult struct {
	Sum int64 `json:"sum" jsonschema:"maximum=1000"`
}

func add(_ context.Context, _ Job, in addArgs) (addResult, error) {
	sum := in.A + in.B
	if in.Limit != nil && sum > in.Limit.Max {
		return addResult{}, arcp.Errorf(arcp.CodeOutOfRange, "over %d", in.Limit.Max)
	}
	return addResult{sum}, nil
}

func call(t *testing.T, tool *Tool, args string) (string, *arcp.Error) {
	t.Helper()
	if err := tool.Validate(arcp.Raw(args)); err != nil {
		return "", err
	}
	out, err := tool.Run(t.Context(), Job{}, arcp.Raw(args))
	return string(out), err
}

func TestTypedToolDecodesArguments(t *testing.T) {
	tool := MustNew(Capability{Name: "add"}, add)
	for _, c := range []struct{ args, want string }{
		{`{"a":1}`, `{"sum":11}`},
		{`{"a":1,"b":2}`, `{"sum":3}`},
		{`{"a":1.0,"b":2e1}`, `{"sum":21}`},
		{`{"a":-1,"limit":null}`, `{"sum":9}`},
		{`{"a":1,"limit":{"max":11.0},"tags":["x"],"extra":[1.0,"1.0"]}`, `{"sum":11}`},
	} {
		if got, err := call(t, tool, c.args); err != nil || got != c.want {
			t.Errorf("%s = %s, %v, want %s", c.args, got, err, c.want)
		}
	}
	for _, c := range []struct {
		args    string
		code    arcp.Code
		message string
	}{
		{`{}`, arcp.CodeInvalidArgument, "argument /a is required"},
		{`{"a":1,"b":101}`, arcp.CodeInvalidArgument, "argument /b must be at most 100"},
		{`{"a":9223372036854775808}`, arcp.CodeInvalidArgument, "argument /a must be at most 9223372036854775807"},
		{`{"a":1,"c":1}`, arcp.CodeInvalidArgument, "argument /c is not known; known are a, b, extra, limit, scale, tags"},
		{`{"a":1,"limit":{"max":1}}`, arcp.CodeOutOfRange, "over 1"},
		{`{"a":991}`, arcp.CodeInternal, "the tool's result breaks its output schema: member /sum must be at most 1000"},
	} {
		_, err := call(t, tool, c.args)
		wantError(t, c.args, err, c.code, c.message)
	}
	_, err := call(t, tool, `{"a":1,"scale":1e400}`)
	if err == nil || err.Code != arcp.CodeInvalidArgument || !strings.Contains(err.Message, "/scale") || strings.Contains(err.Message, "Go") {
		t.Errorf("a number above every float64: error = %v, want INVALID_ARGUMENT about /scale", err)
	}
}

// No call sees the arguments of another call.
func TestCallsShareNothing(t *testing.T) {
	type args struct {
		N    int               `json:"n" jsonschema:"default=7"`
		List []string          `json:"list,omitzero"`
		Map  map[string]string `json:"map,omitzero"`
		Raw  arcp.Raw          `json:"raw,omitzero"`
	}
	tool := MustNew(Capability{Name: "t"}, func(_ context.Context, _ Job, in args) (args, error) { return in, nil })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if got, err := tool.Run(t.Context(), Job{}, arcp.Raw(`{"n":1,"list":["a"],"map":{"k":"v"},"raw":[1]}`)); err != nil || !strings.Contains(string(got), `"n":1`) {
					t.Errorf("a call with all arguments = %s, %v, want the arguments", got, err)
				}
				if got, err := tool.Run(t.Context(), Job{}, nil); err != nil || string(got) != `{"n":7}` {
					t.Errorf(`a call without arguments = %s, %v, want {"n":7}`, got, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestRawInAndOut(t *testing.T) {
	tool := MustNew(Capability{Name: "t"}, func(_ context.Context, _ Job, in arcp.Raw) (arcp.Raw, error) { return in, nil })
	if got, err := call(t, tool, `{"a":1.0}`); err != nil || got != `{"a":1.0}` {
		t.Errorf(`raw arguments return %s, %v, want {"a":1.0}`, got, err)
	}
	if tool.input != nil || tool.output != nil {
		t.Error("a tool with raw arguments and results has a validator, want none")
	}
	dict := MustNew(Capability{Name: "t"}, func(_ context.Context, _ Job, in map[string]int) (int, error) { return len(in), nil })
	if got, err := call(t, dict, `{"a":1,"b":2}`); err != nil || got != `2` {
		t.Errorf("a map of two members returns %s, %v, want 2", got, err)
	}
}

// A tool may retain its arguments.
func TestToolOwnsRawArguments(t *testing.T) {
	var kept []arcp.Raw
	tool := MustNew(Capability{Name: "t"}, func(_ context.Context, _ Job, in arcp.Raw) (int, error) {
		kept = append(kept, in)
		return len(kept), nil
	})
	for _, args := range []string{`[]`, `{}`} {
		if _, err := tool.Run(t.Context(), Job{}, arcp.Raw(args)); err != nil {
			t.Fatal(err)
		}
	}
	if string(kept[0]) != `[]` {
		t.Errorf("a later call changed retained arguments to %s, want []", kept[0])
	}
}

func TestResultThatCannotBeEncoded(t *testing.T) {
	tool := MustNew(Capability{Name: "t"}, func(context.Context, Job, struct{}) (float64, error) { return math.NaN(), nil })
	_, err := call(t, tool, `{}`)
	wantError(t, "NaN", err, arcp.CodeInternal, "the tool's result cannot be encoded")
}

func TestExplicitSchemasOverrideDerived(t *testing.T) {
	c := Capability{Name: "t", InputSchema: arcp.Raw(`{"required":["x"]}`), OutputSchema: arcp.Raw(`{"maximum":1}`)}
	tool := MustNew(c, func(_ context.Context, _ Job, in map[string]int) (int, error) { return in["x"], nil })
	if diff := cmp.Diff(c.InputSchema, tool.InputSchema); diff != "" {
		t.Error(diff)
	}
	_, err := call(t, tool, `{}`)
	wantError(t, "input", err, arcp.CodeInvalidArgument, "argument /x is required")
	_, err = call(t, tool, `{"x":2}`)
	wantError(t, "output", err, arcp.CodeInternal, "the tool's result breaks its output schema: the result must be at most 1")
}

func TestNewRefusesInvalidTools(t *testing.T) {
	type in = struct{}
	ok := func(context.Context, Job, in) (int, error) { return 1, nil }
	for why, newTool := range map[string]func() (*Tool, error){
		"name": func() (*Tool, error) { return New(Capability{Name: "A"}, ok) },
		"input type": func() (*Tool, error) {
			return New(Capability{Name: "t"}, func(context.Context, Job, chan int) (int, error) { return 1, nil })
		},
		"input list": func() (*Tool, error) {
			return New(Capability{Name: "t"}, func(context.Context, Job, []int) (int, error) { return 1, nil })
		},
		"output type": func() (*Tool, error) {
			return New(Capability{Name: "t"}, func(context.Context, Job, in) (func(), error) { return nil, nil })
		},
		"input schema":  func() (*Tool, error) { return New(Capability{Name: "t", InputSchema: arcp.Raw(`{`)}, ok) },
		"output schema": func() (*Tool, error) { return New(Capability{Name: "t", OutputSchema: arcp.Raw(`{`)}, ok) },
		"default": func() (*Tool, error) {
			return New(Capability{Name: "t"}, func(context.Context, Job, struct {
				A int8 `jsonschema:"default=1000"`
			}) (int, error) {
				return 1, nil
			})
		},
	} {
		if tool, err := newTool(); err == nil || tool != nil {
			t.Errorf("%s: no error", why)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("MustNew did not panic")
		}
	}()
	MustNew(Capability{Name: "A"}, ok)
}

// Two tools of the same Go types share no memory: a program may change what it was given.
func TestSchemasOfToolsAreTheirOwn(t *testing.T) {
	type in struct{ A int }
	type out struct{ B string }
	made := func() *Tool {
		return MustNew(Capability{Name: "t"}, func(context.Context, Job, in) (out, error) { return out{}, nil })
	}
	one := made()
	input, output := string(one.InputSchema), string(one.OutputSchema)
	clear(one.InputSchema)
	clear(one.OutputSchema)
	if other := made(); string(other.InputSchema) != input || string(other.OutputSchema) != output {
		t.Errorf("the schemas of the second tool are %s and %s, want %s and %s", other.InputSchema, other.OutputSchema, input, output)
	}
}
