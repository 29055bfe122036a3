package conformance

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is a report with one result of each kind.
func sample() *Report {
	return &Report{
		URL:      "ws://127.0.0.1:7777/arcp",
		Runtime:  arcp.RuntimeInfo{Kind: "arcp-go", Version: "1.2.3"},
		Started:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Duration: Millis(1234567 * time.Microsecond),
		Results: []Result{
			{ID: "handshake.accepted", Title: "the first frame answers session.open", Group: "handshake", Dialect: arcp.DialectRFC,
				Section: "RFC §8.3", Level: Must, Status: Passed, Duration: Millis(2500 * time.Microsecond)},
			{ID: "jobs.life", Title: "a job is accepted, started & ended", Group: "jobs", Dialect: arcp.DialectRFC,
				Section: "RFC §6.3", Level: Must, Status: Failed, Duration: Millis(10 * time.Millisecond),
				Reason: "a started job ends: got job.failed 3, want job.completed\nand a second line",
				Rule:   "a started job ends", Sent: "tool.invoke", Got: "job.failed 3, want job.completed",
				Transcript: []Entry{
					{At: 0, Conn: 1, Dir: Noted, Text: "connected"},
					{At: Millis(1500 * time.Microsecond), Conn: 1, Dir: Sent, Text: `{"type":"tool.invoke","payload":{"tool":"<demo>"}}`},
					{At: Millis(2 * time.Millisecond), Conn: 1, Dir: Received, Text: `{"type":"job.failed"}`},
				}},
			{ID: "jobs.metric", Title: "metric events have a unit", Group: "jobs", Dialect: arcp.DialectRFC, Section: "RFC §17.3",
				Level: Should, Status: Skipped, Reason: "the server has no tool demo.spend"},
		},
	}
}

func TestReports(t *testing.T) {
	for name, write := range map[string]func(io.Writer, *Report) error{
		"report.txt": func(w io.Writer, r *Report) error { return WriteText(w, r, TextOptions{}) },
		"report-verbose.txt": func(w io.Writer, r *Report) error {
			return WriteText(w, r, TextOptions{Color: true, Verbose: true})
		},
		"report.json":         WriteJSON,
		"report.xml":          WriteJUnit,
		"report.html":         WriteHTML,
		"report-markdown.txt": WriteMarkdown,
		"report.sarif":        WriteSARIF,
		"report.svg":          WriteBadge,
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(&b, sample()); err != nil {
				t.Fatal(err)
			}
			golden(t, name, b.Bytes())
		})
	}
}

// golden compares got with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update rewrites it):\n%s", path, got)
	}
}

func TestReportKeepsWriteError(t *testing.T) {
	r, w := io.Pipe()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range Formats {
		if err := Write(w, f, sample()); err == nil {
			t.Errorf("%s: a report that cannot be written is an error", f)
		}
	}
	if err := WriteText(w, sample(), TextOptions{}); err == nil {
		t.Error("text: a report that cannot be written is an error")
	}
	if err := Write(io.Discard, "pdf", sample()); err == nil || !strings.Contains(err.Error(), "the formats are [json junit") {
		t.Errorf("an unknown format: error is %v", err)
	}
}
