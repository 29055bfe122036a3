package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// streamPipe copies the content of one stream of a job to a writer.
type streamPipe struct {
	name   string
	w      io.Writer
	stream *client.Stream // nil: it has not come
	err    error          // of the stream or of the writer
}

// receive copies the content of an event of a stream. The first stream with the name counts.
func (sp *streamPipe) receive(st *client.Stream, content []byte, err error) {
	if sp.stream == nil && st != nil && st.Name == sp.name && !st.Partial {
		sp.stream = st
	}
	if st == nil || st != sp.stream || sp.err != nil {
		return
	}
	if len(content) > 0 && !printable(st.Kind) && st.Kind != arcp.StreamBinary {
		content = append(content[:len(content):len(content)], '\n')
	}
	if sp.err = err; err == nil {
		_, sp.err = sp.w.Write(content)
	}
}

// failure returns the error of a job that has ended: there was no such stream, or it was not whole.
func (sp *streamPipe) failure() error {
	switch {
	case sp.err != nil:
		return sp.err
	case sp.stream == nil:
		return fmt.Errorf("the job has ended without a stream named %q", sp.name)
	case sp.stream.Err != nil:
		return sp.stream.Err
	case !sp.stream.Ended:
		return fmt.Errorf("the stream %q has no end", sp.name)
	}
	return nil
}

// printable reports whether the content of a stream is text for people.
func printable(kind string) bool {
	return kind == arcp.StreamText || kind == arcp.StreamThought
}

// describeStream returns an event of a stream as one line. content and err are results of Streams.Receive.
func describeStream(t arcp.Type, st *client.Stream, content []byte, err error) string {
	name := cmp.Or(st.Name, string(st.ID)) + ":"
	switch {
	case err != nil:
		return label("stream", name, err)
	case t == arcp.StreamOpen:
		return label("stream", name, st.Kind, st.ContentType)
	case st.Err != nil:
		return label("stream", name, "ended with", st.Err.Code, st.Err.Message)
	case st.Ended:
		return label("stream", name, "closed after", st.Chunks, "chunks")
	case st.Kind == arcp.StreamBinary:
		return label("stream", name, len(content), "bytes")
	}
	return label("stream", name, cmp.Or(strings.TrimSpace(string(content)), "(no text)")) // as of a redacted thought
}

// input is the file, or the standard input, that `arcp invoke --send` copies to a stream of the job.
type input struct {
	name string
	from io.ReadCloser
	done chan error // buffered 1: the result of the copy
}

// openInput opens a file, or standard input; nil: there is no name.
func (a *app) openInput(file string) (*input, error) {
	in := &input{name: file, done: make(chan error, 1)}
	switch file {
	case "":
		return nil, nil
	case "-":
		in.name, in.from = "standard input", io.NopCloser(a.stdin)
		return in, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, usagef("--send: read %s: %w", file, cause(err))
	}
	in.from = f
	return in, nil
}

// send opens a binary stream to the job, and copies the input to it on another goroutine.
func (in *input) send(ctx context.Context, job *client.Job) error {
	w, err := job.OpenStream(ctx, arcp.StreamOpenPayload{Kind: arcp.StreamBinary, Name: "input", ContentType: "application/octet-stream"})
	if err != nil {
		return err
	}
	go func() {
		_, err := io.Copy(w, in.from)
		if err != nil {
			_ = w.CloseWithError(err) // err says more
		} else {
			err = w.Close()
		}
		in.done <- errors.Join(err, in.from.Close())
	}()
	return nil
}

// warn says after the end of the job that the input was not sent to its end.
func (in *input) warn(w io.Writer) {
	err := errors.New("the job has ended")
	select {
	case err = <-in.done:
	default:
	}
	if err != nil {
		fmt.Fprintf(w, "arcp: %s was not sent to its end: %s\n", in.name, readable(err))
	}
}
