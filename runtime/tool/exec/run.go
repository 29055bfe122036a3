package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// grace is the time from SIGTERM to SIGKILL: less than the runtime waits for a tool. Only tests change
// it.
var grace = 2 * time.Second

const (
	// pipeGrace bounds reading the rest of the output when no process is left that could write.
	pipeGrace = time.Second

	// releaseTimeout bounds a change of the lease on a directory.
	releaseTimeout = 5 * time.Second

	// leaseTime is how long the directory stays when the job ends before its command: longer than
	// the processes may take to end.
	leaseTime = time.Minute

	// removeGrace is how long a call waits for the removal of its directory: most are removed, and
	// their leases released, before the job ends.
	removeGrace = 250 * time.Millisecond

	// maxRemovals bounds the directories that are removed after the end of their calls.
	maxRemovals = 16
)

// run runs the command for one call of its tool.
func (c *command) run(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := c.workDir(ctx, job)
	if err != nil {
		return nil, err
	}
	l, err := c.start(marker(job.ID()), p)
	if err != nil {
		c.releaseDir(job.ID(), p)
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the command cannot be started: %s", err)
	}
	stderr := newLines(func(level, message string) error { return job.Log(level, message, nil) })
	out := output{limit: c.limit, full: l.kill}
	var pipes sync.WaitGroup
	pipes.Go(func() { feed(l.stdin, args) })
	pipes.Go(func() { out.read(l.stdout) })
	pipes.Go(func() { stderr.read(l.stderr) })
	defer context.AfterFunc(ctx, func() { c.extendLease(p) })()
	r, err := l.report(ctx)
	end := time.Now().Add(pipeGrace)
	_ = l.stdin.SetDeadline(time.Now()) // no process reads it
	_ = l.stdout.SetDeadline(end)       // pipes have deadlines
	_ = l.stderr.SetDeadline(end)       // likewise
	pipes.Wait()
	l.close()
	c.logSurvivors(job.ID(), &r)
	c.finish(l, job.ID(), p, err)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, arcp.Errorf(arcp.CodeInternal, "the command's reaper was ended")
	case r.Fault != "":
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the command cannot be started: %s", r.Fault)
	}
	return outcome(&r, &out, stderr.tail())
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
	lease tool.ResourceLease // on the directory; nil: Config.Dir is used
}

// workDir returns the directory of the configuration or, if it has none, a new leased one.
func (c *command) workDir(ctx context.Context, job tool.Job) (p workDir, err error) {
	if dir := c.order.Dir; dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return p, arcp.Errorf(arcp.CodeUnavailable, "the command cannot be started in its directory: %s", err)
		}
		return workDir{dir: dir}, nil
	}
	p.dir, p.lease, err = job.Resources().Directory(ctx, tool.DirectoryAsk{For: leaseTime, Unlisted: true})
	return p, err
}

// extendLease extends the lease on the directory of a command whose job may end before the command
// does.
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

// finish waits for the end of the reaper and releases the directory. err means that the reaper has not
// reported. After a report it waits at most removeGrace, unless maxRemovals are in progress.
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

// releaseDir releases the lease on a directory that the reaper has removed. A directory that is still
// there is removed when its lease ends, after the job.
func (c *command) releaseDir(job arcp.JobID, p workDir) {
	if p.lease == nil {
		return
	}
	_ = os.Remove(p.dir) // the command was not started, or the directory is removed already
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

// start starts the command for one call.
func (c *command) start(mark string, p workDir) (*launch, error) {
	o := c.order
	o.GraceMS = int(grace / time.Millisecond)
	o.Dir, o.Scratch = p.dir, p.lease != nil
	return o.start(mark)
}

// feed writes the arguments to the standard input of a command, and closes it. The command may end
// without reading them.
func feed(w *os.File, args arcp.Raw) {
	_, _ = w.Write(args) // the command need not read them
	_ = w.Close()
}

// failure is the details of the error of a command.
type failure struct {
	ExitStatus *int   `json:"exit_status,omitzero"`
	Signal     string `json:"signal,omitzero"`
	Stderr     string `json:"stderr"`
}

// outcome returns the result of a command, or its error.
func outcome(r *report, out *output, stderr string) (arcp.Raw, error) {
	details := failure{Stderr: stderr}
	unknown := func(format string, args ...any) error {
		return arcp.Errorf(arcp.CodeUnknown, format, args...).WithDetails(details)
	}
	switch {
	case out.exceeded:
		e := arcp.Errorf(arcp.CodeResourceExhausted, "the output has more than %d bytes, the tool's limit", out.limit).WithDetails(details)
		e.Retryable = false // the next output would be as long
		return nil, e
	case r.Signal != 0:
		details.Signal = unix.SignalName(syscall.Signal(r.Signal))
		return nil, unknown("the command was ended by %s%s", details.Signal, boundOf(syscall.Signal(r.Signal)))
	case r.Status != 0:
		details.ExitStatus = &r.Status
		return nil, unknown("the command ended with exit status %d", r.Status)
	}
	value, fault := out.value()
	if fault != "" {
		details.ExitStatus = &r.Status
		return nil, unknown("%s", fault)
	}
	return value, nil
}

// boundOf returns the bound that a signal stands for, as the end of an error message.
func boundOf(s syscall.Signal) string {
	switch s {
	case syscall.SIGXCPU:
		return ": it took more than limits.cpu_seconds"
	case syscall.SIGXFSZ:
		return ": it wrote a file larger than limits.file_size"
	}
	return ""
}

// maxOutput bounds the output of a tool without a limit: the maximum of a result.
const maxOutput = 256 << 20

// output collects the standard output of a command.
type output struct {
	limit    int
	full     func() // called when there is more than limit
	buf      []byte
	exceeded bool
}

// outputBlock is the initial size of the buffer.
const outputBlock = 4 << 10

// read reads until the end of r, or until the limit is exceeded.
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

// beginBytes is how much of an invalid output is in its error.
const beginBytes = 80

// value returns the output as compact JSON, or why it is not one JSON value.
func (o *output) value() (value arcp.Raw, fault string) {
	v := arcp.Raw(o.buf)
	err := v.Compact()
	switch {
	case err == nil && v.IsValid():
		return v, ""
	case len(v) == 0 || len(trimSpace(v)) == 0:
		return nil, "the command wrote nothing to standard output: want one JSON value"
	}
	return nil, fmt.Sprintf("the command's standard output is not one JSON value: it begins with %.*q", beginBytes, v[:min(len(v), beginBytes)])
}
