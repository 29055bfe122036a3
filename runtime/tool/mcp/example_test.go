package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

// The tools of an MCP server are tools of a registry.
func ExampleNew() {
	server := sdk.NewServer(&sdk.Implementation{Name: "greeter", Version: "1.0.0"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "greet", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *sdk.CallToolRequest, in struct {
			Name string `json:"name"`
		}) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "hello, " + in.Name}}}, nil, nil
		})
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	defer web.Close()

	source, err := mcp.New(mcp.Config{Name: "greeter", URL: web.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer source.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tools := tool.NewRegistry()
	if err := source.Start(ctx, func(list []*tool.Tool) error { return tools.Replace(source.Name(), list) }); err != nil {
		fmt.Println(err)
		return
	}
	greet, failed := tools.Resolve("greeter.greet")
	if failed != nil {
		fmt.Println(failed)
		return
	}
	out, failed := tooltest.New(tooltest.Script{}).Run(ctx, greet, map[string]string{"name": "Ada"})
	fmt.Println(string(out), failed)
	// Output: {"content":[{"type":"text","text":"hello, Ada"}]} <nil>
}
