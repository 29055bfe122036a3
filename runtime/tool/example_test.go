package tool_test

import (
	"context"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type sumIn struct {
	Numbers []float64 `json:"numbers" jsonschema:"minItems=1,description=what to add up"`
}

// A tool is a Go function. Its schema is derived from the types of the function.
func ExampleNew() {
	sum, err := tool.New(tool.Capability{Name: "math.sum"},
		func(_ context.Context, _ tool.Job, in sumIn) (float64, error) {
			total := 0.0
			for _, n := range in.Numbers {
				total += n
			}
			return total, nil
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(sum.InputSchema))
	// Output: {"type":"object","properties":{"numbers":{"type":"array","description":"what to add up","minItems":1,"items":{"type":"number"}}},"required":["numbers"],"additionalProperties":false}
}

// A function whose argument is not an object is refused.
func ExampleNew_refused() {
	_, err := tool.New(tool.Capability{Name: "math.double"},
		func(_ context.Context, _ tool.Job, in int) (int, error) { return 2 * in, nil })
	fmt.Println(err != nil)
	// Output: true
}

// A reference without a version names the default version.
func ExampleRegistry_Resolve() {
	r := tool.NewRegistry()
	for _, version := range []string{"1.0.0", "2.0.0"} {
		t := tool.MustNew(tool.Capability{Name: "text.upper", Version: version, Default: version == "2.0.0"},
			func(context.Context, tool.Job, struct{}) (string, error) { return version, nil })
		if err := r.Register(t); err != nil {
			fmt.Println(err)
		}
	}
	for _, ref := range []string{"text.upper", "text.upper@1.0.0", "text.lower"} {
		if t, err := r.Resolve(ref); err != nil {
			fmt.Println(ref, err.Code)
		} else {
			fmt.Println(ref, t.Version)
		}
	}
	// Output:
	// text.upper 2.0.0
	// text.upper@1.0.0 1.0.0
	// text.lower AGENT_NOT_AVAILABLE
}

// A value that does not satisfy a schema is refused with the place of the mistake.
func ExampleCheckValue() {
	schema := arcp.Raw(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
	fmt.Println(tool.CheckValue(schema, arcp.Raw(`{"n":1}`)) == nil)
	err := tool.CheckValue(schema, arcp.Raw(`{"n":"one"}`))
	fmt.Println(err.Code)
	// Output:
	// true
	// INVALID_ARGUMENT
}
