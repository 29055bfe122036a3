package arcp_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// The golden file shows every change in the results of the runtime's own tools, and in its own
// events and errors.
func TestViewEncodingsAreTheSame(t *testing.T) {
	var b strings.Builder
	for _, v := range []struct {
		name string
		view any
	}{
		{"jobs.get", new(arcp.JobView)},
		{"sessions.list", new(arcp.Page[arcp.SessionView])},
		{"artifact.put", new(arcp.UploadProgress)},
		{"artifact.get", new(arcp.ArtifactChunk)},
		{"artifact.release", new(arcp.ArtifactReleased)},
		{"tools.list", new(arcp.ToolPage)},
		{"tools.describe", new(arcp.ToolView)},
		{"approval.list", new(arcp.Page[arcp.QuestionView])},
		{"approval.get", new(arcp.QuestionView)},
		{"approval.wait", new(arcp.OutcomeView)},
		{"registry.leases", new(arcp.Page[arcp.ResourceLeaseView])},
		{"registry.lease", new(arcp.ResourceLeaseView)},
		{"registry.reap", new(arcp.ReapReport)},
		{"event subscription.gap", new(arcp.FeedGap)},
		{"event approval.requested", new(arcp.ApprovalRequested)},
		{"details of DATA_LOSS", new(arcp.LostDetails)},
	} {
		for _, which := range []string{"least", "full"} {
			fill(reflect.ValueOf(v.view).Elem(), "", which == "full")
			raw, err := arcp.Marshal(v.view)
			if err != nil {
				t.Fatalf("%s %s: %v", v.name, which, err)
			}
			fmt.Fprintf(&b, "%s %s %s\n", v.name, which, raw)
			again := reflect.New(reflect.TypeOf(v.view).Elem()).Interface()
			if err := arcp.Unmarshal(raw, again); err != nil {
				t.Errorf("%s %s: %v", v.name, which, err)
			}
			if second, err := arcp.Marshal(again); err != nil || !bytes.Equal(second, raw) {
				t.Errorf("%s %s is\n%s\nand after decoding\n%s, %v", v.name, which, raw, second, err)
			}
		}
	}
	golden(t, "views.golden", b.String())
}
