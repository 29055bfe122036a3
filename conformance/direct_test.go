package conformance

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/proxy"
	"github.com/arcpd/arcpd/transport"
)

// direct changes the frames of a connection to a runtime into those of a server that runs tools without jobs
// (RFC §6.3): tool.result or tool.error is the only answer to tool.invoke.
type direct struct {
	transport.Conn
	only    string   // the tool that runs without a job; empty: all
	invoked sync.Map // ids of tool.invoke
}

// ends are the types of the end of a job, and what a server without jobs sends instead.
var ends = map[arcp.Type]arcp.Type{arcp.JobCompleted: arcp.ToolResult, arcp.JobFailed: arcp.ToolError, arcp.JobCancelled: arcp.ToolError}

func (d *direct) Write(frame []byte) error {
	var m struct {
		Type arcp.Type `json:"type"`
		ID   string    `json:"id"`

		Payload struct {
			Tool string `json:"tool"`
		} `json:"payload"`
	}
	err := json.Unmarshal(frame, &m)
	name, _, _ := strings.Cut(m.Payload.Tool, "@")
	if err == nil && m.Type == arcp.ToolInvoke && (d.only == "" || name == d.only) {
		d.invoked.Store(m.ID, true)
	}
	return d.Conn.Write(frame)
}

func (d *direct) Read() ([]byte, error) {
	for {
		frame, err := d.Conn.Read()
		if err != nil || d.Binary() {
			return frame, err
		}
		var env map[string]any
		if json.Unmarshal(frame, &env) != nil {
			return frame, nil
		}
		request, _ := env["correlation_id"].(string)
		typ, _ := env["type"].(string)
		if _, ok := d.invoked.Load(request); !ok {
			return frame, nil
		}
		if end := ends[arcp.Type(typ)]; end != "" {
			env["type"] = end
			delete(env, "job_id")
			delete(env, "event_seq")
			changed, _ := json.Marshal(env) // it was decoded
			return changed, nil
		}
		if typ == string(arcp.Nack) {
			return frame, nil
		}
	}
}

// WriteBinary implements proxy.BinaryWriter.
func (d *direct) WriteBinary(data []byte) error { return d.Conn.(proxy.BinaryWriter).WriteBinary(data) }

// Binary implements proxy.BinaryReader.
func (d *direct) Binary() bool {
	r, ok := d.Conn.(proxy.BinaryReader)
	return ok && r.Binary()
}

// A server that runs tools without jobs, or one of them, fails no check of jobs: the checks that need such a tool are
// skipped, and say why.
func TestServerWithoutJobs(t *testing.T) {
	for _, c := range []struct{ only, habit string }{
		{"", "tool.invoke makes a job: no"},
		{"demo.echo", "tool.invoke makes a job: for some tools"},
	} {
		target := ownTarget(t)
		target.plant = func(conn transport.Conn) transport.Conn { return &direct{Conn: conn, only: c.only} }
		report := report(t, target)
		skipped := map[string]int{}
		for _, res := range report.Results {
			if res.Status == Failed {
				t.Errorf("%s: %s fails: %s", c.habit, res.ID, res.Reason)
			}
			if strings.Contains(res.Reason, " without a job (RFC §6.3)") {
				skipped[res.Need]++
			}
		}
		if skipped[toolNeed("demo.echo")] == 0 || c.only != "" && len(skipped) > 1 {
			t.Errorf("%s: %v checks are skipped because a tool makes no job, want those of %q", c.habit, skipped, c.only)
		}
		if !slices.Contains(report.Habits, c.habit) {
			t.Errorf("the habits are %q, want %q", report.Habits, c.habit)
		}
	}
}
