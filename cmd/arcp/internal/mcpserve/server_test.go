package mcpserve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// fixture is a runtime with the tools of a test, and a Server for the runtime.
type fixture struct {
	*testing.T
	tools *tool.Registry
	dial  func(ctx context.Context, opts client.Options) (*client.Client, error)
	srv   *Server
}

func start(t *testing.T, cfg Config, tools ...*tool.Tool) *fixture {
	t.Helper()
	fx := &fixture{T: t, tools: tool.NewRegistry()}
	for _, made := range tools {
		if err := fx.tools.Register(made); err != nil {
			t.Fatal(err)
		}
	}
	var credentials auth.Config
	alice := auth.Token{Principal: "alice", Secret: "correct horse battery staple", Roles: auth.LocalRoles()}
	if err := credentials.AddToken(alice); err != nil {
		t.Fatal(err)
	}
	rt, err := runtime.New(t.Context(), runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(&credentials), Tools: fx.tools})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = rt.Shutdown(ctx) // the store is in memory
	})
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	fx.dial = func(ctx context.Context, opts client.Options) (*client.Client, error) {
		opts.Auth = client.Auth{Scheme: "bearer", Token: "correct horse battery staple"}
		ours, theirs := transport.Pipe(transport.Limits{})
		serving.Go(func() { _ = rt.Serve(context.Background(), theirs) })
		return client.New(ctx, ours, opts)
	}
	cfg.Open = fx.dial
	if fx.srv, err = New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fx.srv.Close)
	return fx
}

// connect connects an MCP client.
func (fx *fixture) connect(opts *sdk.ClientOptions) *sdk.ClientSession {
	fx.Helper()
	if opts == nil {
		opts = &sdk.ClientOptions{}
	}
	ours, theirs := sdk.NewInMemoryTransports()
	if _, err := fx.srv.mcp.Connect(fx.Context(), theirs, nil); err != nil {
		fx.Fatal(err)
	}
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, opts)
	s, err := c.Connect(fx.Context(), ours, nil)
	if err != nil {
		fx.Fatal(err)
	}
	fx.Cleanup(func() { _ = s.Close() })
	return s
}

func (fx *fixture) names(s *sdk.ClientSession) (names []string) {
	fx.Helper()
	for t, err := range s.Tools(fx.Context(), nil) {
		if err != nil {
			fx.Fatal(err)
		}
		names = append(names, t.Name)
	}
	return names
}

func (fx *fixture) call(s *sdk.ClientSession, name, args string) (text string, failed bool) {
	fx.Helper()
	res, err := s.CallTool(fx.Context(), &sdk.CallToolParams{Name: name, Arguments: arcp.Raw(args)})
	if err != nil {
		fx.Fatal(err)
	}
	if len(res.Content) == 0 {
		return "", res.IsError
	}
	return res.Content[0].(*sdk.TextContent).Text, res.IsError
}

func raw(t *testing.T, c tool.Capability, fn tool.Func) *tool.Tool {
	t.Helper()
	made, err := tool.NewRaw(c, fn)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func echo(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) { return args, nil }

func TestWhichToolsAreOffered(t *testing.T) {
	long := strings.Repeat("long-", 30)
	list := []*tool.Tool{raw(t, tool.Capability{Name: "a.b"}, echo), raw(t, tool.Capability{Name: "a_b"}, echo),
		raw(t, tool.Capability{Name: long + "1"}, echo),
		raw(t, tool.Capability{Name: long + "2"}, echo), raw(t, tool.Capability{Name: "a.b", Version: "2.0.0"}, echo)}
	for _, c := range []struct {
		cfg  Config
		want func(names []string) bool
	}{
		{Config{}, func(n []string) bool {
			return len(n) == 4 && slices.Contains(n, "a.b") && !slices.Contains(n, "tools.list")
		}},
		{Config{Tools: []string{"a[._]b", "tools.list"}}, func(n []string) bool { return slices.Equal(n, []string{"a.b", "a_b", "tools.list"}) }},
		{Config{Flat: true}, func(n []string) bool { return len(n) == 3 && slices.Contains(n, "a_b") }},
	} {
		t.Run("", func(t *testing.T) {
			fx := start(t, c.cfg, list...)
			names := fx.names(fx.connect(nil))
			if !c.want(names) {
				t.Errorf("%+v: the tools are %q", c.cfg, names)
			}
			for _, n := range names {
				if len(n) > maxName {
					t.Errorf("%s is too long", n)
				}
			}
		})
	}
}

// A call reaches a tool with a changed name, and its result is unchanged.
func TestCallReachesItsTool(t *testing.T) {
	big := tool.Capability{Name: "big", Limits: tool.Limits{MaxResponseBytes: 4 << 20}}
	fx := start(t, Config{Flat: true},
		raw(t, tool.Capability{
			Name:        "files.read",
			Description: "Reads.",
			SideEffect:  tool.SideEffectRead,
			InputSchema: arcp.Raw(`{"properties":{"n":{"type":"integer"}}}`),
		}, echo),
		raw(t, tool.Capability{Name: "say"}, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			return arcp.Raw(`"as \"text\""`), nil
		}),
		raw(t, big, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			return arcp.Raw(`"` + strings.Repeat("x", 2<<20) + `"`), nil
		}),
		raw(t, tool.Capability{Name: "fails"}, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			return nil, arcp.Errorf(arcp.CodeNotFound, "not here")
		}))
	s := fx.connect(nil)
	res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "files_read", Arguments: arcp.Raw(`{"n":9007199254740993}`)})
	if err != nil || res.IsError || res.Content[0].(*sdk.TextContent).Text != `{"n":9007199254740993}` || res.StructuredContent == nil {
		t.Errorf("files_read returns %+v, %v; want its arguments as text and as structured content", res, err)
	}
	for name, want := range map[string]string{"say": `as "text"`, "fails": "NOT_FOUND: not here"} {
		if got, failed := fx.call(s, name, `{}`); got != want || failed != (name == "fails") {
			t.Errorf("%s returns %q, failed %v; want %q", name, got, failed, want)
		}
	}
	if got, failed := fx.call(s, "files_read", `{"n":"x"}`); !failed || !strings.HasPrefix(got, "INVALID_ARGUMENT: ") {
		t.Errorf("wrong arguments: %s", got)
	}
	if got, _ := fx.call(s, "big", `{}`); len(got) != 2<<20 {
		t.Errorf("a result in parts has %d bytes", len(got))
	}
	for d, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Name == "files_read" && (d.Description != "Reads." || !d.Annotations.ReadOnlyHint || d.Title != "files.read" ||
			d.InputSchema.(map[string]any)["type"] != "object") {
			t.Errorf("files_read is described as %+v, want its title, description, read-only hint and schema", d)
		}
	}
}

func TestTimeoutLeavesTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		done := make(chan struct{})
		slow := tool.Capability{Name: "slow", Limits: tool.Limits{Timeout: 2 * time.Hour}}
		fx := start(t, Config{Timeout: time.Hour}, raw(t, slow, func(ctx context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
			defer close(done)
			select {
			case <-goOn:
			case <-ctx.Done():
				t.Error("the job was cancelled")
			}
			return args, nil
		}))
		if got, failed := fx.call(fx.connect(nil), "slow", `{}`); !failed || !strings.HasPrefix(got, "DEADLINE_EXCEEDED: ") || !strings.Contains(got, "continues") {
			t.Errorf("a call beyond the time limit returns %s, want DEADLINE_EXCEEDED and that the job continues", got)
		}
		close(goOn)
		<-done
	})
}

// The offered tools follow the catalog, and clients are notified of changes.
func TestToolsFollowTheCatalog(t *testing.T) {
	told := make(chan struct{}, 16)
	fx := start(t, Config{}, raw(t, tool.Capability{Name: "first"}, echo))
	s := fx.connect(&sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { told <- struct{}{} }})
	if err := fx.tools.Replace("more", []*tool.Tool{raw(t, tool.Capability{Name: "second"}, echo)}); err != nil {
		t.Fatal(err)
	}
	<-told
	if names := fx.names(s); !slices.Equal(names, []string{"first", "second"}) {
		t.Errorf("after a tool was added the tools are %q, want first and second", names)
	}
	if err := fx.tools.Replace("more", nil); err != nil {
		t.Fatal(err)
	}
	<-told
	if names := fx.names(s); !slices.Equal(names, []string{"first"}) {
		t.Errorf("after a tool was removed the tools are %q, want first", names)
	}
}

// A question of a job goes only to the client whose call the job serves.
func TestQuestionReachesItsCaller(t *testing.T) {
	ask := raw(t, tool.Capability{Name: "ask"}, func(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
		a, err := job.Ask(ctx, tool.InputAsk{Prompt: "what?", Schema: args, Expires: time.Minute})
		return a.Value, err
	})
	choose := raw(t, tool.Capability{Name: "choose"}, func(ctx context.Context, job tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		a, err := job.Choose(ctx,
			tool.ChoiceAsk{Prompt: "which?", Options: []arcp.Option{{ID: "a", Label: "A"}, {ID: "b", Label: "B"}}, Expires: time.Minute})
		return arcp.Raw(fmt.Sprintf("%q", a.ChoiceID)), err
	})
	permit := raw(t, tool.Capability{Name: "permit"}, func(ctx context.Context, job tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		_, err := job.Permissions().Request(ctx,
			tool.PermissionAsk{Permission: "order.refund", Resource: "o1", Operation: "refund", Expires: time.Minute})
		return arcp.Raw(`"granted"`), err
	})
	fx := start(t, Config{}, ask, choose, permit)
	answers := func(result *sdk.ElicitResult) *sdk.ClientSession {
		return fx.connect(&sdk.ClientOptions{ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) { return result, nil }})
	}
	accept := func(content map[string]any) *sdk.ElicitResult {
		return &sdk.ElicitResult{Action: "accept", Content: content}
	}
	fx.connect(&sdk.ClientOptions{ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		t.Error("a client is asked for the call of another")
		return &sdk.ElicitResult{Action: "cancel"}, nil
	}})
	for _, c := range []struct {
		tool, args string
		answer     *sdk.ElicitResult
		want       string
	}{
		{"ask", `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`, accept(map[string]any{"n": 3}), `{"n":3}`},
		{"ask", `{"type":["object","null"],"properties":{"n":{"type":"integer"}}}`, &sdk.ElicitResult{Action: "decline"}, `null`},
		{"ask", `{"type":"string","enum":["x","y"]}`, accept(map[string]any{"value": "y"}), `y`},
		{"ask", `{"type":"array","items":{"type":"object"}}`, accept(map[string]any{"value": `[{"deep":1}]`}), `[{"deep":1}]`},
		{"choose", `{}`, accept(map[string]any{"choice": "b"}), `b`},
		{"permit", `{}`, accept(map[string]any{"grant": true}), `granted`},
		{"permit", `{}`, accept(map[string]any{"grant": false}), `PERMISSION_DENIED`},
		{"permit", `{}`, &sdk.ElicitResult{Action: "decline"}, `PERMISSION_DENIED`},
	} {
		if got, _ := fx.call(answers(c.answer), c.tool, c.args); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %s: %s, want %s", c.tool, c.args, got, c.want)
		}
	}
}

// A client that cannot be asked leaves the question to others, and a call that is
// cancelled cancels its job.
func TestQuestionWithoutElicitation(t *testing.T) {
	asked := make(chan struct{})
	ended := make(chan error, 1)
	fx := start(t, Config{}, raw(t, tool.Capability{Name: "ask"}, func(ctx context.Context, job tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		close(asked)
		_, err := job.Ask(ctx, tool.InputAsk{Prompt: "what?", Expires: time.Minute})
		ended <- err
		return nil, err
	}))
	ctx, cancel := context.WithCancel(t.Context())
	s := fx.connect(nil)
	go func() { <-asked; cancel() }()
	if _, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "ask"}); err == nil {
		t.Error("a cancelled call was answered")
	}
	if err := <-ended; err == nil {
		t.Error("the job was answered")
	}
}

// The end of the client's stream ends the server and cancels the client's calls.
func TestPipeEndsWithItsClient(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	fx := start(t, Config{}, raw(t, tool.Capability{Name: "slow"}, func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}))
	in, say := io.Pipe()
	served := make(chan error)
	go func() { served <- fx.srv.Pipe(t.Context(), in, io.Discard) }()
	for _, m := range []string{
		initialize,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow","arguments":{}}}`,
	} {
		_, _ = io.WriteString(say, m+"\n")
	}
	<-begun
	say.Close()
	if err := <-served; err != nil {
		t.Errorf("serve after the end of its input: %v", err)
	}
	<-ended
}

func TestHTTPNeedsTokenAndOrigin(t *testing.T) {
	fx := start(t, Config{}, raw(t, tool.Capability{Name: "t"}, echo))
	d := Access{Token: "0123456789abcdef", Origins: []string{"https://app.example"}}
	web := httptest.NewServer(fx.srv.HTTP(d))
	defer web.Close()
	for _, c := range []struct {
		origin, authorization, host string
		want                        int
	}{
		{"", "Bearer 0123456789abcdef", "", http.StatusOK},
		{"http://localhost:3000", "bearer 0123456789abcdef", "", http.StatusOK},
		{"https://app.example", "Bearer 0123456789abcdef", "", http.StatusOK},
		{"https://evil.example", "Bearer 0123456789abcdef", "", http.StatusForbidden},
		{"null", "Bearer 0123456789abcdef", "", http.StatusForbidden},
		{"", "Bearer 0123456789abcdeg", "", http.StatusUnauthorized},
		{"", "", "", http.StatusUnauthorized},
		{"", "Basic 0123456789abcdef", "", http.StatusUnauthorized},
		{"", "Bearer 0123456789abcdef", "evil.example", http.StatusForbidden},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL, strings.NewReader(initialize))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for name, value := range map[string]string{"Origin": c.origin, "Authorization": c.authorization} {
			if value != "" {
				req.Header.Set(name, value)
			}
		}
		req.Host = c.host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%+v: the status is %d, want %d", c, resp.StatusCode, c.want)
		}
	}
}

// A session that is lost is opened anew, and its catalog is read.
func TestSessionIsLost(t *testing.T) {
	told := make(chan struct{}, 16)
	fx := start(t, Config{}, raw(t, tool.Capability{Name: "first"}, echo))
	s := fx.connect(&sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { told <- struct{}{} }})
	lost := fx.srv.current()
	lost.Abort()
	if got, failed := fx.call(s, "first", `{"n":1}`); failed || got != `{"n":1}` {
		t.Errorf("after the session was lost: %s", got)
	}
	if err := fx.tools.Replace("more", []*tool.Tool{raw(t, tool.Capability{Name: "second"}, echo)}); err != nil {
		t.Fatal(err)
	}
	<-told
	if names := fx.names(s); !slices.Equal(names, []string{"first", "second"}) {
		t.Errorf("in the next session the tools are %q, want first and second", names)
	}
}

// A call that is cancelled while the runtime makes its job leaves no job behind.
func TestCancelDuringSubmitCancelsJob(t *testing.T) {
	var live atomic.Int64
	slow := raw(t, tool.Capability{Name: "slow", SideEffect: tool.SideEffectNone, Limits: tool.Limits{Timeout: time.Hour, Concurrency: 4000}},
		func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			live.Add(1)
			defer live.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		})
	fx := start(t, Config{}, slow, raw(t, tool.Capability{Name: "quick"}, echo))
	s := fx.connect(nil)
	for i := range 150 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*10)*time.Microsecond)
		_, _ = s.CallTool(ctx, &sdk.CallToolParams{Name: "slow", Arguments: map[string]any{}})
		cancel()
	}
	if text, failed := fx.call(s, "quick", "{}"); failed {
		t.Error(text) // the session is still usable
	}
	for deadline := time.Now().Add(20 * time.Second); live.Load() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d jobs go on although their calls were cancelled", live.Load())
		}
	}
}

func TestNonJSONResultIsText(t *testing.T) {
	for _, text := range []string{"{{template}} of text", "{", `{"a":1} and more`} {
		res := success(Tool{arcp.ToolView{Name: "report"}}, arcp.Raw(text))
		if res.StructuredContent != nil || res.Content[0].(*sdk.TextContent).Text != text {
			t.Errorf("the result %q becomes %+v, want it as text only", text, res)
		}
		if _, err := json.Marshal(res); err != nil {
			t.Errorf("the result %q is not encoded: %v", text, err)
		}
	}
	if res := success(Tool{}, arcp.Raw(`{"a":1}`)); res.StructuredContent == nil {
		t.Error("an object is no structured content")
	}
}
