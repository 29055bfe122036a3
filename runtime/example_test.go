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
			if err := job.Log("info", "asking the station", map[string]string{"city": in.City}); err != nil {
				return weatherOut{}, err
			}
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
