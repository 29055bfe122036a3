package exec

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// maxArguments bounds the arguments in argumentsVariable in bytes. Linux bounds a variable at 128 KiB.
const maxArguments = 64 << 10

// input copies the first stream of a client to the standard input of a command.
type input struct {
	job    tool.Job
	stdin  *os.File
	whole  func() // called at the end of the stream: ends the standard input
	failed func() // called when the stream fails: ends the command

	accepted chan struct{} // closed when copy has a stream
	err      error         // of the stream
}

func newInput(job tool.Job, l *launch) *input {
	return &input{job: job, stdin: l.stdin, whole: l.endInput, failed: l.terminate, accepted: make(chan struct{})}
}

// copy copies the stream until ctx ends. It closes the standard input only at the end of the stream: a command
// whose stream fails is ended before it could take the content as whole.
func (in *input) copy(ctx context.Context) {
	st, err := in.job.AcceptStream(ctx)
	if err != nil {
		in.fail(ctx, err)
		return
	}
	close(in.accepted)
	for {
		chunk, err := st.Next()
		if errors.Is(err, io.EOF) {
			in.whole()
			return
		}
		if err != nil {
			in.fail(ctx, err)
			st.CloseWithError(errNotRead)
			return
		}
		if _, err := in.stdin.Write(content(st.Kind, chunk)); err != nil {
			st.CloseWithError(errNotRead)
			return
		}
	}
}

// errNotRead tells a client that the rest of its stream is dropped.
var errNotRead = arcp.Errorf(arcp.CodeCancelled, "the command has ended, or closed its standard input, before the end of the stream")

// content returns the bytes of a chunk. An object is a line.
func content(kind string, chunk tool.ClientChunk) []byte {
	switch kind {
	case arcp.StreamText, arcp.StreamBinary, arcp.StreamThought:
		return chunk.Data
	}
	return append(chunk.Data, '\n')
}

// fail ends the command with an error of the stream, unless ctx has ended.
func (in *input) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	e, _ := arcp.AsError(err)
	code := e.Code
	if code == arcp.CodeCancelled {
		code = arcp.CodeAborted // the job is not cancelled
	}
	in.err = arcp.Errorf(code, "the stream of the standard input has failed: %s", e.Message)
	in.failed()
}

// refuseOthers ends further streams of clients until ctx ends.
func (in *input) refuseOthers(ctx context.Context) {
	select {
	case <-in.accepted:
	case <-ctx.Done():
		return
	}
	for {
		st, err := in.job.AcceptStream(ctx)
		if err != nil {
			return
		}
		st.CloseWithError(arcp.Errorf(arcp.CodeFailedPrecondition, "the command reads one stream"))
	}
}
