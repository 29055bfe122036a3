package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// A tool that ignores its cancellation sends questions and logs for its call. They reach no
// other job, even before the server has answered the cancelled call.
func TestEventsOfCancelledCallReachNoOtherJob(t *testing.T) {
	asks := func(message string, after time.Duration) sdk.ToolHandler {
		return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			time.Sleep(after)
			_, err := req.Session.Elicit(context.WithoutCancel(ctx), &sdk.ElicitParams{Message: message, RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
			if err != nil {
				t.Error(err)
			}
			return answer("x")(ctx, req)
		}
	}
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("a"), asks("alice's secret", 2*time.Second))
		s.AddTool(plainTool("b"), asks("bob's", 10*time.Second))
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		ctx, cancel := context.WithCancel(fx.Context())
		go func() { _, _ = fx.call(ctx, new(job), "srv.a", `{}`) }()
		time.Sleep(time.Second)
		cancel()
		j := new(job)
		j.ask = func(_ context.Context, a tool.InputAsk) (tool.Answer, error) {
			prompt, _, _ := strings.Cut(a.Prompt, "\n")
			j.say("%s", prompt)
			return tool.Answer{Value: arcp.Raw(`{}`)}, nil
		}
		_, _ = fx.call(fx.Context(), j, "srv.b", `{}`)
		synctest.Wait()
		fx.want("what job b was asked", j.lines(), "bob's")
	})
}

func TestUnansweredCallsAreBoundedAndForgottenWhenAnswered(t *testing.T) {
	tp := newObserver(nil)
	leave := func() jsonrpc.ID {
		c := tp.begin(tool.NewJob(new(job)))
		id := requestID(t, float64(len(tp.unanswered)+1))
		tp.sent(context.WithValue(t.Context(), callKey{}, c), &jsonrpc.Request{ID: id, Method: "tools/call"})
		tp.end(c)
		return id
	}
	for _, answer := range []jsonrpc.Response{{Result: json.RawMessage(`{}`)}, {Error: &jsonrpc.Error{Code: 1, Message: "x"}}} {
		id := leave()
		other := tp.begin(tool.NewJob(new(job)))
		if tp.soleCall() != nil {
			t.Error("a call is the only one although another is not answered")
		}
		answer.ID = id
		tp.received(&answer)
		if tp.soleCall() != other {
			t.Errorf("after %+v: the only call is not known", answer)
		}
		tp.end(other)
	}
	for range maxUnanswered + 1 {
		leave()
	}
	for id := range tp.unanswered {
		tp.answered(id, nil)
	}
	tp.begin(tool.NewJob(new(job)))
	if c := tp.soleCall(); len(tp.unanswered) != 0 || c != nil {
		t.Errorf("soleCall = %v with %d unanswered requests, want none: a forgotten request may still run", c, len(tp.unanswered))
	}
}

// A request that is written when its call has ended already runs at the server.
func TestCallThatEndsDuringWriteIsTracked(t *testing.T) {
	tp := newObserver(nil)
	c := tp.begin(tool.NewJob(new(job)))
	tp.end(c)
	tp.sent(context.WithValue(t.Context(), callKey{}, c), &jsonrpc.Request{ID: requestID(t, 7.0), Method: "tools/call"})
	tp.begin(tool.NewJob(new(job)))
	if c := tp.soleCall(); c != nil {
		t.Errorf("soleCall = %v, want none: the ended call runs at the server", c)
	}
}

// Names are counted like all that a list has, and one that is too long is not kept.
func TestLongNamesAreDropped(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	if d := define(&sdk.Tool{Name: long}, nil); len(d.name) > maxName+1 {
		t.Errorf("%d bytes of a name are kept", len(d.name))
	}
	bubble(t, Config{}, script(map[string]string{"initialize": hello, "tools/list": listing("")}), func(fx *fixture) {
		fx.start()
		for i := range 50 {
			fx.src.logOmitted(long+fmt.Sprint(i), fmt.Errorf("%s", long))
		}
		size := 0
		for k, v := range fx.src.faults {
			size += len(k) + len(v)
		}
		if size > 50*(maxName+maxFault+10) {
			t.Errorf("%d bytes of faults are kept", size)
		}
	})
}

// A server that asks without an end is not asked for, and does not fill the log.
func TestQuestionFloodIsBounded(t *testing.T) {
	bubble(t, Config{}, script(map[string]string{"initialize": hello, "tools/list": listing("")}), func(fx *fixture) {
		fx.start()
		for range 5000 {
			res, err := fx.src.elicit(t.Context(), newObserver(nil), &sdk.ElicitParams{Message: "x"})
			if err != nil || res.Action != cancel {
				t.Fatal(res, err)
			}
		}
		if n := strings.Count(fx.log.String(), "it is not asked"); n == 0 || n > logBurst {
			t.Errorf("%d lines of the log", n)
		}
	})
}

func TestPendingQuestionsAreBounded(t *testing.T) {
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("a"), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			for range maxQuestions + 10 {
				go req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "x", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
			}
			<-ctx.Done()
			return answer("x")(ctx, req)
		})
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		j := new(job)
		j.ask = func(ctx context.Context, _ tool.InputAsk) (tool.Answer, error) {
			j.say("asked")
			<-ctx.Done()
			return tool.Answer{}, ctx.Err()
		}
		ctx, stop := context.WithTimeout(fx.Context(), 30*time.Second)
		defer stop()
		_, _ = fx.call(ctx, j, "srv.a", `{}`)
		if n := strings.Count(j.lines(), "asked"); n != maxQuestions {
			t.Errorf("%d questions are asked at once", n)
		}
		waitIdle()
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

func requestID(t *testing.T, v float64) jsonrpc.ID {
	t.Helper()
	id, err := jsonrpc.MakeID(v)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// The id of a message that is too large is read from the outermost object, at any position.
func TestIDOfALargeMessage(t *testing.T) {
	for text, want := range map[string]any{
		`{"jsonrpc":"2.0","id":7,"result":{"id":8}}`:                           int64(7),
		`{"result":{"id":8,"x":[{"id":9}],"s":"}],\"id\":1,\\"},"id":"a:\"b"}`: `a:"b`,
		` [ {"id":1} ] `:              nil,
		`{"result":{"id":8}}`:         nil,
		`{"id":{"x":1},"result":1}`:   nil,
		`{"id" : 12 , "result":"id"}`: int64(12),
		`{"idx":1,"id":"` + strings.Repeat("x", maxIDMember) + `"}`: nil,
	} {
		for _, size := range []int{1, 3, 1000} {
			var s idScanner
			for part := range slices.Chunk([]byte(text), size) {
				s.scan(part)
			}
			if got := s.id.Raw(); got != want {
				t.Errorf("id of %s = %v, want %v", text, got, want)
			}
		}
	}
}
