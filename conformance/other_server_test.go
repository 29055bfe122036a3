package conformance

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/proxy"
	"github.com/arcpd/arcpd/internal/race"
	"github.com/arcpd/arcpd/transport"
)

// other changes the frames of a runtime into those of another server: it obeys the documents, and no rule
// that only SPEC.md has. Its numbers begin at offset + 1, and its agents have versions of its own.
type other struct {
	transport.Conn
	welcomed bool // the session is open
}

const offset = 6

// versions are the versions of the runtime's agents and those of the other server.
var versions = [][2]string{{"1.0.0", "7.1"}, {"0.9.0", "7.0"}}

func (o *other) Write(frame []byte) error { return o.Conn.Write(o.change(frame, -offset, 1, 0)) }

func (o *other) Read() ([]byte, error) {
	frame, err := o.Conn.Read()
	if err != nil || o.Binary() {
		return frame, err
	}
	return o.change(frame, offset, 0, 1), nil
}

// WriteBinary implements proxy.BinaryWriter.
func (o *other) WriteBinary(data []byte) error { return o.Conn.(proxy.BinaryWriter).WriteBinary(data) }

// Binary implements proxy.BinaryReader.
func (o *other) Binary() bool {
	r, ok := o.Conn.(proxy.BinaryReader)
	return ok && r.Binary()
}

func (o *other) change(frame []byte, shift int64, from, to int) []byte {
	var env map[string]any
	dec := json.NewDecoder(bytes.NewReader(frame))
	dec.UseNumber()
	if dec.Decode(&env) != nil || dec.More() {
		return frame
	}
	switch {
	case shift > 0 && env["type"] == "session.welcome":
		o.welcomed = true
	case !o.welcomed && env["type"] == "session.error": // the draft names no type for a hello that is refused
		env["type"] = "job.error"
	}
	changed, _ := json.Marshal(alter(env, "", shift, from, to)) // it was decoded
	return changed
}

// alter shifts the numbers of events, renames versions, and leaves out what the documents do not demand.
func alter(v any, member string, shift int64, from, to int) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			v[name] = alter(value, name, shift, from, to)
		}
		if v["code"] != nil && v["message"] != nil && shift > 0 {
			v["message"] = "it did not work"
		}
		for _, name := range []string{"accepted_at", "reply_to", "resume_window_sec", "completed_at", "submitted_at", "credentials", "replayed_from"} {
			if shift > 0 {
				delete(v, name)
			}
		}
	case []any:
		for i := range v {
			v[i] = alter(v[i], member, shift, from, to)
		}
	case json.Number:
		if seq, err := v.Int64(); err == nil && strings.HasSuffix(member, "_seq") && member != "chunk_seq" {
			return max(seq+shift, 0)
		}
	case string:
		for _, pair := range versions {
			if slices.Contains([]string{"versions", "default", "agent", "tool"}, member) {
				v = strings.Replace(v, pair[from], pair[to], 1)
			}
		}
		return v
	}
	return v
}

// A server that obeys the documents, and no rule that only SPEC.md has, passes each check of both.
func TestOtherServer(t *testing.T) {
	if testing.Short() {
		t.Skip("runs all conformance checks twice: left out with -short")
	}
	dialects := []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft}
	if race.Enabled {
		dialects = dialects[1:] // TestBareServer runs the checks of the RFC dialect
	}
	for _, dialect := range dialects {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			target := ownTarget(t)
			target.Dialect = dialect
			target.plant = func(conn transport.Conn) transport.Conn { return &other{Conn: conn} }
			for _, res := range results(t, target) {
				if res.Status == Failed {
					t.Errorf("%s fails: %s", res.ID, res.Reason)
				}
			}
		})
	}
}
