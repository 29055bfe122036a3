package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/runtime/tool"
)

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
