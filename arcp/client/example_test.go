package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

// A job is submitted; its events and its outcome are read.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	near, far := transport.Pipe(transport.Limits{}) // against a server: client.Dial(ctx, "ws://127.0.0.1:7777/arcp", …)
	go serveEcho(far)
	c, err := client.New(ctx, near, client.Options{Auth: client.Auth{Token: "secret"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx, "done")

	job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.echo", Arguments: map[string]string{"hello": "world"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for event, err := range job.Events(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.Type)
	}
	result, err := job.Wait(ctx)
	fmt.Println(string(result.Value), err)
	// Output:
	// job.accepted
	// job.started
	// job.completed
	// {"hello":"world"} <nil>
}

// A session outlives its connections: the first connection breaks before the job is accepted.
func ExampleConnectFunc() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	server := newBreakingRuntime(3)
	opts := client.Options{Auth: client.Auth{Token: "secret"}}
	opts.Reconnect.OnChange = func(ch client.LinkChange) { fmt.Println(ch.State) }
	c, err := client.ConnectFunc(ctx, server.dial, opts) // against a server: client.Connect(ctx, "ws://127.0.0.1:7777/arcp", opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx, "done")

	job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.progress"})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := job.Wait(ctx)
	fmt.Println(string(result.Value), err)
	// Output:
	// reconnecting
	// resumed
	// 7 <nil>
}

// RemoteError is a failure that the runtime reported.
func ExampleRemoteError() {
	describe := func(err error) {
		if failed, ok := errors.AsType[*client.JobError](err); ok {
			fmt.Println("the job", failed.State, "with", failed.Code)
		} else if refused, ok := errors.AsType[*client.RemoteError](err); ok {
			fmt.Println("the runtime refused with", refused.Code, "and retrying helps:", refused.Retryable)
		} else if errors.Is(err, client.ErrConnectionLost) {
			fmt.Println("the connection is lost")
		}
	}
	nack := arcp.Frame(arcp.Nack, arcp.Errorf(arcp.CodeUnavailable, "shutting down"))
	describe(fmt.Errorf("tool.invoke: %w", client.RemoteErrorOf(&nack)))
	describe(fmt.Errorf("%w: broken pipe", client.ErrConnectionLost))
	// Output:
	// the runtime refused with UNAVAILABLE and retrying helps: true
	// the connection is lost
}
