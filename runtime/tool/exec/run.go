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

// grace is how long a command may take to end when it is asked to: less than the
// runtime waits for a tool. Only tests change it.
var grace = 2 * time.Second

const (
	// pipeGrace is how long the output is read when no process is left that could
	// write it: what is in a pipe is there at once.
	pipeGrace = time.Second

	// releaseTimeout bounds a write about the lease on a directory.
	releaseTimeout = 5 * time.Second

	// leaseTime is how long the directory stays when the job has ended before its
	// command: longer than anything may take to end.
	leaseTime = time.Minute

	// removeGrace is how long a call waits for its directory to be removed: most are
	// gone, and their leases released, before the job ends.
	removeGrace = 250 * time.Millisecond

	// maxRemovals bounds the directories that are removed behind their calls.
	maxRemovals = 16
)

// run is the tool.
func (c *command) run(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := c.place(ctx, job)
	if err != nil {
		return nil, err
	}
	l, err := c.start(marker(job.ID()), p)
	if err != nil {
		c.leave(job.ID(), p)
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the command cannot be started: %s", err)
	}
	stderr := newLines(func(level, message string) error { return job.Log(level, message, nil) })
	out := output{limit: c.limit, full: l.kill}
	var pipes sync.WaitGroup
	pipes.Go(func() { feed(l.stdin, args) })
	pipes.Go(func() { out.read(l.stdout) })
	pipes.Go(func() { stderr.read(l.stderr) })
	defer context.AfterFunc(ctx, func() { c.linger(p) })()
	r, err := l.report(ctx)
	end := time.Now().Add(pipeGrace)
	_ = l.stdin.SetDeadline(time.Now()) // nobody reads it
	_ = l.stdout.SetDeadline(end)       // pipes have deadlines
	_ = l.stderr.SetDeadline(end)       //
	pipes.Wait()
	l.close()
	c.note(job.ID(), &r)
	c.finish(l, job.ID(), p, err)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, arcp.Errorf(arcp.CodeInternal, "the command's reaper was ended")
	case r.Fault != "":
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the command cannot be started: %s", r.Fault)
	}
	return conclude(&r, &out, stderr.tail())
}

// note logs what could not be ended.
func (c *command) note(job arcp.JobID, r *report) {
	if r.Left > 0 {
		c.log.Warn().Str("job_id", string(job)).Int("processes", r.Left).Msg("processes of the command could not be ended")
	}
}

// workDir is the working directory of a command during one call.
type workDir struct {
	dir   string
	lease tool.ResourceLease // on the directory; nil: it is not the call's own
}

// place leases a directory for a call, if the command has no other.
func (c *command) place(ctx context.Context, job tool.Job) (p workDir, err error) {
	if dir := c.order.Dir; dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return p, arcp.Errorf(arcp.CodeUnavailable, "the command cannot be started in its directory: %s", err)
		}
		return workDir{dir: dir}, nil
	}
	p.dir, p.lease, err = job.Resources().Directory(ctx, tool.DirectoryAsk{For: leaseTime, Unlisted: true})
	return p, err
}

// linger keeps the directory of a command whose job may have ended before it: it has
// a moment to end, too.
func (c *command) linger(p workDir) {
	if p.lease == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_, _ = p.lease.Touch(ctx) // it may be released already
}

// removals are the reapers that remove directories behind calls that have their
// results.
var removals = make(chan struct{}, maxRemovals)

// finish ends a call that has reported, or, with err, has not. That what the command
// has made is removed is waited for only a moment, unless others are busy with that
// already.
func (c *command) finish(l *launch, job arcp.JobID, p workDir, err error) {
	work := func() {
		l.end()
		c.leave(job, p)
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

// leave ends the lease on a directory that the reaper has removed. What it could not
// remove, whoever leases directories does when the job has ended.
func (c *command) leave(job arcp.JobID, p workDir) {
	if p.lease == nil {
		return
	}
	_ = os.Remove(p.dir) // the command was not started, or it is gone
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

// feed gives a command its arguments. One that does not read them has them end
// when it ends.
func feed(w *os.File, args arcp.Raw) {
	_, _ = w.Write(args) // it need not read them
	_ = w.Close()
}

// failure is what a client learns of a command that did not do well.
type failure struct {
	ExitStatus *int   `json:"exit_status,omitzero"`
	Signal     string `json:"signal,omitzero"`
	Stderr     string `json:"stderr"`
}

// conclude makes the outcome of a report.
func conclude(r *report, out *output, stderr string) (arcp.Raw, error) {
	details := failure{Stderr: stderr}
	unknown := func(format string, args ...any) error {
		return arcp.Errorf(arcp.CodeUnknown, format, args...).WithDetails(details)
	}
	switch {
	case out.over:
		e := arcp.Errorf(arcp.CodeResourceExhausted, "the output has more than %d bytes, the tool's limit", out.limit).WithDetails(details)
		e.Retryable = false // it would be as long again
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

// boundOf says which bound a signal comes from.
func boundOf(s syscall.Signal) string {
	switch s {
	case syscall.SIGXCPU:
		return ": it took more than limits.cpu_seconds"
	case syscall.SIGXFSZ:
		return ": it wrote a file larger than limits.file_size"
	}
	return ""
}

// maxOutput bounds output where the tool has no limit: a result may not be larger.
const maxOutput = 256 << 20

// output is what a command writes to standard output.
type output struct {
	limit int
	full  func() // there is more than limit
	buf   []byte
	over  bool
}

// outputBlock is what is read at a time at first.
const outputBlock = 4 << 10

// read keeps what fits. It is over when there is more.
func (o *output) read(r io.Reader) {
	for {
		if len(o.buf) == cap(o.buf) {
			o.buf = slices.Grow(o.buf, outputBlock)
		}
		n, err := r.Read(o.buf[len(o.buf):cap(o.buf)])
		o.buf = o.buf[:len(o.buf)+n]
		if len(o.buf) > o.limit {
			o.over, o.buf = true, nil
			o.full()
			return
		}
		if err != nil {
			return
		}
	}
}

// beginBytes of broken output are shown.
const beginBytes = 80

// value returns the output, which must be one JSON value, without the space in it,
// or what is wrong.
func (o *output) value() (arcp.Raw, string) {
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
