package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// grace is the time from SIGTERM to SIGKILL. It is shorter than the deadline of a cancel. Only tests change
// it.
var grace = 2 * time.Second

const (
	// pipeGrace bounds the read of the remaining output after the end of all processes.
	pipeGrace = time.Second

	// releaseTimeout bounds a change of the lease on a directory.
	releaseTimeout = 5 * time.Second

	// leaseTime is the duration of the lease on the directory after the end of the job. The
	// processes end before.
	leaseTime = time.Minute

	// removeGrace bounds the wait of a call for the removal of its directory. Most directories
	// are removed within it.
	removeGrace = 250 * time.Millisecond

	// traceVariable is the environment variable with the W3C trace context, by the convention of
	// OpenTelemetry.
	traceVariable = "TRACEPARENT="

	// argumentsVariable is the environment variable with the arguments, if the standard input is a
	// stream.
	argumentsVariable = "ARCP_ARGUMENTS="

	// maxRemovals bounds the directories that are removed after the end of their calls.
	maxRemovals = 16
)

// run runs the command for one call of its tool.
func (c *command) run(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var stream *tool.Stream
	if c.stream {
		var err error
		if stream, err = job.OpenStream(tool.StreamOptions{Name: StreamStdout}); err != nil {
			return nil, err
		}
	}
	p, err := c.workDir(ctx, job)
	if err != nil {
		return nil, err
	}
	l, err := c.start(job, p, args)
	if err != nil {
		c.releaseDir(job.ID(), p)
		return nil, loggable(arcp.CodeUnavailable, "the command cannot be started: %s", err)
	}
	stderr := newLines(func(level, message string) error { return job.Log(level, message, nil) })
	out := output{limit: c.limit, full: l.kill, text: c.text}
	streamed := streamed{stream: stream, limit: c.limit, full: l.kill}
	in := newInput(job, l)
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	var pipes sync.WaitGroup
	switch {
	case c.input:
		pipes.Go(func() { in.copy(reading) })
		pipes.Go(func() { in.refuseOthers(reading) })
	default:
		pipes.Go(func() { l.writeInput(args) })
	}
	if stream != nil {
		pipes.Go(func() { streamed.read(l.stdout) })
	} else {
		pipes.Go(func() { out.read(l.stdout) })
	}
	pipes.Go(func() { stderr.read(l.stderr) })
	defer context.AfterFunc(ctx, func() { c.extendLease(p) })()
	r, err := l.report(ctx)
	stopReading()
	expire(l.stdin, 0) // all readers have ended
	expire(l.stdout, pipeGrace)
	expire(l.stderr, pipeGrace)
	pipes.Wait()
	c.logSurvivors(job.ID(), &r)
	c.finish(l, job.ID(), p, err)
	l.close() // all processes have ended, also if the reaper was killed: none sees an end of its input
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, loggable(arcp.CodeInternal, "the command's reaper was ended")
	case r.Fault != "":
		return nil, loggable(arcp.CodeUnavailable, "the command cannot be started: %s", r.Fault)
	case in.err != nil:
		return nil, in.err
	}
	if stream == nil {
		return outcome(&r, out.exceeded, c.limit, stderr.tail(), out.value)
	}
	return outcome(&r, streamed.exceeded, c.limit, stderr.tail(), streamed.value)
}

// logSurvivors logs the processes that could not be killed.
func (c *command) logSurvivors(job arcp.JobID, r *report) {
	if r.Left > 0 {
		c.log.Warn().Str("job_id", string(job)).Int("processes", r.Left).Msg("processes of the command could not be ended")
	}
}

// workDir is the working directory of a command during one call.
type workDir struct {
	dir   string
	lease tool.ResourceLease // on the directory; nil: the directory is Config.Dir
}

// workDir returns Config.Dir or, if that is empty, a new leased directory.
func (c *command) workDir(ctx context.Context, job tool.Job) (p workDir, err error) {
	if dir := c.order.Dir; dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return p, loggable(arcp.CodeUnavailable, "the command cannot be started in its directory: %s", err)
		}
		return workDir{dir: dir}, nil
	}
	p.dir, p.lease, err = job.Resources().Directory(ctx, tool.DirectoryRequest{For: leaseTime, Unlisted: true})
	return p, err
}

// extendLease extends the lease on the directory of a command, because the job may end before the command.
func (c *command) extendLease(p workDir) {
	if p.lease == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_, _ = p.lease.Touch(ctx) // the lease may be released already
}

// removals counts the directories that are removed after the end of their calls.
var removals = make(chan struct{}, maxRemovals)

// finish waits for the end of the reaper and releases the directory. err is the error of launch.report. After a
// report finish waits at most removeGrace, unless maxRemovals are in progress.
func (c *command) finish(l *launch, job arcp.JobID, p workDir, err error) {
	work := func() {
		l.end()
		c.releaseDir(job, p)
	}
	if err == nil && p.lease != nil {
		select {
		case removals <- struct{}{}:
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { <-removals }()
				work()
			}()
			late := time.NewTimer(removeGrace)
			defer late.Stop()
			select {
			case <-done:
			case <-late.C:
			}
			return
		default:
		}
	}
	work()
}

// releaseDir releases the lease on a directory that the reaper has removed. If the directory still exists, the end
// of its lease removes it.
func (c *command) releaseDir(job arcp.JobID, p workDir) {
	if p.lease == nil {
		return
	}
	_ = os.Remove(p.dir) // removes the empty directory of a command that was not started
	if _, err := os.Lstat(p.dir); !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn().Str("job_id", string(job)).Str("lease_id", string(p.lease.ID())).Msg("the directory of the command is not removed yet: its lease ends soon after the job")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := p.lease.Release(ctx); err != nil {
		c.log.Warn().Err(err).Str("job_id", string(job)).Str("lease_id", string(p.lease.ID())).Msg("the lease on the command's directory is not released: it ends soon after the job")
	}
}

// start starts the command for one call, with the trace context of the job in its environment.
func (c *command) start(job tool.Job, p workDir, args arcp.Raw) (*launch, error) {
	o := c.order
	if parent := job.Traceparent(); parent != "" {
		o.Env = withVariable(o.Env, traceVariable+parent)
	}
	if c.input {
		o.Env = withVariable(o.Env, argumentsVariable+string(args))
	}
	o.GraceMS = int(grace / time.Millisecond)
	o.Dir, o.Scratch = p.dir, p.lease != nil
	o.HoldInput = true
	return c.starter(o, marker(job.ID()))
}

// failure is the details of the error of a command.
type failure struct {
	ExitStatus *int   `json:"exit_status,omitzero"`
	Signal     string `json:"signal,omitzero"`
	Stderr     string `json:"stderr"`
}

// loggable returns an error of the runner, which repeats neither arguments nor output.
func loggable(code arcp.Code, format string, args ...any) error {
	return &tool.LoggableError{Err: arcp.Errorf(code, format, args...)}
}

// outcome returns the result of a command, or its error. value returns the result of a command that has
// succeeded.
func outcome(r *report, exceeded bool, limit int, stderr string, value func() (arcp.Raw, error)) (arcp.Raw, error) {
	details := failure{Stderr: stderr}
	unknown := func(format string, args ...any) *arcp.Error {
		return arcp.Errorf(arcp.CodeUnknown, format, args...).WithDetails(details)
	}
	switch {
	case exceeded:
		e := arcp.Errorf(arcp.CodeResourceExhausted, "the output has more than %d bytes, the tool's limit (limits.max_response_bytes)", limit).WithDetails(details)
		e.Retryable = false // a repeated call has the same output
		return nil, &tool.LoggableError{Err: e}
	case r.Signal != 0:
		details.Signal = signalName(r.Signal)
		return nil, &tool.LoggableError{Err: unknown("the command was ended by %s%s", details.Signal, boundText(r.Signal))}
	case r.Status != 0:
		details.ExitStatus = &r.Status
		return nil, &tool.LoggableError{Err: unknown("the command ended with exit status %d", r.Status)}
	}
	v, err := value()
	if fault, ok := errors.AsType[*outputFault](err); ok {
		details.ExitStatus = &r.Status
		return nil, &tool.LoggableError{Err: unknown("%s", fault.Error()), Log: fault.reason}
	}
	return v, err
}

// outputFault is the reason why the output of a command is not a result.
type outputFault struct {
	reason string // does not repeat the output
	quote  string // the wrong part of the output; empty: there is none
	advice string
}

func (f *outputFault) Error() string {
	if f.quote == "" {
		return f.reason + ": " + f.advice
	}
	return f.reason + ": " + f.quote + "; " + f.advice
}

// maxOutput bounds the output of a tool without MaxResponseBytes: the maximum of a result.
const maxOutput = 256 << 20

// output collects the standard output of a command.
type output struct {
	limit    int
	full     func() // called when the output exceeds limit
	text     bool   // the output is a text, not JSON
	buf      []byte
	exceeded bool
}

// outputBlock is the initial size of the buffer in bytes.
const outputBlock = 4 << 10

// read reads r to its end, or until the output exceeds the limit.
func (o *output) read(r io.Reader) {
	for {
		if len(o.buf) == cap(o.buf) {
			o.buf = slices.Grow(o.buf, outputBlock)
		}
		n, err := r.Read(o.buf[len(o.buf):cap(o.buf)])
		o.buf = o.buf[:len(o.buf)+n]
		if len(o.buf) > o.limit {
			o.exceeded, o.buf = true, nil
			o.full()
			return
		}
		if err != nil {
			return
		}
	}
}

// beginBytes bounds the start of an invalid output in its error, in bytes.
const beginBytes = 80

// value returns the output as compact JSON. The error is an *outputFault if the output is not one JSON value, or not a
// text.
func (o *output) value() (arcp.Raw, error) {
	if o.text {
		return o.string()
	}
	v := arcp.Raw(o.buf)
	err := v.Compact()
	switch {
	case err == nil && v.IsValid():
		return v, nil
	case len(v) == 0 || len(trimSpace(v)) == 0:
		return nil, &outputFault{reason: "the command wrote nothing to standard output",
			advice: "want one JSON value; for a command that prints text or nothing set output: text"}
	}
	return nil, &outputFault{reason: "the command's standard output is not one JSON value",
		quote:  fmt.Sprintf("it begins with %.*q", beginBytes, v[:min(len(v), beginBytes)]),
		advice: "for a command that prints text set output: text"}
}

// string returns a text output as a JSON string, without one line break at the end.
func (o *output) string() (arcp.Raw, error) {
	for i := 0; i < len(o.buf); {
		r, n := utf8.DecodeRune(o.buf[i:])
		if r == utf8.RuneError && n <= 1 {
			return nil, &outputFault{reason: "the command's standard output is not UTF-8",
				quote:  fmt.Sprintf("byte %d is 0x%02X", i, o.buf[i]),
				advice: "print UTF-8, or set stream: stdout, which replaces such bytes"}
		}
		i += n
	}
	text, found := bytes.CutSuffix(o.buf, []byte("\n"))
	if found {
		text = bytes.TrimSuffix(text, []byte("\r"))
	}
	return arcp.AppendString(nil, string(text)), nil
}
