package runtime_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

type weatherIn struct {
	City string `json:"city" jsonschema:"minLength=1,description=where"`
}

type weatherOut struct {
	City    string  `json:"city"`
	Celsius float64 `json:"celsius"`
}

// A runtime inside a program of one's own, with a tool of one's own.
func Example() {
	weather := tool.MustNew(tool.Capability{Name: "weather.now", SideEffect: tool.SideEffectNetwork},
		func(_ context.Context, job tool.Job, in weatherIn) (weatherOut, error) {
			if err := job.Log("info", "asking the station", map[string]string{"city": in.City}); err != nil {
				return weatherOut{}, err
			}
			return weatherOut{in.City, 21.5}, nil
		})
	tools := tool.NewRegistry()
	if err := tools.Register(weather); err != nil {
		log.Fatal(err)
	}
	var credentials auth.Config
	if err := credentials.AddToken("alice", "correct horse battery staple", true); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	rt, err := runtime.New(ctx, runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(&credentials), Tools: tools})
	if err != nil {
		log.Fatal(err)
	}
	up := transport.Upgrader{}
	web := httptest.NewServer(up.Handler(func(c transport.Conn) { _ = rt.Serve(c) })) // the peer learns how it ended
	defer web.Close()

	c, err := client.Dial(ctx, "ws"+strings.TrimPrefix(web.URL, "http"), client.Options{
		Auth: client.Auth{Scheme: "bearer", Token: "correct horse battery staple"}})
	if err != nil {
		log.Fatal(err)
	}
	job, err := c.Invoke(ctx, client.InvokeRequest{Tool: "weather.now", Arguments: weatherIn{"Oslo"}})
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
