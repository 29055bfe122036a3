package tooltest_test

import (
	"context"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

type paintIn struct {
	Rooms []string `json:"rooms" jsonschema:"minItems=1"`
}

type paintOut struct {
	Color string `json:"color"`
	Rooms int    `json:"rooms"`
}

// paint is the tool under test.
var paint = tool.MustNew(tool.Capability{Name: "house.paint"},
	func(ctx context.Context, job tool.Job, in paintIn) (paintOut, error) {
		answer, err := job.Ask(ctx, tool.InputRequest{Prompt: "Which color?", Schema: arcp.Raw(`{"enum":["blue","red"]}`)})
		if err != nil {
			return paintOut{}, err
		}
		var color string
		if err := arcp.Unmarshal(answer.Value, &color); err != nil {
			return paintOut{}, err
		}
		total := float64(len(in.Rooms))
		for i, room := range in.Rooms {
			job.Logger().Info("painting", "room", room)
			if err := job.Progress(arcp.JobProgressPayload{Current: float64(i + 1), Total: &total}); err != nil {
				return paintOut{}, err
			}
		}
		return paintOut{color, len(in.Rooms)}, nil
	})

func answer(value string) tooltest.Script {
	return tooltest.Script{Ask: func(tool.InputRequest) (tool.Answer, error) { return tool.Answer{Value: arcp.Raw(value)}, nil }}
}

// Run runs a tool with scripted answers; Record returns the emitted events.
func ExampleJob_Run() {
	job := tooltest.New(answer(`"blue"`))
	out, err := job.Run(context.Background(), paint, map[string]any{"rooms": []string{"hall", "kitchen"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(out))
	for _, l := range job.Record().Logs {
		fmt.Println(l.Level, l.Message, string(l.Attributes))
	}
	for _, p := range job.Record().Progress {
		fmt.Println(*p.Percent, "%")
	}
	// Output:
	// {"color":"blue","rooms":2}
	// info painting {"room":"hall"}
	// info painting {"room":"kitchen"}
	// 50 %
	// 100 %
}

// Arguments, results and answers that break their schemas are errors.
func ExampleJob_Run_invalid() {
	_, err := tooltest.New(answer(`"blue"`)).Run(context.Background(), paint, map[string]any{"rooms": []string{}})
	fmt.Println(err)
	_, err = tooltest.New(answer(`"green"`)).Run(context.Background(), paint, map[string]any{"rooms": []string{"hall"}})
	fmt.Println(err.Code)
	// Output:
	// INVALID_ARGUMENT: argument /rooms must have at least 1 items
	// FAILED_PRECONDITION
}
