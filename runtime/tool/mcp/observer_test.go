package mcp

import (
	"context"
	"encoding/json"
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

func requestID(t *testing.T, v float64) jsonrpc.ID {
	t.Helper()
	id, err := jsonrpc.MakeID(v)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
