package conformance_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/conformance"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
)

// One check against a server.
func ExampleRun() {
	ctx := context.Background()
	tools := tool.NewRegistry()
	if err := demo.Register(tools); err != nil {
		fmt.Println(err)
		return
	}
	var config auth.Config
	if err := config.AddToken(auth.Token{Principal: "alice", Secret: "correct horse battery staple", Roles: auth.LocalRoles()}); err != nil {
		fmt.Println(err)
		return
	}
	rt, err := runtime.New(ctx, runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(&config), Tools: tools})
	if err != nil {
		fmt.Println(err)
		return
	}
	web := httptest.NewServer(rt.Handler())
	defer web.Close()

	report, err := conformance.Run(ctx, conformance.Target{URL: "ws" + strings.TrimPrefix(web.URL, "http"),
		Token: "correct horse battery staple", Principal: "alice"}, conformance.Options{IDs: []string{"control.ping"}, Timeout: time.Minute})
	fmt.Println(report.Count(conformance.Passed), report.Count(conformance.Failed), err)
	if err := rt.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: 1 0 <nil>
}
