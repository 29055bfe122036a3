//go:build linux

package exec

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

func toStream(c *Config) { c.Stream = StreamStdout }

// newStreamingJob returns a job that may open streams, and their record.
func newStreamingJob(script tooltest.Script) (*fakeJob, *tooltest.Job) {
	record := tooltest.New(script)
	job := newJob()
	job.Host = record.Job().Host()
	return job, record
}

// The standard output of a command is a stream, and its size is the result.
func TestOutputAsStream(t *testing.T) {
	job, record := newStreamingJob(tooltest.Script{})
	out, err := call(t, boundedContext(t), script(t, `echo first; echo aside >&2; cat; seq 20000`, toStream), job, `{"n":1}`)
	if err != nil {
		t.Fatal(err)
	}
	st := record.Record().Streams[0]
	content := string(st.Content())
	if !strings.HasPrefix(content, "first\n{\"n\":1}1\n2\n") || !strings.HasSuffix(content, "\n20000\n") {
		t.Errorf("the stream begins with %.40q and has %d bytes", content, len(content))
	}
	if st.Name != StreamStdout || !st.Ended || st.Err != nil {
		t.Errorf("stream %q: ended %v, %v; want it closed", st.Name, st.Ended, st.Err)
	}
	var result streamResult
	if err := arcp.Unmarshal(out, &result); err != nil || result.Bytes != len(content) || result.StreamID == "" {
		t.Errorf("result = %s, %v, want %d bytes", out, err, len(content))
	}
}

// The runtime ends the stream of a command that fails: the command itself does not close it.
func TestStreamOfFailedCommand(t *testing.T) {
	for name, c := range map[string]struct {
		text, message string
		code          arcp.Code
	}{
		"status": {`echo some; exit 3`, "exit status 3", arcp.CodeUnknown},
		"limit":  {`while :; do echo more; done`, "more than 1000 bytes", arcp.CodeResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			job, record := newStreamingJob(tooltest.Script{})
			limited := func(c *Config) { c.Limits.MaxResponseBytes = 1000 }
			_, err := call(t, boundedContext(t), script(t, c.text, toStream, limited), job, `{}`)
			if err == nil || err.Code != c.code || !strings.Contains(err.Message, c.message) {
				t.Errorf("error %v, want %s", err, c.message)
			}
			if st := record.Record().Streams[0]; st.Ended {
				t.Error("the stream is closed")
			}
		})
	}
}

// A command goes on when a client cancels its stream. Another error of the stream is the command's.
func TestStreamRefusesChunks(t *testing.T) {
	for code, fails := range map[arcp.Code]bool{arcp.CodeCancelled: false, arcp.CodeAborted: true} {
		job, _ := newStreamingJob(tooltest.Script{Emit: func(typ arcp.Type, _ any) error {
			if typ == arcp.StreamChunk {
				return arcp.Errorf(code, "no more")
			}
			return nil
		}})
		out, err := call(t, boundedContext(t), script(t, `seq 50000; echo done >&2`, toStream), job, `{}`)
		if (err != nil) != fails || fails && err.Code != code {
			t.Errorf("%s: %s, %v", code, out, err)
		}
		if got := job.messages(); len(got) != 1 || got[0] != "done" {
			t.Errorf("%s: logged %q, want the command to end by itself", code, got)
		}
	}
}

// What a command wrote before its end is in the stream, even if a write waits for a client until the
// deadline of the read has passed.
func TestSlowStreamIsWhole(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	chunks := 0
	record := tooltest.New(tooltest.Script{Emit: func(typ arcp.Type, _ any) error {
		if typ != arcp.StreamChunk {
			return nil
		}
		if chunks++; chunks > 1 {
			return nil
		}
		_, err := w.WriteString("rest")
		return errors.Join(err, w.Close(), r.SetReadDeadline(time.Now()))
	}})
	st, err := record.Job().OpenStream(tool.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("first, "); err != nil {
		t.Fatal(err)
	}
	s := streamed{stream: st, limit: maxOutput}
	s.read(r)
	if content := string(record.Record().Streams[0].Content()); s.err != nil || content != "first, rest" {
		t.Errorf("%q, %v", content, s.err)
	}
}
