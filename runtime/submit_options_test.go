package runtime_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
)

// largeOptions are members of a submit that stay in memory with its job, in the form that both dialects have.
var largeOptions = map[string]string{
	"key":         `"idempotency_key":"` + strings.Repeat("k", 1<<20) + `"`,
	"control":     `"idempotency_key":"a\u0000b"`,
	"max_runtime": `"max_runtime_sec":3600.` + strings.Repeat("0", 1<<20),
}

// Limits.MaxArguments bounds the memory of live jobs. The other members of a submit do not get around it.
func TestOptionsOfASubmitAreBounded(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p := f.dial("alice")
		options := map[string]string{"retry": `"retry":{"max_attempts":1,"x":"` + strings.Repeat("r", 1<<20) + `"}`}
		maps.Copy(options, largeOptions)
		for name, option := range options {
			p.send("tool.invoke", fmt.Sprintf(`{"tool":"demo.sleep","arguments":{"ms":1},%s}`, option))
			if e := refusal(t, p.until(arcp.JobFailed)); e.Code != arcp.CodeInvalidRequest {
				t.Errorf("%s: refused with %v, want %s", name, e.Code, arcp.CodeInvalidRequest)
			}
			p.send("job.schedule", fmt.Sprintf(`{"when":{"after":3600},"job":{"type":"tool.invoke","payload":{"tool":"demo.sleep","arguments":{"ms":1},%s}}}`, option))
			if e := refusal(t, p.until(arcp.Nack)); e.Code == "" {
				t.Errorf("%s: a schedule of such jobs is accepted", name)
			}
		}
	})
}

func TestOptionsOfADraftSubmitAreBounded(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		i := 0
		for draftLibraries[i].name != strict.TypeScript {
			i++
		}
		p := f.dialDraft(&draftLibraries[i], "alice")
		for name, option := range largeOptions {
			p.submit("demo.sleep", `{"ms":1}`, ","+option)
			p.refused(name, "INVALID_REQUEST")
		}
	})
}
