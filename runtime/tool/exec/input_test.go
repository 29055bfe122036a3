//go:build linux

package exec

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

func fromStream(c *Config) { c.Stdin = StdinStream }

// inputOf returns a stream with these chunks, which then has the error err; nil is its end.
func inputOf(kind string, err error, chunks ...string) tooltest.ClientStream {
	st := tooltest.ClientStream{StreamOpenPayload: arcp.StreamOpenPayload{Kind: kind}, Err: err}
	for _, c := range chunks {
		st.Chunks = append(st.Chunks, tool.ClientChunk{Data: []byte(c)})
	}
	return st
}

// The standard input of a command is the stream of a client, to its end. Objects become lines.
func TestInputIsAStream(t *testing.T) {
	big := strings.Repeat("0123456789abcde\n", 4<<10)
	for name, c := range map[string]struct {
		stream tooltest.ClientStream
		want   string
	}{
		"binary":  {inputOf(arcp.StreamBinary, nil, "a\x00b", "", "c"), "A\x00BC"},
		"large":   {inputOf(arcp.StreamBinary, nil, big, big, big, big), strings.ToUpper(strings.Repeat(big, 4))},
		"text":    {inputOf(arcp.StreamText, nil, "one ", "two"), "ONE TWO"},
		"thought": {inputOf(arcp.StreamThought, nil, "hm"), "HM"},
		"objects": {inputOf(arcp.StreamEvents, nil, `{"n":1}`, `{"n":2}`), "{\"N\":1}\n{\"N\":2}\n"},
		"empty":   {inputOf(arcp.StreamText, nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			job, record := newStreamingJob(tooltest.Script{Streams: []tooltest.ClientStream{c.stream}})
			if _, err := call(t, boundedContext(t), script(t, `exec tr a-z A-Z`, fromStream, toStream), job, `{}`); err != nil {
				t.Fatal(err)
			}
			if got := string(record.Record().Streams[0].Content()); got != c.want {
				t.Errorf("the command has read %d bytes, beginning with %.40q; want %d, %.40q", len(got), got, len(c.want), c.want)
			}
			if closed := record.Record().Closed; len(closed) > 0 {
				t.Errorf("the stream was not read to its end: %v", closed)
			}
		})
	}
}

// A command whose standard input is a stream has the arguments in a variable. Without limits it takes
// at most maxArguments.
func TestArgumentsOfCommandWithInput(t *testing.T) {
	job, _ := newStreamingJob(tooltest.Script{Streams: []tooltest.ClientStream{inputOf(arcp.StreamText, nil)}})
	t.Setenv("ARCP_ARGUMENTS", "of the server")
	made := script(t, `cat; env | grep ^ARCP_ARGUMENTS= | sed s/ARCP_ARGUMENTS=//`, fromStream, func(c *Config) { c.Env = []string{"ARCP_ARGUMENTS"} })
	out, err := call(t, boundedContext(t), made, job, `{"name":"ü"}`)
	if err != nil || string(out) != `{"name":"ü"}` {
		t.Errorf("result %s, %v", out, err)
	}
	if !made.ReadsStreams || made.Limits.MaxRequestBytes != maxArguments {
		t.Errorf("reads streams: %v, at most %d bytes of arguments", made.ReadsStreams, made.Limits.MaxRequestBytes)
	}
	for _, n := range []int{-1, maxArguments + 1} {
		c := Config{Command: []string{"cat"}, Stdin: StdinStream}
		c.Limits.MaxRequestBytes = n
		if err := Check(&c); err == nil || !strings.Contains(err.Error(), "limits.max_request_bytes") {
			t.Errorf("limit %d: %v", n, err)
		}
	}
	largest := `"` + strings.Repeat("x", maxArguments-2) + `"`
	job, _ = newStreamingJob(tooltest.Script{Streams: []tooltest.ClientStream{inputOf(arcp.StreamText, nil)}})
	out, err = call(t, boundedContext(t), script(t, `cat; printf %s "$ARCP_ARGUMENTS"`, fromStream), job, largest)
	if err != nil || string(out) != largest {
		t.Errorf("result of %d bytes, %v", len(out), err)
	}
}

// A command whose stream fails is ended before it sees the end of its standard input: it must not take a
// part as the whole.
func TestInputFails(t *testing.T) {
	for code, want := range map[arcp.Code]arcp.Code{arcp.CodeDataLoss: arcp.CodeDataLoss, arcp.CodeCancelled: arcp.CodeAborted} {
		failed := inputOf(arcp.StreamText, arcp.Errorf(code, "the disk is gone"), "a part")
		job, _ := newStreamingJob(tooltest.Script{Streams: []tooltest.ClientStream{failed}})
		_, err := call(t, boundedContext(t), script(t, `cat >/dev/null && echo whole >&2`, fromStream), job, `{}`)
		wantCode(t, err, want, "the stream of the standard input has failed: the disk is gone")
		if got := job.messages(); len(got) > 0 {
			t.Errorf("%s: the command has logged %q", code, got)
		}
	}
}

// A host without streams of clients, such as a worker, fails the call.
func TestInputNeedsStreams(t *testing.T) {
	job := newStreamJob(nil)
	job.refused = arcp.Errorf(arcp.CodeFailedPrecondition, "no streams here")
	_, err := call(t, boundedContext(t), script(t, `exec cat`, fromStream), job.fakeJob, `{}`)
	wantCode(t, err, arcp.CodeFailedPrecondition, "no streams here")
}

// endless is a stream of a client without an end. After its chunks it waits for the end of the call.
type endless struct {
	chunks int
	size   int

	mu     sync.Mutex
	taken  int
	closed *arcp.Error
}

func (*endless) Opened() (arcp.StreamID, arcp.StreamOpenPayload) {
	return "str_x", arcp.StreamOpenPayload{Kind: arcp.StreamBinary}
}

func (s *endless) Next(ctx context.Context) (tool.ClientChunk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == s.chunks {
		<-ctx.Done()
		return tool.ClientChunk{}, context.Cause(ctx)
	}
	s.taken++
	return tool.ClientChunk{Data: make([]byte, s.size)}, nil
}

func (s *endless) Close(err *arcp.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = err
}

// streamJob is the host of a job to which clients have opened streams.
type streamJob struct {
	*fakeJob
	streams chan tool.ClientStreamHost
	refused *arcp.Error // by AcceptStream
}

// newStreamJob returns a job with streams. Its fakeJob is passed to call.
func newStreamJob(streams ...tool.ClientStreamHost) *streamJob {
	j := &streamJob{fakeJob: newJob(), streams: make(chan tool.ClientStreamHost, len(streams))}
	j.Host = j
	for _, s := range streams {
		j.streams <- s
	}
	return j
}

func (j *streamJob) AcceptStream(ctx context.Context) (tool.ClientStreamHost, error) {
	if j.refused != nil {
		return nil, j.refused
	}
	select {
	case s := <-j.streams:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// busy takes a while, and reads nothing.
const busy = `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done`

// The end of a command is the end of its job, whatever is left of the stream. The client is told.
func TestCommandEndsBeforeItsInput(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		chunks int
		failed bool
	}{
		"success":        {`head -c 1 >/dev/null; echo 1`, 3, false},
		"failure":        {`exit 3`, 3, true},
		"small input":    {`head -c 1 >/dev/null; echo 1`, 1, false},
		"waiting client": {`echo 1`, 0, false},
		"pipe is full":   {`echo 1`, 100, false},
		"closed input":   {`exec <&-; ` + busy + `; echo 1`, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			st := &endless{chunks: c.chunks, size: 32 << 10}
			job := newStreamJob(st)
			out, err := call(t, boundedContext(t), script(t, c.text, fromStream), job.fakeJob, `{}`)
			if c.failed {
				wantCode(t, err, arcp.CodeUnknown, "exit status 3")
			} else if err != nil || string(out) != "1" {
				t.Errorf("result %s, %v", out, err)
			}
			if st.taken > 0 && (st.closed == nil || st.closed.Code != arcp.CodeCancelled) {
				t.Errorf("the client is told %v", st.closed)
			}
		})
	}
}

// A chunk is taken when the one before is in the pipe: a command that does not read holds no more than its
// pipe.
func TestInputIsNotReadAhead(t *testing.T) {
	st := &endless{chunks: 1000, size: 32 << 10}
	job := newStreamJob(st)
	if _, err := call(t, boundedContext(t), script(t, busy+`; echo 1`, fromStream), job.fakeJob, `{}`); err != nil {
		t.Fatal(err)
	}
	const pipe = 64 << 10
	if most := pipe/st.size + 1; st.taken > most {
		t.Errorf("%d chunks were taken, want at most %d", st.taken, most)
	}
}

// A command reads one stream. Others are refused.
func TestFurtherStreamsAreRefused(t *testing.T) {
	other := &endless{}
	st := &refusing{endless: endless{chunks: 1, size: 1}, other: other, refused: make(chan struct{})}
	job := newStreamJob(st, &notified{other, st.refused})
	out, err := call(t, boundedContext(t), script(t, `wc -c`, fromStream), job.fakeJob, `{}`)
	if err != nil || strings.TrimSpace(string(out)) != "1" {
		t.Errorf("result %s, %v", out, err)
	}
	if other.closed == nil || other.closed.Code != arcp.CodeFailedPrecondition {
		t.Errorf("the other stream ended with %v", other.closed)
	}
}

// refusing is a stream that ends when another stream was closed.
type refusing struct {
	endless
	other   *endless
	refused chan struct{}
}

func (s *refusing) Next(ctx context.Context) (tool.ClientChunk, error) {
	if s.taken < s.chunks {
		return s.endless.Next(ctx)
	}
	<-s.refused
	return tool.ClientChunk{}, io.EOF
}

// notified closes a channel when the stream is closed.
type notified struct {
	*endless
	closedC chan struct{}
}

func (s *notified) Close(err *arcp.Error) {
	s.endless.Close(err)
	close(s.closedC)
}

// A call that is cancelled before a client opens a stream ends, as one does that waits for a chunk.
func TestCancelWhileInputIsAwaited(t *testing.T) {
	for name, streams := range map[string][]tool.ClientStreamHost{"stream": nil, "chunk": {&endless{}}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(boundedContext(t))
			job := newStreamJob(streams...)
			go func() {
				job.waitForMessage(t, "started")
				cancel(arcp.Errorf(arcp.CodeCancelled, "no more"))
			}()
			_, err := call(t, ctx, script(t, `echo started >&2; exec cat`, fromStream), job.fakeJob, `{}`)
			wantCode(t, err, arcp.CodeCancelled, "")
		})
	}
}
