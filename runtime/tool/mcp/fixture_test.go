package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// attempt is tool.Attempt under a name that is not the name of one of its methods.
type attempt = tool.Attempt

// job records the events of a tool's job.
type job struct {
	attempt
	principal string // default alice
	trace     string
	mu        sync.Mutex
	messages  []string
	ask       func(ctx context.Context, a tool.InputRequest) (tool.Answer, error)
	blocked   chan struct{} // not nil: Log waits for it
}

func (j *job) Info() tool.AttemptInfo {
	return tool.AttemptInfo{Principal: cmp.Or(j.principal, "alice")}
}

func (j *job) TraceID() string { return j.trace }
func (j *job) SpanID() string  { return "00f067aa0ba902b7" }

func (j *job) Failed(error) {} // the tests look at the error of the call

func (j *job) say(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.messages = append(j.messages, fmt.Sprintf(format, args...))
}

func (j *job) lines() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.messages, "\n")
}

func (j *job) Emit(_ arcp.Type, payload any) error {
	if p, ok := payload.(arcp.JobProgressPayload); ok {
		return j.progress(p)
	}
	return j.log(payload.(arcp.LogPayload))
}

func (j *job) progress(p arcp.JobProgressPayload) error {
	total := "?"
	if p.Total != nil {
		total = fmt.Sprint(*p.Total)
	}
	j.say("progress %v/%s %s", p.Current, total, p.Message)
	return nil
}

func (j *job) log(p arcp.LogPayload) error {
	if j.blocked != nil {
		<-j.blocked
	}
	j.say("%s %s %s", p.Level, p.Message, p.Attributes)
	return nil
}

func (j *job) Ask(ctx context.Context, a tool.InputRequest) (tool.Answer, error) {
	return j.ask(ctx, a)
}

// publisher receives the tools of a source.
type publisher struct {
	mu  sync.Mutex
	reg *tool.Registry
}

func (p *publisher) publish(tools []*tool.Tool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reg.Replace("test", tools)
}

func (p *publisher) names() string {
	var names []string
	for _, t := range p.reg.Tools() {
		names = append(names, t.Name)
	}
	return strings.Join(names, " ")
}

// fixture is a source with servers in the test.
type fixture struct {
	*testing.T
	src       *Source
	publisher *publisher
	log       *locked
	conns     []net.Conn // the ends of the servers
	mu        sync.Mutex
}

// bubble runs a test in a synctest bubble. serve serves session n of the source on conn.
func bubble(t *testing.T, c Config, serve func(n int, conn net.Conn), test func(fx *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fx := newFixture(t, c, serve)
		defer fx.end()
		test(fx)
	})
}

func newFixture(t *testing.T, c Config, serve func(n int, conn net.Conn)) *fixture {
	fx := &fixture{T: t, publisher: &publisher{reg: tool.NewRegistry()}, log: new(locked)}
	c.Name = "srv"
	c.Command = []string{"/bin/true"}
	c.Log = zerolog.New(fx.log).Level(zerolog.DebugLevel)
	c = c.withDefaults()
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	fx.src = newSource(c)
	fx.src.open = func(tp *observer) (*connection, error) {
		ours, theirs := net.Pipe()
		fx.mu.Lock()
		fx.conns = append(fx.conns, theirs)
		n := len(fx.conns)
		fx.mu.Unlock()
		go serve(n, theirs)
		return &connection{transport: stdio{ours, ours, tp, fx.src.maxBytes, fx.src.logDropped}, end: func() { ours.Close(); theirs.Close() },
			exitError: func(context.Context) error { return nil }}, nil
	}
	return fx
}

// locked is a text that several goroutines may write.
type locked struct {
	mu sync.Mutex
	w  strings.Builder
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.String()
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// startWait bounds the time to the first list.
const startWait = 30 * time.Second

func (fx *fixture) start() {
	fx.Helper()
	ctx, cancel := context.WithTimeout(fx.Context(), startWait)
	defer cancel()
	if err := fx.src.Start(ctx, fx.publisher.publish); err != nil {
		fx.Fatal(err)
	}
}

// end closes the source and the servers: a bubble ends only with its goroutines.
func (fx *fixture) end() {
	fx.src.Close()
	fx.mu.Lock()
	defer fx.mu.Unlock()
	for _, c := range fx.conns {
		c.Close()
	}
}

// opened returns the number of sessions.
func (fx *fixture) opened() int {
	fx.mu.Lock()
	defer fx.mu.Unlock()
	return len(fx.conns)
}

func (fx *fixture) call(ctx context.Context, j *job, name, args string) (string, *arcp.Error) {
	fx.Helper()
	t, err := fx.publisher.reg.Resolve(name)
	if err != nil {
		fx.Fatal(err)
	}
	if e := t.Validate(arcp.Raw(args)); e != nil {
		return "", e
	}
	out, e := t.Run(ctx, tool.NewJob(j), arcp.Raw(args))
	return string(out), e
}

func (fx *fixture) want(name, got, want string) {
	fx.Helper()
	if got != want {
		fx.Errorf("%s:\n got %s\nwant %s", name, got, want)
	}
}

func (fx *fixture) wantCode(name string, err *arcp.Error, code arcp.Code, retryable bool) {
	fx.Helper()
	if err == nil || err.Code != code || err.Retryable != retryable {
		fx.Errorf("%s: %v, want %s, retryable %v", name, err, code, retryable)
	}
}

// sdkServer serves each session with a server of the SDK.
func sdkServer(build func(s *sdk.Server)) func(int, net.Conn) {
	return func(_ int, conn net.Conn) {
		s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ServerOptions{SupportedProtocolVersions: []string{"2025-11-25"}})
		build(s)
		session, err := s.Connect(context.Background(), &sdk.IOTransport{Reader: conn, Writer: conn}, nil)
		if err == nil {
			_ = session.Wait()
		}
	}
}

// script serves a session with one answer for each method. ID in an answer stands for the id of the
// request.
func script(answers map[string]string) func(int, net.Conn) {
	return func(_ int, conn net.Conn) { serveScript(conn, answers) }
}

func serveScript(conn net.Conn, answers map[string]string) {
	serveWith(conn, func(method string) string {
		answer, ok := answers[method]
		if !ok {
			answer = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no such method"}}`
		}
		return answer
	})
}

// serveLists serves a session and calls list for each list.
func serveLists(conn net.Conn, list func() string) {
	serveWith(conn, func(method string) string {
		switch method {
		case "initialize":
			return hello
		case "tools/list":
			return list()
		}
		return `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no such method"}}`
	})
}

// serveWith answers each request with the result of answer; "" is no answer.
func serveWith(conn net.Conn, answer func(method string) string) {
	dec := json.NewDecoder(conn)
	for {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if dec.Decode(&m) != nil {
			return
		}
		if m.ID == nil || m.Method == "" {
			continue
		}
		if a := answer(m.Method); a != "" {
			if _, err := io.WriteString(conn, strings.ReplaceAll(a, "ID", string(m.ID))+"\n"); err != nil {
				return
			}
		}
	}
}

const (
	hello = `{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"x","version":"1"}}}`
	ack   = `{"jsonrpc":"2.0","id":ID,"result":{}}`
)

func listing(tools string) string {
	return `{"jsonrpc":"2.0","id":ID,"result":{"tools":[` + tools + `]}}`
}

// answer returns a handler that answers with a text.
func answer(s string) sdk.ToolHandler {
	return func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}, nil
	}
}

func plainTool(name string) *sdk.Tool {
	return &sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}
}

// waitIdle waits until all goroutines of the bubble wait for more than 5 s.
func waitIdle() {
	synctest.Wait()
	time.Sleep(5 * time.Second)
	synctest.Wait()
}
