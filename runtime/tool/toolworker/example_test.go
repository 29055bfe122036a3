package toolworker_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/toolworker"
)

// A program that executes one tool and reconnects as needed. Runtime.AddTool could add the
// same tool to a runtime.
func ExampleRun() {
	upper := tool.MustNew(tool.Capability{Name: "text.upper"},
		func(_ context.Context, job tool.Job, in struct {
			Text string `json:"text"`
		}) (string, error) {
			job.Logger().Info("converting", "bytes", len(in.Text))
			return strings.ToUpper(in.Text), nil
		})
	work := func(ctx context.Context, address, token string) error {
		c, err := client.Connect(ctx, address, client.Options{Auth: client.Auth{Token: client.Secret(token)}})
		if err != nil {
			return err
		}
		defer c.Abort()
		return toolworker.Run(ctx, c, toolworker.Config{WorkerConfig: client.WorkerConfig{Concurrency: 4}}, upper)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // the example does not wait for jobs
	fmt.Println(work(ctx, "ws://127.0.0.1:1/arcp", "secret") != nil)
	// Output: true
}
