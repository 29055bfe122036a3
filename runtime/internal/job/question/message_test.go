package question

import (
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

func TestCompleteBoundsTheExpiry(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{0: approval.DefaultExpiry, -1: approval.DefaultExpiry,
		time.Minute: time.Minute, 1000 * time.Hour: approval.MaxExpiry} {
		var row approval.Row
		Complete(&row, t0.Add(1), wait)
		if got := row.ExpiresAt.Sub(t0); got != want || row.Status != approval.Pending || !row.CreatedAt.Equal(t0) {
			t.Errorf("a wait of %v: %v, %+v", wait, got, row)
		}
	}
}

// The digest covers the content of a question, and nothing else.
func TestDigestCoversTheContent(t *testing.T) {
	const maxEvent = 64 << 10
	digest := func(q approval.Row) string {
		t.Helper()
		d, err := Digest(&q, maxEvent)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	base := approval.Row{Kind: approval.Choice, Action: "a", Details: arcp.Raw(`{"x":1,"y":2}`)}
	same, other := base, base
	same.ID, same.Ordinal, same.Principal, same.Details = "id", 7, "alice", arcp.Raw(`{"y":2, "x":1}`)
	other.Action = "b"
	if digest(base) != digest(same) {
		t.Error("the same content has two digests")
	}
	if digest(base) == digest(other) {
		t.Error("other content has the same digest")
	}
	for name, c := range map[string]struct {
		change func(*approval.Row)
		code   arcp.Code
	}{
		"a long text":   {func(q *approval.Row) { q.Action = strings.Repeat("x", approval.MaxText+1) }, arcp.CodeResourceExhausted},
		"large details": {func(q *approval.Row) { q.Details = arcp.Raw(`"` + strings.Repeat("x", maxEvent) + `"`) }, arcp.CodeResourceExhausted},
		"nested details": {func(q *approval.Row) {
			q.Details = arcp.Raw(strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1))
		}, arcp.CodeInvalidArgument},
		"invalid JSON": {func(q *approval.Row) { q.Details = arcp.Raw("{") }, arcp.CodeInvalidArgument},
	} {
		q := base
		c.change(&q)
		if _, err := Digest(&q, maxEvent); codeOf(err) != c.code || err.Retryable {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

func TestKindSelectsTheRequest(t *testing.T) {
	for _, c := range []struct {
		row  approval.Row
		want string
	}{
		{approval.Row{Kind: approval.Permission, Permission: &arcp.PermissionTerm{Permission: "p", Resource: "r",
			Operation: "o"}, Action: "why", ID: "q"}, "permission.request"},
		{approval.Row{Kind: approval.Input, Action: "prompt", ID: "q"}, "human.input.request"},
		{approval.Row{Kind: approval.Choice, Action: "prompt", ID: "q"}, "human.choice.request"},
		{approval.Row{Kind: approval.Gate, Action: "prompt", ID: "q"}, "human.choice.request"},
	} {
		if typ, payload := Request(&c.row); string(typ) != c.want || payload == nil {
			t.Errorf("%s: %s %+v, want %s", c.row.Kind, typ, payload, c.want)
		}
	}
	if p := ApprovalRequested(&approval.Row{ID: "q"}); p.Name != arcp.EventApprovalRequested || !strings.Contains(string(p.Data), `"q"`) {
		t.Errorf("ApprovalRequested = %+v, want %s with the id of the question", p, arcp.EventApprovalRequested)
	}
}

func TestRefusalTellsTheResolution(t *testing.T) {
	for _, c := range []struct {
		row  approval.Row
		want string
	}{
		{approval.Row{Kind: approval.Input, Status: approval.Expired}, "DEADLINE_EXCEEDED no answer arrived in time"},
		{approval.Row{Kind: approval.Gate, Status: approval.Expired}, "PERMISSION_DENIED no answer arrived in time"},
		{approval.Row{Kind: approval.Input, Status: approval.Cancelled, Reason: "x"}, "CANCELLED the question was withdrawn: x"},
		{approval.Row{Kind: approval.Gate, Status: approval.Resolved, Reason: "x"}, "PERMISSION_DENIED denied: x"},
		{approval.Row{Kind: approval.Gate, Status: approval.Resolved}, "PERMISSION_DENIED denied"},
	} {
		if err := Refusal(&c.row); string(err.Code)+" "+err.Message != c.want {
			t.Errorf("%+v: %v, want %s", c.row, err, c.want)
		}
		_, logged, _ := strings.Cut(strings.TrimSuffix(c.want, ": x"), " ")
		if text := LogText(&c.row); text != logged {
			t.Errorf("%+v is logged as %q, want %q", c.row, text, logged)
		}
	}
}

func TestGuidanceIsDecoded(t *testing.T) {
	for value, want := range map[string]Guidance{`{"action":"continue","guidance":"left"}`: {"continue", "left"},
		`{"action":"cancel"}`: {"cancel", ""}} {
		g, err := GuidanceOf(&approval.Row{Value: arcp.Raw(value)})
		if err != nil || g != want || g.Cancels() != (g.Action == "cancel") {
			t.Errorf("%s is decoded as %+v, %v; want %+v", value, g, err, want)
		}
	}
	if q := NewInterrupt("stop"); !q.Interrupt || q.Kind != approval.Input || !q.Schema.IsValid() {
		t.Errorf("NewInterrupt = %+v, want an interrupting input with a schema", q)
	}
}
