package questions

import (
	"testing"

	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// The text of an event about the end of a question says how it ended.
func TestStatusText(t *testing.T) {
	for want, row := range map[string]approval.Row{
		"approved by bob":            {Status: approval.Resolved, Resolution: approval.Approve, ResolvedBy: "bob"},
		"denied by bob":              {Status: approval.Resolved, Resolution: approval.Deny, ResolvedBy: "bob"},
		"granted":                    {Status: approval.Resolved, Resolution: approval.Granted},
		"answered by bob":            {Status: approval.Resolved, Resolution: approval.Answered, ResolvedBy: "bob"},
		"answered with its default":  {Status: approval.Resolved, Resolution: approval.ByDefault, ResolvedBy: approval.ByDefault},
		`resolved to "later" by bob`: {Status: approval.Resolved, Resolution: "later", ResolvedBy: "bob"},
		"pending":                    {Status: approval.Pending},
		"cancelled":                  {},
	} {
		if got := describeStatus(&row); got != want {
			t.Errorf("%+v: %q, want %q", row, got, want)
		}
	}
}
