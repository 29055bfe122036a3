package runtime_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/store/pebble"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/exec"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
	"github.com/arcpd/arcpd/transport"
)

type weatherIn struct {
	City string `json:"city" jsonschema:"minLength=1,description=where"`
}

type weatherOut struct {
	City    string  `json:"city"`
	Celsius float64 `json:"celsius"`
}

// A runtime inside another program, with a tool.
func Example() {
	weather := tool.MustNew(tool.Capability{Name: "weather.now", SideEffect: tool.SideEffectNetwork},
		func(_ context.Context, job tool.Job, in weatherIn) (weatherOut, error) {
			job.Logger().Info("asking the station", "city", in.City)
			return weatherOut{in.City, 21.5}, nil
		})
	var credentials auth.Config
	if err := credentials.AddToken(auth.Token{Principal: "alice", Secret: "correct horse battery staple"}); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	rt, err := runtime.New(ctx, runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(&credentials)})
	if err != nil {
		log.Fatal(err)
	}
	if err := rt.AddTool(weather); err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(rt.Handler())
	defer web.Close()

	c, err := client.Dial(ctx, "ws"+strings.TrimPrefix(web.URL, "http"), client.Options{
		Auth: client.Auth{Scheme: "bearer", Token: "correct horse battery staple"}})
	if err != nil {
		log.Fatal(err)
	}
	job, err := c.Invoke(ctx, client.InvokeParams{Tool: "weather.now", Arguments: weatherIn{"Oslo"}})
	if err != nil {
		log.Fatal(err)
	}
	result, err := job.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", result.Value)
	if err := rt.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: {"city":"Oslo","celsius":21.5}
}

// A program that serves one tool until it is interrupted. Jobs continue after a restart.
func ExampleListenAndServe() { //nolint:testableexamples // it serves until it is interrupted
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	st, err := pebble.Open("data", pebble.Options{})
	if err != nil {
		log.Fatal(err)
	}
	type input struct {
		Text string `json:"text"`
	}
	count := tool.MustNew(tool.Capability{Name: "words.count"}, func(_ context.Context, job tool.Job, in input) (int, error) {
		return len(strings.Fields(in.Text)), job.ProgressOf(1, 1)
	})
	if err := runtime.ListenAndServe(ctx, "127.0.0.1:7777", runtime.Config{Store: st, Auth: exampleAuth()}, count); err != nil {
		log.Fatal(err)
	}
}

// A program that serves a command and the tools of an MCP server.
func ExampleListenAndServe_commands() { //nolint:testableexamples // it serves until it is interrupted
	exec.Hook() // the first call in main
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	count, err := exec.New(exec.Config{
		Capability: tool.Capability{Name: "words.count"}, // limit: 60 s
		Command:    []string{"wc", "-w"},
		Output:     exec.OutputText,
	})
	if err != nil {
		log.Fatal(err)
	}
	files, err := mcp.New(mcp.Config{Name: "files", // limit of a call: 600 s
		Command: []string{"npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv/files"}})
	if err != nil {
		log.Fatal(err)
	}
	defer files.Close()
	tools := tool.NewRegistry()
	tools.ReservePrefix(files.Prefix())
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := files.Start(starting, func(list []*tool.Tool) error { return tools.Replace(files.Name(), list) }); err != nil {
		log.Fatal(err)
	}
	st, err := pebble.Open("data", pebble.Options{})
	if err != nil {
		log.Fatal(err)
	}
	config := runtime.Config{Store: st, Auth: exampleAuth(), Tools: tools, ResourceDir: "directories"}
	if err := runtime.ListenAndServe(ctx, "127.0.0.1:7777", config, count); err != nil {
		log.Fatal(err)
	}
}

// exampleAuth knows one principal, by a token.
func exampleAuth() *auth.Set {
	var config auth.Config
	if err := config.AddToken(auth.Token{Principal: "alice", Secret: "correct horse battery staple"}); err != nil {
		log.Fatal(err)
	}
	return auth.NewSet(&config)
}

// A runtime that keeps its sessions, jobs and events in a directory.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	st, err := pebble.Open(dir, pebble.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	rt, err := runtime.New(ctx, runtime.Config{Store: st, Auth: exampleAuth()})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rt.Shutdown(ctx)) // it closes the store
	// Output: <nil>
}

// ARCP beside other handlers of an HTTP server.
func ExampleRuntime_Handler() {
	ctx := context.Background()
	rt, err := runtime.New(ctx, runtime.Config{Store: mem.Open(mem.Options{}), Auth: exampleAuth()})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/arcp", rt.Handler())
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	web := httptest.NewServer(mux)
	defer web.Close()

	c, err := client.Dial(ctx, "ws"+strings.TrimPrefix(web.URL, "http")+"/arcp", client.Options{Auth: client.Auth{Token: "correct horse battery staple"}})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Ping(ctx)
	fmt.Println(err)
	if err := rt.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: <nil>
}

// A connection that is not a WebSocket: here one in memory.
func ExampleRuntime_Serve() {
	ctx := context.Background()
	rt, err := runtime.New(ctx, runtime.Config{Store: mem.Open(mem.Options{}), Auth: exampleAuth()})
	if err != nil {
		log.Fatal(err)
	}
	near, far := transport.Pipe(transport.Limits{})
	served := make(chan error, 1)
	go func() { served <- rt.Serve(ctx, far) }()
	c, err := client.New(ctx, near, client.Options{Auth: client.Auth{Token: "correct horse battery staple"}})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Close(ctx, "done"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-served)
	if err := rt.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: <nil>
}

// A tool of a runtime that runs already. Its sessions learn of it.
func ExampleRuntime_AddTool() {
	ctx := context.Background()
	rt, err := runtime.New(ctx, runtime.Config{Store: mem.Open(mem.Options{}), Auth: exampleAuth()})
	if err != nil {
		log.Fatal(err)
	}
	upper := tool.MustNew(tool.Capability{Name: "text.upper"},
		func(_ context.Context, _ tool.Job, in struct {
			Text string `json:"text"`
		}) (string, error) {
			return strings.ToUpper(in.Text), nil
		})
	fmt.Println(rt.AddTool(upper))
	fmt.Println(rt.AddTool(upper) != nil) // the name is taken
	if err := rt.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// <nil>
	// true
}
