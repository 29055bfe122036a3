package demo_test

import (
	"context"
	"fmt"

	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

// The demo tools are registered like any other.
func ExampleRegister() {
	tools := tool.NewRegistry()
	if err := demo.Register(tools); err != nil {
		fmt.Println(err)
		return
	}
	count, failed := tools.Resolve("demo.count")
	if failed != nil {
		fmt.Println(failed)
		return
	}
	job := tooltest.New(tooltest.Script{})
	out, failed := job.Run(context.Background(), count, map[string]int{"to": 3, "interval_ms": 0})
	fmt.Println(string(out), failed)
	fmt.Println(len(job.Record().Checkpoints), "checkpoints")
	// Output:
	// {"count":3,"resumed_from":0} <nil>
	// 3 checkpoints
}
