package tool_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

func beginResult(t *testing.T, job *tooltest.Job, o tool.ResultOptions) *tool.Result {
	t.Helper()
	r, err := job.Job().Result(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The chunks of a result are bounded and whole, however it is written, and the last one is for Close.
func TestResultIsCutIntoChunks(t *testing.T) {
	content := []byte(strings.Repeat("añ€😀", 3*tool.MaxResultChunk/10))
	for _, binary := range []bool{false, true} {
		for _, size := range []int{1, 7, tool.MaxResultChunk, len(content)} {
			job := tooltest.New(tooltest.Script{})
			r := beginResult(t, job, tool.ResultOptions{Binary: binary})
			for part := range bytesOf(content, size) {
				if n, err := r.Write(part); err != nil || n != len(part) {
					t.Fatalf("Write = %d, %v", n, err)
				}
			}
			if got := job.Record().Result; got.Closed {
				t.Error("the last chunk comes before Close")
			}
			if err := r.CloseWithSummary("done"); err != nil {
				t.Fatal(err)
			}
			got := job.Record().Result
			if !bytes.Equal(got.Content(), content) || !got.Closed || got.Summary != "done" {
				t.Errorf("binary %t, in parts of %d: %d bytes, closed %t, summary %q", binary, size, len(got.Content()), got.Closed, got.Summary)
			}
			for _, c := range got.Chunks {
				if len(c) > tool.MaxResultChunk || len(c) == 0 || !binary && !utf8.Valid(c) {
					t.Errorf("a chunk of %d bytes", len(c))
				}
			}
		}
	}
}

// bytesOf yields parts of b of size bytes.
func bytesOf(b []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size, len(b))
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

func TestResultFlush(t *testing.T) {
	job := tooltest.New(tooltest.Script{})
	r := beginResult(t, job, tool.ResultOptions{})
	for _, part := range []string{"a\xff", "b\xe2\x82"} {
		if _, err := r.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
		if err := r.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	got := job.Record().Result
	want := []string{"a\uFFFD", "b", "\uFFFD"} // the beginning of a rune waits for its end
	if len(got.Chunks) != len(want) {
		t.Fatalf("chunks %q", got.Chunks)
	}
	for i, c := range got.Chunks {
		if string(c) != want[i] {
			t.Errorf("chunk %d is %q, want %q", i, c, want[i])
		}
	}
	if got.ContentType != "text/plain" {
		t.Errorf("content type %q", got.ContentType)
	}
}

// A result without content has one chunk.
func TestEmptyResult(t *testing.T) {
	job := tooltest.New(tooltest.Script{})
	r := beginResult(t, job, tool.ResultOptions{Binary: true})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := job.Record().Result; len(got.Chunks) != 1 || len(got.Content()) != 0 || got.ContentType != "application/octet-stream" {
		t.Errorf("%+v", got)
	}
}

func TestResultErrors(t *testing.T) {
	job := tooltest.New(tooltest.Script{})
	r := beginResult(t, job, tool.ResultOptions{Binary: true})
	wantCode := func(call string, err error, code arcp.Code) {
		t.Helper()
		if e, _ := arcp.AsError(err); err == nil || e.Code != code {
			t.Errorf("%s: %v, want %s", call, err, code)
		}
	}
	_, err := job.Job().Result(tool.ResultOptions{})
	wantCode("second result", err, arcp.CodeFailedPrecondition)
	_, err = tooltest.New(tooltest.Script{}).Job().Result(tool.ResultOptions{ContentType: strings.Repeat("x", 300)})
	wantCode("content type", err, arcp.CodeInvalidArgument)
	_, err = r.Write(make([]byte, tool.MaxResult+1))
	wantCode("too large", err, arcp.CodeInternal)
	wantCode("summary", r.CloseWithSummary(strings.Repeat("x", 20<<10)), arcp.CodeInvalidArgument)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	_, err = r.Write([]byte("late"))
	wantCode("write after close", err, arcp.CodeFailedPrecondition)
	wantCode("flush after close", r.Flush(), arcp.CodeFailedPrecondition)
	wantCode("second close", r.Close(), arcp.CodeFailedPrecondition)
}
