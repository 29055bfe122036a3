package mcp

//lint:file-ignore SA1019 servers of the versions in use log in the way that the next one will drop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/race"
	"github.com/arcpd/arcpd/runtime/tool"
)

// The schemas and annotations of a server's tools are advertised to clients and enforced.
func TestDefinitionsAreEnforced(t *testing.T) {
	server := script(map[string]string{"initialize": hello, "tools/list": listing(
		`{"name":"Write File","inputSchema":{"type":"object","properties":{"z":{"type":"integer","maximum":9007199254740993},"a":{}}},"outputSchema":{"type":"object"}},` +
			`{"name":"read","title":"Reads","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
			`{"name":"set","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}},` +
			`{"name":"secret.drop","inputSchema":{"type":"object"}},` +
			`{"name":"remote","inputSchema":{"$ref":"https://evil.example/schema"}},` +
			`{"name":"broken","inputSchema":{"type":17}},` +
			`{"name":"READ","inputSchema":{"type":"object"}},` +
			`{"name":"","inputSchema":{"type":"object"}},` +
			`{"name":"` + strings.Repeat("long", 100) + `","inputSchema":{"type":"object"}}`)})
	bubble(t, Config{Allow: []string{"[^s]*", "set", ""}}, server, func(fx *fixture) {
		fx.start()
		fx.want("the names", fx.publisher.names(), "srv.read srv.set srv.write_file")
		for _, c := range []struct {
			name       string
			effect     tool.SideEffect
			approval   tool.Approval
			idempotent bool
			recovery   tool.Recovery
		}{
			{"srv.read", tool.SideEffectRead, tool.ApprovalNone, true, tool.RecoveryRerun},
			{"srv.set", tool.SideEffectExternal, tool.ApprovalManual, true, tool.RecoveryRerun},
			{"srv.write_file", tool.SideEffectExternal, tool.ApprovalManual, false, tool.RecoveryFail},
		} {
			got, _ := fx.publisher.reg.Resolve(c.name)
			if got.SideEffect != c.effect || got.Approval != c.approval || *got.Idempotent != c.idempotent || got.Recovery != c.recovery {
				t.Errorf("%s is %+v, want side effect %s, approval %s, idempotent %v, recovery %s", c.name, got.Capability, c.effect, c.approval, c.idempotent, c.recovery)
			}
		}
		w, _ := fx.publisher.reg.Resolve("srv.write_file")
		fx.want("a schema keeps its numbers and its order", string(w.InputSchema),
			`{"type":"object","properties":{"z":{"type":"integer","maximum":9007199254740993},"a":{}}}`)
		if w, _ := fx.publisher.reg.Resolve("srv.read"); w.OutputSchema != nil {
			t.Errorf("an output schema %q that the server did not give", w.OutputSchema)
		}
		if w.Limits.Timeout != DefaultTimeout || w.Source != tool.SourceMCP {
			t.Errorf("limits %+v, source %s", w.Limits, w.Source)
		}
		for _, left := range []string{`"tool":"remote"`, `"tool":"broken"`, `"tool":"READ"`, `"tool":""`, `"tool":"longlong`} {
			if !strings.Contains(fx.log.String(), left) {
				t.Errorf("the log does not say that %s is left out:\n%s", left, fx.log)
			}
		}
	})
}

func TestConfiguredTextOverridesServer(t *testing.T) {
	server := script(map[string]string{"initialize": hello, "tools/list": listing(
		`{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"set","inputSchema":{"type":"object"}}`)})
	for _, said := range []tool.Approval{tool.ApprovalManual, tool.ApprovalNone, tool.ApprovalAuto("true")} {
		bubble(t, Config{SideEffect: tool.SideEffectNetwork, Approval: said, Prefix: "p-"}, server, func(fx *fixture) {
			fx.start()
			for _, name := range []string{"p-read", "p-set"} {
				got, err := fx.publisher.reg.Resolve(name)
				if err != nil {
					t.Fatal(err)
				}
				if got.SideEffect != tool.SideEffectNetwork || got.Approval != said {
					t.Errorf("%s: %s and %s, want network and %s", name, got.SideEffect, got.Approval, said)
				}
			}
		})
	}
}

func TestResultsFollowTheOutputSchema(t *testing.T) {
	for _, c := range []struct{ output, result, want string }{
		{`{"type":"object"}`, `{"content":[],"structuredContent":{"n":9007199254740993,"a":1}}`, `{"n":9007199254740993,"a":1}`},
		{`{"type":"object","required":["m"]}`, `{"content":[],"structuredContent":{"n":1}}`, `INTERNAL: the tool's result breaks its output schema: member /m is required`},
		{`{"type":"object"}`, `{"content":[{"type":"text","text":"x"}]}`, `INTERNAL: the MCP server's tool has an output schema, and its result no structured content`},
		{``, `{"content":[{"type":"text","text":"x"},{"type":"image","data":"AA==","mimeType":"image/png"}]}`,
			`{"content":[{"type":"text","text":"x"},{"type":"image","data":"AA==","mimeType":"image/png"}]}`},
		{``, `{"content":[],"structuredContent":[1.0]}`, `{"content":[],"structuredContent":[1.0]}`},
		{``, `{"content":[{"type":"text","text":"no disk"},{"type":"text","text":"left"}],"isError":true}`, "UNKNOWN: no disk\nleft"},
		{``, `{"content":[],"isError":true}`, "UNKNOWN: the tool failed and did not say why"},
	} {
		output := ""
		if c.output != "" {
			output = `,"outputSchema":` + c.output
		}
		server := script(map[string]string{"initialize": hello, "tools/list": listing(`{"name":"t","inputSchema":{"type":"object"}` + output + `}`),
			"tools/call": `{"result":` + c.result + `,"jsonrpc":"2.0","id":ID}`})
		bubble(t, Config{}, server, func(fx *fixture) {
			fx.start()
			got, err := fx.call(fx.Context(), new(job), "srv.t", `{}`)
			if err != nil {
				got = fmt.Sprintf("%s: %s", err.Code, err.Message)
			}
			fx.want(c.result, got, c.want)
		})
	}
}

func TestProtocolErrorsHaveCodes(t *testing.T) {
	for _, c := range []struct {
		code int
		want arcp.Code
	}{{-32602, arcp.CodeInvalidArgument}, {-32603, arcp.CodeUnknown}, {-32001, arcp.CodeUnknown}} {
		server := script(map[string]string{"initialize": hello, "tools/list": listing(`{"name":"t","inputSchema":{"type":"object"}}`),
			"tools/call": fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"error":{"code":%d,"message":"why not"}}`, c.code)})
		bubble(t, Config{}, server, func(fx *fixture) {
			fx.start()
			_, err := fx.call(fx.Context(), new(job), "srv.t", `{}`)
			fx.wantCode(fmt.Sprint(c.code), err, c.want, false)
			if err != nil && !strings.Contains(err.Message, "why not") {
				t.Errorf("the message is lost: %v", err)
			}
		})
	}
}

// Progress and logs that the server sends before its result reach the job before the result.
func TestProgressAndLogsComeInOrder(t *testing.T) {
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("work"), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			for i := range 3 {
				_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i), Total: 2, Message: "step"})
			}
			_ = req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "warning", Logger: "disk", Data: map[string]any{"left": 3}})
			_ = req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: "done"})
			return &sdk.CallToolResult{Content: []sdk.Content{}}, nil
		})
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		j := new(job)
		if _, err := fx.call(fx.Context(), j, "srv.work", `{}`); err != nil {
			t.Fatal(err)
		}
		fx.want("the events", j.lines(), "progress 0/2 step\nprogress 1/2 step\nprogress 2/2 step\n"+
			`warn disk: {"left":3} {"data":{"left":3},"logger":"disk"}`+"\ninfo done null")
	})
}

// A call has the trace context of its job in the member of _meta that the protocol reserves for it.
func TestCallHasTheTraceContextOfItsJob(t *testing.T) {
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("work"), func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			parent, _ := req.Params.Meta["traceparent"].(string)
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: parent}}}, nil
		})
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		for trace, want := range map[string]string{
			"4bf92f3577b34da6a3ce929d0e0e4736": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"trace_789":                        "",
		} {
			out, err := fx.call(fx.Context(), &job{trace: trace}, "srv.work", `{}`)
			if err != nil || !strings.Contains(out, `"text":"`+want+`"`) {
				fx.Errorf("trace %s: result = %s, %v, want %s", trace, out, err, want)
			}
		}
	})
}

// A job that handles events slowly neither blocks the session nor lets its queue grow.
func TestNotificationsAreBounded(t *testing.T) {
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("chatter"), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			for range 3 * maxQueued {
				_ = req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: "x"})
			}
			return &sdk.CallToolResult{Content: []sdk.Content{}}, nil
		})
		s.AddTool(plainTool("other"), answer("fine"))
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		slow := &job{blocked: make(chan struct{})}
		ended := make(chan *arcp.Error)
		go func() { _, err := fx.call(fx.Context(), slow, "srv.chatter", `{}`); ended <- err }()
		synctest.Wait()
		if _, err := fx.call(fx.Context(), new(job), "srv.other", `{}`); err != nil {
			t.Errorf("another call beside a slow job: %v", err)
		}
		close(slow.blocked)
		if err := <-ended; err != nil {
			t.Errorf("the slow job: %v", err)
		}
		if n := strings.Count(slow.lines(), "info x"); n < maxQueued || n > maxQueued+1 {
			t.Errorf("%d log events, want what the queue holds", n)
		}
		if !strings.Contains(slow.lines(), "log messages of the MCP server were left out") {
			t.Error("nobody says that log messages are missing")
		}
	})
}

func TestCancelReachesTheServer(t *testing.T) {
	heard := make(chan struct{})
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("slow"), func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			<-ctx.Done()
			close(heard)
			return nil, ctx.Err()
		})
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		heard = make(chan struct{}) // of the bubble
		fx.start()
		ctx, cancel := context.WithCancelCause(fx.Context())
		go func() {
			time.Sleep(time.Second)
			cancel(arcp.Errorf(arcp.CodeCancelled, "enough"))
		}()
		_, err := fx.call(ctx, new(job), "srv.slow", `{}`)
		fx.wantCode("a cancelled call", err, arcp.CodeCancelled, false)
		<-heard
	})
}

// The death of a server fails only its calls.
func TestServerDiesAndComesBack(t *testing.T) {
	reg := prometheus.NewRegistry()
	metrics := NewMetrics(reg)
	server := func(n int, conn net.Conn) {
		sdkServer(func(s *sdk.Server) {
			s.AddTool(plainTool("t"), func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				if n == 1 {
					conn.Close()
					<-ctx.Done()
				}
				return answer("alive")(ctx, nil)
			})
		})(n, conn)
	}
	bubble(t, Config{Metrics: metrics}, server, func(fx *fixture) {
		fx.start()
		gauge := func(state string) float64 { return testutil.ToFloat64(metrics.servers.WithLabelValues(state)) }
		ready := func() float64 { return testutil.ToFloat64(metrics.ready) } // of the only server
		if gauge(stateReady) != 1 || ready() != 1 {
			t.Error("it is not counted as ready")
		}
		_, err := fx.call(fx.Context(), new(job), "srv.t", `{}`)
		fx.wantCode("the call that it died of", err, arcp.CodeUnavailable, true)
		synctest.Wait()
		if gauge(stateWaiting) != 1 || gauge(stateReady) != 0 || ready() != 0 {
			t.Error("it is not counted as waiting")
		}
		begun := time.Now()
		_, err = fx.call(fx.Context(), new(job), "srv.t", `{}`)
		fx.wantCode("a call while it is down", err, arcp.CodeUnavailable, true)
		if d := time.Since(begun); d != 0 {
			t.Errorf("the refusal took %v, want no wait", d)
		}
		generation := fx.publisher.reg.Generation()
		time.Sleep(2 * restartBackoff.Min)
		synctest.Wait()
		if out, err := fx.call(fx.Context(), new(job), "srv.t", `{}`); err != nil || !strings.Contains(out, "alive") {
			t.Errorf("after its return: %s, %v", out, err)
		}
		if fx.publisher.reg.Generation() != generation {
			t.Error("the catalog has changed, though the tools are the same")
		}
		if testutil.ToFloat64(metrics.restarts) != 1 {
			t.Error("the restart is not counted")
		}
	})
	if n := testutil.ToFloat64(metrics.servers.WithLabelValues(stateReady)); n != 0 {
		t.Errorf("%v servers are counted after Close", n)
	}
	if n := testutil.CollectAndCount(metrics.ready); n != 0 {
		t.Errorf("%d servers have a metric after Close, want none", n)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("the metrics have the lint problems %v, error %v; want none", problems, err)
	}
}

// A source that replaces another one with its name keeps the metric when the other one ends.
func TestMetricOfAReplacedServer(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	m.setState("srv", "", stateReady)
	m.setState("srv", "", stateStarting)
	m.setState("srv", stateReady, "")
	m.setState("srv", stateStarting, stateReady)
	if n := testutil.ToFloat64(m.ready.WithLabelValues("srv")); n != 1 {
		t.Errorf("the metric of the new source is %v, want 1", n)
	}
	m.setState("srv", stateReady, "")
	if n := testutil.CollectAndCount(m.ready); n != 0 {
		t.Errorf("%d servers have a metric after the last source has ended, want none", n)
	}
}

// The delay between attempts doubles up to a minute.
func TestReconnectDelayDoubles(t *testing.T) {
	server := func(_ int, conn net.Conn) { conn.Close() }
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start() // it fails after startWait
		if n := fx.opened(); n < 5 || n > 8 {
			t.Errorf("%d attempts within %s", n, startWait)
		}
		time.Sleep(time.Hour)
		if n := fx.opened(); n < 50 || n > 90 {
			t.Errorf("%d attempts within an hour, want one a minute", n)
		}
		fx.want("the tools", fx.publisher.names(), "")
	})
}

func TestServerThatNeverAnswers(t *testing.T) {
	server := func(_ int, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	bubble(t, Config{}, server, func(fx *fixture) {
		begun := time.Now()
		fx.start()
		if d := time.Since(begun); d != startWait {
			t.Errorf("Start took %s, want %s", d, startWait)
		}
		time.Sleep(connectTimeout)
		if n := fx.opened(); n != 2 {
			t.Errorf("%d sessions, want a second one after %s", n, connectTimeout)
		}
	})
}

// A start that is called off waits for nothing.
func TestStartIsCancelled(t *testing.T) {
	server := func(_ int, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	bubble(t, Config{}, server, func(fx *fixture) {
		ctx, cancel := context.WithCancel(fx.Context())
		time.AfterFunc(time.Second, cancel)
		begun := time.Now()
		if err := fx.src.Start(ctx, fx.publisher.publish); err != nil {
			t.Errorf("Start with a context that ends = %v, want nil", err)
		}
		fx.src.Close()
		if d := time.Since(begun); d != time.Second {
			t.Errorf("Start and Close took %s, want no longer than until the start was called off", d)
		}
	})
}

// A server that does not read must not block Close.
func TestServerThatNeverReads(t *testing.T) {
	bubble(t, Config{}, func(int, net.Conn) {}, func(fx *fixture) {
		fx.start()
	})
}

func TestCallThatIsNeverAnswered(t *testing.T) {
	server := script(map[string]string{"initialize": hello, "ping": ack, "tools/list": listing(`{"name":"t","inputSchema":{"type":"object"}}`), "tools/call": ""})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		ctx, cancel := context.WithTimeoutCause(fx.Context(), time.Hour, errors.New("x"))
		defer cancel()
		begun := time.Now()
		if _, err := fx.call(ctx, new(job), "srv.t", `{}`); err == nil || time.Since(begun) != time.Hour {
			t.Errorf("%v after %s: a server that answers pings is alive", err, time.Since(begun))
		}
		if fx.opened() != 1 {
			t.Error("its session was ended")
		}
	})
}

// The session of a server that answers no pings ends.
func TestSilentServerEndsTheSession(t *testing.T) {
	server := script(map[string]string{"initialize": hello, "ping": "", "tools/list": listing(`{"name":"t","inputSchema":{"type":"object"}}`), "tools/call": ""})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		_, err := fx.call(fx.Context(), new(job), "srv.t", `{}`)
		fx.wantCode("the call", err, arcp.CodeUnavailable, true)
	})
}

// Lines that are no messages are skipped; too many of them end the session.
func TestGarbageLinesAreSkipped(t *testing.T) {
	server := func(n int, conn net.Conn) {
		_, _ = io.WriteString(conn, "Welcome to the server!\n\x00\xff\n[1,\n{\"jsonrpc\":\n\n")
		serveScript(conn, map[string]string{"initialize": hello, "tools/list": listing(`{"name":"t","inputSchema":{"type":"object"}}`),
			"tools/call": strings.Repeat("noise\n", maxGarbageLines+1) + ack})
	}
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		fx.want("the tools behind a greeting", fx.publisher.names(), "srv.t")
		_, err := fx.call(fx.Context(), new(job), "srv.t", `{}`)
		fx.wantCode("a call that is answered with noise", err, arcp.CodeUnavailable, true)
	})
}

// flood writes a line of n bytes between two texts.
func flood(w io.Writer, begin string, n int, end string) {
	_, _ = io.WriteString(w, begin)
	block := strings.Repeat("x", 1<<20)
	for ; n > 0; n -= len(block) {
		if _, err := io.WriteString(w, block); err != nil {
			return
		}
	}
	_, _ = io.WriteString(w, end)
}

// A result of a gigabyte fails its call and is not buffered. The session continues.
func TestHugeResultFailsItsCall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	huge := 1 << 30 // a result that no server means well with
	if race.Enabled {
		huge = 64 << 20 // the race detector slows the test down twenty times
	}
	sizes := map[string]int{"id last": huge, "id first": 64 << 20}
	for name, ends := range map[string][2]string{
		"id last":  {`{"result":{"content":[{"type":"text","text":"`, `"}]},"jsonrpc":"2.0","id":ID}` + "\n"},
		"id first": {`{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"`, `"}]}}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			server := func(_ int, conn net.Conn) {
				calls := 0
				dec := json.NewDecoder(conn)
				for {
					var m struct {
						ID     json.RawMessage
						Method string
					}
					if dec.Decode(&m) != nil {
						return
					}
					id := func(s string) string { return strings.ReplaceAll(s, "ID", string(m.ID)) }
					switch m.Method {
					case "initialize":
						_, _ = io.WriteString(conn, id(hello)+"\n")
					case "tools/list":
						_, _ = io.WriteString(conn, id(listing(`{"name":"t","inputSchema":{"type":"object"}}`))+"\n")
					case "tools/call":
						if calls++; calls == 1 {
							flood(conn, id(ends[0]), sizes[name], id(ends[1]))
						} else {
							_, _ = io.WriteString(conn, id(`{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`)+"\n")
						}
					case "server/discover":
						_, _ = io.WriteString(conn, id(`{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no"}}`)+"\n")
					}
				}
			}
			bubble(t, Config{}, server, func(fx *fixture) {
				fx.start()
				_, err := fx.call(fx.Context(), new(job), "srv.t", `{}`)
				fx.wantCode("the call", err, arcp.CodeResourceExhausted, false)
				if _, err := fx.call(fx.Context(), new(job), "srv.t", `{}`); err != nil || fx.opened() != 1 {
					t.Errorf("the next call: %v, in session %d", err, fx.opened())
				}
			})
		})
	}
}

// However often the list changes, it is read once a second at most, and the last
// change is seen.
func TestListChangedStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	var mu sync.Mutex
	version, lists := 0, 0
	server := func(_ int, conn net.Conn) {
		go func() {
			time.Sleep(time.Second)
			for range 10_000 {
				mu.Lock()
				version++
				mu.Unlock()
				if _, err := io.WriteString(conn, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n"); err != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		serveLists(conn, func() string {
			mu.Lock()
			defer mu.Unlock()
			lists++
			return listing(fmt.Sprintf(`{"name":"v%d","inputSchema":{"type":"object"}}`, version))
		})
	}
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		fx.want("at first", fx.publisher.names(), "srv.v0")
		time.Sleep(time.Minute)
		synctest.Wait()
		fx.want("after the storm", fx.publisher.names(), "srv.v10000")
		if lists < 5 || lists > 15 {
			t.Errorf("listed %d times in 11 s", lists)
		}
	})
}

func TestTenThousandTools(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	server := sdkServer(func(s *sdk.Server) {
		for i := range 10_000 {
			s.AddTool(plainTool(fmt.Sprint("tool-", i)), answer(""))
		}
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		waitIdle()
		if n := len(fx.publisher.reg.Tools()); n != maxTools {
			t.Errorf("%d tools, want %d", n, maxTools)
		}
		if !strings.Contains(fx.log.String(), "too many tools") {
			t.Error("nobody says that some are left out")
		}
	})
}

func TestEndlessListIsRefused(t *testing.T) {
	var pages atomic.Int64 // a session may be under way when it is read
	server := func(_ int, conn net.Conn) {
		serveLists(conn, func() string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"result":{"tools":[],"nextCursor":"c%d"}}`, pages.Add(1))
		})
	}
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		if n := pages.Load(); n > 8*maxPages || !strings.Contains(fx.log.String(), "pages") {
			t.Errorf("%d pages were asked for:\n%s", n, fx.log)
		}
	})
}

// The list of a server that announces no changes is polled.
func TestSilentListIsPolled(t *testing.T) {
	version := 0
	server := func(_ int, conn net.Conn) {
		serveLists(conn, func() string {
			version++
			return listing(fmt.Sprintf(`{"name":"v%d","inputSchema":{"type":"object"}}`, version))
		})
	}
	bubble(t, Config{}, server, func(fx *fixture) {
		if err := fx.src.Refresh(fx.Context()); err != nil {
			t.Errorf("without a session: %v", err)
		}
		fx.start()
		if err := fx.src.Refresh(fx.Context()); err != nil {
			t.Errorf("Refresh with a session: %v", err)
		}
		fx.want("after Refresh", fx.publisher.names(), "srv.v2")
	})
}

// A name that another source has is an error of that tool only.
func TestConflictOmitsOnlyTheTool(t *testing.T) {
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("a"), answer(""))
		s.AddTool(plainTool("b"), answer(""))
	})
	metrics := NewMetrics(prometheus.NewRegistry())
	bubble(t, Config{Metrics: metrics}, server, func(fx *fixture) {
		mine, err := tool.NewRaw(tool.Capability{Name: "srv.a"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := fx.publisher.reg.Register(mine); err != nil {
			t.Fatal(err)
		}
		fx.start()
		fx.want("the tools", fx.publisher.names(), "srv.a srv.b")
		if got, _ := fx.publisher.reg.Resolve("srv.a"); got != mine {
			t.Error("it took a name that was taken")
		}
		if n := testutil.ToFloat64(metrics.leftOut); n != 1 {
			t.Errorf("%v tools are counted as left out", n)
		}
	})
	if n := testutil.ToFloat64(metrics.leftOut); n != 0 {
		t.Errorf("%v tools are counted as left out after Close", n)
	}
}

func TestElicitationAsksTheJob(t *testing.T) {
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("ask"), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			res, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Which?", RequestedSchema: json.RawMessage(
				`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)})
			if err != nil {
				return nil, err
			}
			return answer(fmt.Sprintf("%s %v", res.Action, res.Content))(ctx, req)
		})
		s.AddTool(plainTool("sample"), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			_, err := req.Session.CreateMessage(ctx, &sdk.CreateMessageParams{MaxTokens: 1}) // as old servers do
			return answer(fmt.Sprint(err))(ctx, req)
		})
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		for _, c := range []struct {
			value string
			err   error
			want  string
		}{
			{`{"n":7}`, nil, "accept map[n:7]"},
			{`null`, nil, "decline map[]"},
			{``, arcp.Errorf(arcp.CodeDeadlineExceeded, "nobody"), "cancel map[]"},
			{`"text"`, nil, "cancel map[]"},
		} {
			j := &job{ask: func(_ context.Context, a tool.InputRequest) (tool.Answer, error) {
				if !strings.HasPrefix(a.Prompt, "Which?") || !strings.Contains(string(a.Schema), `"integer"`) || tool.CheckValue(a.Schema, arcp.Raw("null")) != nil {
					t.Errorf("asked %q with %s", a.Prompt, a.Schema)
				}
				return tool.Answer{Value: arcp.Raw(c.value)}, c.err
			}}
			out, err := fx.call(fx.Context(), j, "srv.ask", `{}`)
			if err != nil || !strings.Contains(out, c.want) {
				t.Errorf("%s: %s, %v, want %s", c.value, out, err, c.want)
			}
		}
		out, _ := fx.call(fx.Context(), new(job), "srv.sample", `{}`)
		if !strings.Contains(out, "sampl") && !strings.Contains(out, "support") {
			t.Errorf("sampling: %s", out)
		}
	})
}

// A question of the server names no call. With two calls in progress the question belongs to no call.
func TestElicitationDuringSeveralCalls(t *testing.T) {
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("ask"), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			time.Sleep(time.Second)
			res, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Which?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
			if err != nil {
				return nil, err
			}
			time.Sleep(time.Second)
			return answer(res.Action)(ctx, req)
		})
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		results := make(chan string, 2)
		for range 2 {
			go func() {
				out, _ := fx.call(fx.Context(), new(job), "srv.ask", `{}`) // job.ask is nil: it would panic
				results <- out
			}()
		}
		for range 2 {
			if out := <-results; !strings.Contains(out, "cancel") {
				t.Error(out)
			}
		}
	})
}

// The end of a session ends the questions that its server has asked.
func TestCloseDuringQuestion(t *testing.T) {
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("ask"), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			_, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Which?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
			<-ctx.Done()
			return nil, err
		})
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		j := &job{ask: func(ctx context.Context, _ tool.InputRequest) (tool.Answer, error) {
			<-ctx.Done()
			return tool.Answer{}, ctx.Err()
		}}
		ended := make(chan *arcp.Error)
		go func() { _, err := fx.call(fx.Context(), j, "srv.ask", `{}`); ended <- err }()
		synctest.Wait()
		fx.src.Close()
		fx.wantCode("the call", <-ended, arcp.CodeUnavailable, true)
	})
}

// A server that answers nothing while it computes keeps its session for as long as a
// call may take, and loses it when it is silent without a call.
func TestBusyServerIsNotDisconnected(t *testing.T) {
	serve := func(_ int, conn net.Conn) {
		serveWith(conn, func(method string) string {
			switch method {
			case "initialize":
				return hello
			case "tools/list":
				return listing(`{"name":"long","inputSchema":{"type":"object"}}`)
			case "tools/call":
				time.Sleep(8 * time.Minute)
				return `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`
			}
			return ack
		})
	}
	bubble(t, Config{}, serve, func(fx *fixture) {
		fx.start()
		out, err := fx.call(fx.Context(), new(job), "srv.long", `{}`)
		if err != nil || out != `{"content":[]}` || fx.opened() != 1 {
			t.Errorf("%s, %v, %d sessions", out, err, fx.opened())
		}
	})
}
