package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
	"github.com/arcpd/arcpd/transport"
)

// local connects a client to a runtime in this process that has the demo tools. end ends both.
// A failure ends the program.
func local(opts client.Options) (ctx context.Context, c *client.Client, end func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	tools := tool.NewRegistry()
	must(demo.Register(tools))
	var config auth.Config
	must(config.AddToken(auth.Token{Principal: "alice", Secret: "correct horse battery staple", Roles: auth.LocalRoles()}))
	rt, err := runtime.New(ctx, runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(&config), Tools: tools})
	must(err)
	near, far := transport.Pipe(transport.Limits{})
	served := make(chan error, 1)
	go func() { served <- rt.Serve(ctx, far) }()
	opts.Auth = client.Auth{Token: "correct horse battery staple"}
	c, err = client.New(ctx, near, opts)
	must(err)
	return ctx, c, func() {
		defer cancel()
		must(c.Close(ctx, "done"))
		must(<-served)
		must(rt.Shutdown(ctx))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Submit a job and wait for its result.
func ExampleClient_Invoke() {
	ctx, c, end := local(client.Options{})
	defer end()

	job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.echo", Arguments: map[string]int{"n": 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := job.Wait(ctx)
	fmt.Println(string(result.Value), err)
	// Output: {"n":1} <nil>
}

// Execute the jobs of a tool. Connect and New announce the capability executes themselves; the principal
// needs the role worker.
func ExampleClient_Work() {
	ctx, c, end := local(client.Options{})
	defer end()

	reverse := client.WorkerTool{
		Ref: "text.reverse@1.0.0",
		Description: map[string]any{
			"description": "reverses a text",
			"recovery":    "rerun",
			"input_schema": map[string]any{
				"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}}, "required": []string{"text"},
			},
		},
		Handle: func(_ context.Context, call *client.WorkerCall) (any, error) {
			var in struct {
				Text string `json:"text"`
			}
			if err := arcp.Unmarshal(call.Arguments, &in); err != nil {
				return nil, err
			}
			if err := call.Progress(arcp.JobProgressPayload{Current: 1, Total: new(2.0)}); err != nil {
				return nil, err
			}
			text := []rune(in.Text)
			slices.Reverse(text)
			return string(text), nil
		},
	}
	working, stop := context.WithCancel(ctx)
	worked := make(chan error)
	go func() { worked <- c.Work(working, client.WorkerConfig{Tools: []client.WorkerTool{reverse}}) }()

	call := client.InvokeParams{Tool: "text.reverse", Arguments: map[string]string{"text": "abc"}}
	job, err := c.Invoke(ctx, call)
	for isNotAvailable(err) { // until the tool is registered
		job, err = c.Invoke(ctx, call)
	}
	must(err)
	result, err := job.Wait(ctx)
	fmt.Println(string(result.Value), err)
	stop()
	fmt.Println(<-worked)
	// Output:
	// "cba" <nil>
	// context canceled
}

func isNotAvailable(err error) bool {
	failed, ok := errors.AsType[*client.RemoteError](err)
	return ok && failed.Code == arcp.CodeAgentNotAvailable
}

// Schedule a job, and wait for its result.
func ExampleSchedules_Add() {
	ctx, c, end := local(client.Options{})
	defer end()

	schedule, err := client.SchedulesOf(c).Add(ctx, client.ScheduleParams{
		InvokeParams: client.InvokeParams{Tool: "demo.echo", Arguments: map[string]int{"n": 1}},
		When:         arcp.When{After: new(arcp.FloatNumber(0.01))},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := schedule.Wait(ctx)
	fmt.Println(string(result.Value), err)
	// Output: {"n":1} <nil>
}

// A key makes a submit safe to repeat: the same key with the same request is the same job.
func ExampleClient_Invoke_idempotent() {
	ctx, c, end := local(client.Options{})
	defer end()

	request := client.InvokeParams{Tool: "demo.echo", Arguments: map[string]int{"n": 1}, IdempotencyKey: "order-17"}
	first, err := c.Invoke(ctx, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := c.Invoke(ctx, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(first.ID() == second.ID())
	// Output: true
}

// List the jobs of the principal, page by page.
func ExampleClient_Jobs() {
	ctx, c, end := local(client.Options{})
	defer end()

	for range 3 {
		job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.echo"})
		if err != nil {
			fmt.Println(err)
			return
		}
		<-job.Done()
	}
	for job, err := range c.Jobs(ctx, client.ListJobsParams{Filter: &arcp.JobFilter{Status: []string{"completed"}}}) {
		fmt.Println(job.Agent, job.Status, err)
	}
	// Output:
	// demo.echo@1.0.0 completed <nil>
	// demo.echo@1.0.0 completed <nil>
	// demo.echo@1.0.0 completed <nil>
}

// Cancel a job.
func ExampleClient_Cancel() {
	ctx, c, end := local(client.Options{})
	defer end()

	job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.sleep", Arguments: map[string]int{"ms": 60_000}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Cancel(ctx, client.CancelParams{JobID: job.ID(), Reason: "not needed any more", Deadline: time.Second}); err != nil {
		fmt.Println(err)
		return
	}
	_, err = job.Wait(ctx)
	fmt.Println(err != nil)
	// Output: true
}

// Answer the questions of jobs.
func ExampleHandlers() {
	ctx, c, end := local(client.Options{Handlers: client.Handlers{
		Input: func(_ context.Context, q client.InputRequest) (any, error) {
			fmt.Println("asked:", q.Prompt)
			return "blue", nil
		}}})
	defer end()

	job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.ask", Arguments: arcp.Raw(`{"prompt":"Which color?","response_schema":{"type":"string"}}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := job.Wait(ctx)
	var answer struct {
		Value string `json:"value"`
	}
	if err == nil {
		err = arcp.Unmarshal(result.Value, &answer)
	}
	fmt.Println(answer.Value, err)
	// Output:
	// asked: Which color?
	// blue <nil>
}

// Follow the events of all jobs of the principal.
func ExampleClient_SubscribeFeed() {
	ctx, c, end := local(client.Options{})
	defer end()

	feed, err := c.SubscribeFeed(ctx, client.SubscribeFeedParams{Filter: &arcp.EventFilter{Types: []arcp.Type{arcp.JobCompleted}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.echo"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for event, err := range feed.Events(ctx) {
		fmt.Println(event.Type, event.JobID == job.ID(), err)
		break
	}
	// Output: job.completed true <nil>
}

// Read a stream of a job while the job runs.
func ExampleJob_ReadStream() {
	ctx, c, end := local(client.Options{})
	defer end()

	job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.stream", Arguments: map[string]any{"chunks": 2, "name": "lines"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = io.Copy(os.Stdout, job.ReadStream(ctx, "lines"))
	fmt.Println(err)
	// Output:
	// 0..............
	// 1..............
	// <nil>
}
