package demo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

func TestResourceAsksForALease(t *testing.T) {
	for _, c := range []struct {
		args string
		want tool.ResourceRequest
		says string
	}{
		{`{"kind":"sandbox","lease_seconds":7}`, tool.ResourceRequest{Provider: "demo", Type: "sandbox", For: 7 * time.Second, CleanupTool: "demo.echo"}, `"resource_type":"sandbox"`},
		{`{"kind":"directory","lease_seconds":0}`, tool.ResourceRequest{Provider: "local", Type: "directory"}, `"path":"/`},
	} {
		job := tooltest.New(tooltest.Script{Dir: t.TempDir()})
		out, err := job.Run(t.Context(), demo(t, "demo.resource"), arcp.Raw(c.args))
		if err != nil || !strings.Contains(string(out), c.says) || !strings.Contains(string(out), `"lease_id":"lease_test"`) {
			t.Errorf("%s returns %s, %v", c.args, out, err)
		}
		requests := job.Record().Leases
		if got := requests[0]; len(requests) != 1 || got.Provider != c.want.Provider || got.Type != c.want.Type || got.For != c.want.For || got.CleanupTool != c.want.CleanupTool {
			t.Errorf("%s asks for %+v", c.args, requests)
		}
	}
	for _, kind := range []string{"sandbox", "directory", "process"} {
		job := tooltest.New(tooltest.Script{Dir: t.TempDir(), Lease: func(tool.ResourceRequest) error { return errors.New("no") }})
		if out, err := job.Run(t.Context(), demo(t, "demo.resource"), arcp.Raw(`{"kind":"`+kind+`","lease_seconds":1}`)); err == nil {
			t.Errorf("without a lease a %s is %s", kind, out)
		}
	}
	for _, bad := range []string{`{}`, `{"kind":"","lease_seconds":1}`, `{"kind":"x"}`, `{"kind":"x","lease_seconds":-1}`, `{"kind":"x","lease_seconds":3601}`, `{"kind":"x","lease_seconds":1,"y":1}`} {
		if err := demo(t, "demo.resource").Validate(arcp.Raw(bad)); err == nil {
			t.Errorf("%s is valid", bad)
		}
	}
}
