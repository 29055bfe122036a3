package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/tool"
)

func TestDeclarations(t *testing.T) {
	many := make([]string, maxExecutes+1)
	for name, c := range map[string]struct {
		executes     []string
		capabilities string
		concurrency  int
		refused      string // empty: it is right
	}{
		"nothing said":         {executes: []string{"a@1.0.0"}},
		"a list":               {executes: []string{"a@1.0.0"}, capabilities: `["x"]`},
		"other capabilities":   {executes: []string{"a@1.0.0"}, capabilities: `{"languages":["go"]}`},
		"all":                  {executes: []string{"a@1.0.0"}, capabilities: `{"tools":{"a@1.0.0":{"description":"d","input_schema":{},"output_schema":{},"side_effect":"none","idempotent":false,"recovery":"checkpoint","timeout_ms":1000,"max_request_bytes":10,"max_response_bytes":10,"interruptible":true,"approval":"manual","retry":{"max_attempts":1},"min_trust":"trusted"}}}`},
		"an unknown member":    {executes: []string{"a@1.0.0"}, capabilities: `{"tools":{"a@1.0.0":{"recover":"rerun"}}}`, refused: "recover"},
		"about something else": {executes: []string{"a@1.0.0"}, capabilities: `{"tools":{"b@1.0.0":{}}}`, refused: `"b@1.0.0"`},
		"no object":            {executes: []string{"a@1.0.0"}, capabilities: `{"tools":[]}`, refused: "capabilities.tools"},
		"twice":                {executes: []string{"a@1.0.0", "a"}, refused: "twice"},
		"no name":              {executes: []string{"A"}, refused: "name"},
		"too many":             {executes: many, refused: "64"},
		"too many at once":     {executes: []string{"a@1.0.0"}, concurrency: maxConcurrency + 1, refused: "concurrency"},
		"too large": {executes: []string{"a@1.0.0"},
			capabilities: `{"tools":{"a@1.0.0":{"max_request_bytes":99999999}}}`, refused: "max_request_bytes"},
		"less than no time": {executes: []string{"a@1.0.0"}, capabilities: `{"tools":{"a@1.0.0":{"timeout_ms":-1}}}`, refused: "timeout_ms"},
	} {
		list, err := declarations(&agents.Agent{Executes: c.executes, Capabilities: arcp.Raw(c.capabilities), Concurrency: c.concurrency})
		switch {
		case c.refused == "" && (err != nil || len(list) != len(c.executes)):
			t.Errorf("%s: %d declarations, %v; want %d", name, len(list), err, len(c.executes))
		case c.refused != "" && (err == nil || err.Code != arcp.CodeInvalidArgument || !strings.Contains(err.Message, c.refused)):
			t.Errorf("%s: %v, want INVALID_ARGUMENT and a word about %s", name, err, c.refused)
		}
	}
}

// A declaration without capabilities has the defaults of other tools, but no time limit.
func TestDeclaredDefaults(t *testing.T) {
	list, err := declarations(&agents.Agent{Executes: []string{"a@2.0.0"}})
	if err != nil {
		t.Fatal(err)
	}
	made, e := tool.NewRaw(list[0].capability, nil)
	if e != nil {
		t.Fatal(e)
	}
	if made.Ref() != "a@2.0.0" || made.Source != tool.SourceWorker || made.Recovery != tool.RecoveryFail || !*made.Idempotent ||
		made.Limits.Timeout >= 0 || made.Limits.MaxRequestBytes != tool.DefaultMaxRequestBytes || made.SideEffect.ReadOnly() {
		t.Errorf("by default it is %+v", made.Capability)
	}
	list, err = declarations(&agents.Agent{Executes: []string{"a@2.0.0"}, Capabilities: arcp.Raw(`{"tools":{"a@2.0.0":{"timeout_ms":1500}}}`)})
	if err != nil || list[0].capability.Limits.Timeout != 1500*time.Millisecond {
		t.Errorf("timeout_ms 1500 is %v (%v)", list[0].capability.Limits.Timeout, err)
	}
}
