package tool

import (
	"slices"
	"strings"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of a result in chunks.
const (
	// MaxResult is the number of bytes in the result of a job.
	MaxResult = 256 << 20
	// MaxResultChunk is the number of bytes in a chunk of a result that a tool writes.
	MaxResultChunk = 64 << 10

	maxSummary = 16 << 10 // bytes
)

// ResultOptions describe a result that a tool writes.
type ResultOptions struct {
	Binary      bool   // bytes, which clients get as base64; otherwise UTF-8 text
	ContentType string // media type of the content, at most 256 bytes; empty: text/plain or application/octet-stream
}

// Result begins the result of the job in chunks, for a result that is too large to hold in memory or
// that clients read while it grows. The tool writes the content, calls Close, and returns nil. A job
// whose tool returns a value as well, or without Close, fails with FAILED_PRECONDITION. An attempt has at
// most one result; a later attempt begins its own.
//
// A reader that needs the whole result as one JSON value, such as Job.Call and a client without
// result_chunk, gets a string: the text, or the bytes as base64.
//
// Values of credentials are replaced only within a chunk, and not in bytes.
//
// The error is INVALID_ARGUMENT for options that are not valid, and FAILED_PRECONDITION for a second
// result and for a direct job, which has no events.
func (j Job) Result(o ResultOptions) (*Result, error) {
	switch {
	case len(o.ContentType) > maxStreamName:
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "result: the content type may have at most %d bytes", maxStreamName)
	case o.ContentType != "":
	case o.Binary:
		o.ContentType = "application/octet-stream"
	default:
		o.ContentType = "text/plain"
	}
	host, err := j.host.OpenResult(o)
	if err != nil {
		return nil, err
	}
	return &Result{host: host, binary: o.Binary}, nil
}

// Result is a result that a tool writes in chunks. Many goroutines may use it.
//
// The chunks become durable in the background, in the order of the calls, like the other events of the
// job. A method blocks while the queue of the job's events is full. The error is INTERNAL for a result
// over MaxResult, and FAILED_PRECONDITION after Close.
type Result struct {
	host   ResultHost
	binary bool

	mu      sync.Mutex // one call at a time
	pending []byte     // content that is not in a chunk
	sent    int        // bytes in chunks
	closed  bool
}

// Write appends to the result. It sends chunks of MaxResultChunk bytes and keeps the rest for the next
// call. A text is cut between runes, and each byte that is not UTF-8 is replaced by U+FFFD.
func (r *Result) Write(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(len(r.pending) + len(p)); err != nil {
		return 0, err
	}
	for len(p) > 0 {
		part := p[:min(len(p), 2*MaxResultChunk-len(r.pending))]
		r.pending = append(r.pending, part...)
		p, n = p[len(part):], n+len(part)
		for len(r.pending) > MaxResultChunk { // the last chunk is for Close
			if err := r.send(); err != nil {
				return n - min(n, len(r.pending)), err
			}
		}
	}
	return n, nil
}

// admit returns the error of a call after which the result has size more bytes than were sent.
func (r *Result) admit(size int) error {
	switch {
	case r.closed:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "result: it is closed")
	case r.sent+size > MaxResult:
		e := arcp.Errorf(arcp.CodeInternal, "result: it has more than %d bytes", MaxResult)
		e.Retryable = false
		return e
	}
	return nil
}

// send sends a chunk of the pending content. It sends nothing if that is only the beginning of a rune.
func (r *Result) send() error {
	content, read := r.next()
	if read == 0 {
		return nil
	}
	if err := r.admit(len(content)); err != nil {
		return err
	}
	if err := r.host.Chunk(content); err != nil {
		return err
	}
	r.sent += len(content)
	r.pending = slices.Delete(r.pending, 0, read)
	return nil
}

// next returns the content of the next chunk, and the number of pending bytes that it stands for.
func (r *Result) next() (content []byte, read int) {
	if r.binary {
		read = min(len(r.pending), MaxResultChunk)
		return r.pending[:read], read
	}
	text, read := nextText(r.pending)
	return []byte(text), read
}

// Flush sends the content that was written so far, so that clients get it before there is more.
func (r *Result) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(0); err != nil {
		return err
	}
	for {
		before := len(r.pending)
		if err := r.send(); err != nil {
			return err
		}
		if len(r.pending) == 0 || len(r.pending) == before {
			return nil
		}
	}
}

// Close ends the result.
func (r *Result) Close() error { return r.CloseWithSummary("") }

// CloseWithSummary ends the result. summary is for people, and at most 16 KiB; clients get it with the end
// of the job.
func (r *Result) CloseWithSummary(summary string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(summary) > maxSummary {
		return arcp.Errorf(arcp.CodeInvalidArgument, "result: the summary may have at most %d bytes", maxSummary)
	}
	if err := r.admit(0); err != nil {
		return err
	}
	if !r.binary {
		r.pending = []byte(strings.ToValidUTF8(string(r.pending), "\uFFFD"))
	}
	for len(r.pending) > MaxResultChunk {
		if err := r.send(); err != nil {
			return err
		}
	}
	if err := r.admit(len(r.pending)); err != nil {
		return err
	}
	if err := r.host.End(r.pending, strings.ToValidUTF8(summary, "\uFFFD")); err != nil {
		return err
	}
	r.pending, r.closed = nil, true
	return nil
}
