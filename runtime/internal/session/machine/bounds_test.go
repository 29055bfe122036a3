package machine

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// A filter that is too large is refused: each event would be compared with it.
func TestFilterBounds(t *testing.T) {
	names := func(n, size int) string {
		return `"` + strings.Join(strings.Fields(strings.Repeat(strings.Repeat("x", size)+" ", n)), `","`) + `"`
	}
	for _, c := range []struct {
		why, filter string
		ok          bool
	}{
		{"as many values as may be", `{"trace_id":[` + names(maxFilterTerms, 8) + `]}`, true},
		{"one more", `{"trace_id":[` + names(maxFilterTerms, 8) + `],"types":["log"]}`, false},
		{"too many bytes", `{"trace_id":[` + names(20, maxFilterBytes/20) + `]}`, false},
	} {
		m := reach(t, Accepted)
		env := frameOf(t, arcp.Subscribe)
		env.Payload = arcp.Raw(`{"filter":` + c.filter + `}`)
		m.Receive(t0, env)
		out := m.Take()
		if got := len(out.Commands) == 1; got != c.ok || !c.ok && observed(out) != nack+reaction(arcp.CodeInvalidRequest) {
			t.Errorf("%s: %v", c.why, observed(out))
		}
	}
}

// Reasons go into rows and events: they are cut, and the command is performed.
func TestReasonsAreCut(t *testing.T) {
	m := reach(t, Accepted)
	env := frameOf(t, arcp.Cancel)
	env.Payload = arcp.Raw(fmt.Sprintf(`{"target":"job","target_id":"job_1","reason":%q}`, strings.Repeat("é", maxReason)))
	m.Receive(t0, env)
	out := m.Take()
	if len(out.Commands) != 1 {
		t.Fatalf("the cancel leads to %+v", out)
	}
	reason := out.Commands[0].(CancelJob).Reason
	if len(reason) > maxReason || len(reason) < maxReason-8 || !utf8.ValidString(reason) || !strings.HasSuffix(reason, "é…") {
		t.Errorf("the reason has %d bytes and ends with %q", len(reason), reason[len(reason)-8:])
	}
}

// Of a client's list of features only those are kept that the runtime offers.
func TestFeaturesThatAreKept(t *testing.T) {
	asked := arcp.Capabilities{Features: []string{"ack"}}
	for n := range 20_000 {
		asked.Features = append(asked.Features, fmt.Sprint("feature-", n))
	}
	n := negotiate(&testConfig().Offer, &asked)
	if len(n.mentioned) != 1 || cap(n.mentioned) > len(testConfig().Offer.Features)+1 {
		t.Errorf("%d features are kept, in a list of %d", len(n.mentioned), cap(n.mentioned))
	}
}
