package conformance

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/proxy"
	"github.com/arcpd/arcpd/internal/race"
	"github.com/arcpd/arcpd/transport"
)

// direct changes the frames of a connection to a runtime into those of a server that runs tools without jobs
// (RFC §6.3): tool.result or tool.error is the only answer to tool.invoke.
type direct struct {
	transport.Conn
	invoked sync.Map // ids of tool.invoke
}

// ends are the types of the end of a job, and what a server without jobs sends instead.
var ends = map[arcp.Type]arcp.Type{arcp.JobCompleted: arcp.ToolResult, arcp.JobFailed: arcp.ToolError, arcp.JobCancelled: arcp.ToolError}

func (d *direct) Write(frame []byte) error {
	var m struct {
		Type arcp.Type `json:"type"`
		ID   string    `json:"id"`
	}
	if json.Unmarshal(frame, &m) == nil && m.Type == arcp.ToolInvoke {
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

// A server that runs tools without jobs fails no check of jobs: they are skipped, and say why.
func TestServerWithoutJobs(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("runs all conformance checks")
	}
	target := ownTarget(t)
	target.plant = func(conn transport.Conn) transport.Conn { return &direct{Conn: conn} }
	skipped := 0
	for _, res := range results(t, target) {
		if res.Status == Failed {
			t.Errorf("%s fails: %s", res.ID, res.Reason)
		}
		if strings.Contains(res.Reason, "runs demo.echo without a job (RFC §6.3)") {
			skipped++
		}
	}
	if skipped == 0 {
		t.Error("no check is skipped because the server makes no jobs")
	}
}
