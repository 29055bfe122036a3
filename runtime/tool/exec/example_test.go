package exec_test

import (
	"context"
	"fmt"
	"os"

	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/exec"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

// A command gets its arguments on standard input and writes its result to standard
// output; lines on standard error are log events. The main of the program calls
// exec.Hook first.
func ExampleNew() {
	script := `echo "copying" >&2; cat`
	copier, err := exec.New(exec.Config{Capability: tool.Capability{Name: "text.copy"}, Command: []string{"sh", "-c", script}})
	if err != nil {
		fmt.Println(err)
		return
	}
	dir, err := os.MkdirTemp("", "exec")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	job := tooltest.New(tooltest.Script{Dir: dir})
	out, failed := job.Run(context.Background(), copier, map[string]string{"text": "hello"})
	fmt.Println(string(out), failed)
	for _, l := range job.Record().Logs {
		fmt.Println(l.Level, l.Message)
	}
	// Output:
	// {"text":"hello"} <nil>
	// info copying
}
