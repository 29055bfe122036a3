package mcp

//lint:file-ignore SA1019 servers of the versions in use log in the way that the next one will drop

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
		j.ask = func(_ context.Context, a tool.InputRequest) (tool.Answer, error) {
			prompt, _, _ := strings.Cut(a.Prompt, "\n")
			j.say("%s", prompt)
			return tool.Answer{Value: arcp.Raw(`{}`)}, nil
		}
		_, _ = fx.call(fx.Context(), j, "srv.b", `{}`)
		synctest.Wait()
		fx.want("what job b was asked", j.lines(), "bob's")
	})
}

// A server that still logs and asks for an answered call reaches later jobs of the same principal
// only. A later call of that principal does not change this: the server may still work for the other.
func TestLateEventsReachNoOtherPrincipal(t *testing.T) {
	server := sdkServer(func(s *sdk.Server) {
		s.AddTool(plainTool("first"), answer("x"))
		s.AddTool(plainTool("next"), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			if err := req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: "flushed for the first call"}); err != nil {
				return nil, err
			}
			res, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Confirm the first call?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
			if err != nil {
				return nil, err
			}
			return answer(res.Action)(ctx, req)
		})
	})
	bubble(t, Config{}, server, func(fx *fixture) {
		fx.start()
		_, _ = fx.call(fx.Context(), new(job), "srv.first", `{}`)
		for _, c := range []struct{ principal, log, action string }{
			{"alice", "info flushed for the first call null", accept},
			{"bob", "", cancel},
			{"alice", "", cancel},
		} {
			asked := cancel
			j := &job{principal: c.principal, ask: func(context.Context, tool.InputRequest) (tool.Answer, error) {
				asked = accept
				return tool.Answer{Value: arcp.Raw(`{}`)}, nil
			}}
			stray := strings.Count(fx.log.String(), "flushed")
			out, err := fx.call(fx.Context(), j, "srv.next", `{}`)
			if err != nil || !strings.Contains(out, `"`+c.action+`"`) || asked != c.action {
				t.Errorf("%s: result = %s, %v, want the action %s; the job: %s", c.principal, out, err, c.action, asked)
			}
			fx.want("the log of the job of "+c.principal, j.lines(), c.log)
			if logged := strings.Count(fx.log.String(), "flushed") > stray; logged != (c.log == "") {
				t.Errorf("%s: the runtime's log has the message: %v, want %v", c.principal, logged, c.log == "")
			}
		}
	})
}

// A job whose host does not report its principal may be of any principal.
func TestCallsOfUnknownPrincipalsAreShared(t *testing.T) {
	tp := newObserver(nil)
	if c := tp.begin(tool.NewJob(struct{ tool.Host }{})); tp.soleCall() != nil {
		t.Errorf("soleCall = %v, want none: the principal is not known", c)
	}
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
