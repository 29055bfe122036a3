//go:build linux

package exec

import (
	"bufio"
	"context"
	"os"
	osexec "os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// until returns a context that is cancelled when the script prints "ready".
func until(t *testing.T, job *fakeJob) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(boundedContext(t))
	go func() {
		job.waitForMessage(t, "ready")
		cancel(arcp.Errorf(arcp.CodeCancelled, "enough"))
	}()
	return ctx
}

// A command that resists its end is killed when its call is cancelled. call fails the test if
// one of its processes is left.
func TestCancelKillsAllProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	for name, text := range map[string]string{
		"waits":                     `echo ready >&2; sleep 1000`,
		"forks":                     `sleep 1000 & sleep 1000 & (sleep 1000 & sleep 1000) & echo ready >&2; wait`,
		"ignores signals":           `trap '' TERM INT HUP; (trap '' TERM; sleep 1000) & echo ready >&2; while :; do sleep 1000; done`,
		"forks with a new session":  `setsid sh -c 'setsid sleep 1000 & sleep 1000' & echo ready >&2; wait`,
		"daemon, signals ignored":   `(setsid sh -c 'trap "" TERM HUP; echo ready >&2; while :; do sleep 1000; done' &) ; sleep 1000`,
		"daemon without its mark":   `(env -i setsid /bin/sh "$0.daemon" &); sleep 1000`,
		"never reads":               `exec 0<&-; echo ready >&2; sleep 1000`,
		"closes its output":         `exec 1>&-; echo ready >&2; sleep 1000`,
		"closes all":                `echo ready >&2; exec 0<&- 1>&- 2>&-; sleep 1000`,
		"stops itself":              `echo ready >&2; kill -STOP $$`,
		"writes errors forever":     `echo ready >&2; while :; do echo "another line of errors"; done >&2`,
		"writes a line forever":     `echo ready >&2; cat /dev/zero >&2`,
		"prints forever, but slow":  `echo ready >&2; while :; do printf 1; sleep 0.01; done`,
		"has another tool's output": `echo ready >&2; sleep 1000 | cat | cat`,
	} {
		t.Run(name, func(t *testing.T) {
			made := script(t, text, func(c *Config) {
				daemon := `trap "" TERM HUP; echo ready >&2; while :; do sleep 1000; done`
				if err := os.WriteFile(c.Command[0]+".daemon", []byte(daemon), 0o700); err != nil {
					t.Fatal(err)
				}
			})
			job := newJob()
			_, err := call(t, until(t, job), made, job, `{}`)
			wantCode(t, err, arcp.CodeCancelled, "enough")
		})
	}
}

// Processes that a command leaves behind when it exits are killed, also if they hold its
// output open. The call returns the result of the command.
func TestExitKillsLeftoverProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	for name, text := range map[string]string{
		"background":            `sleep 1000 & echo 1`,
		"daemon with the pipes": `setsid sh -c 'trap "" TERM; sleep 1000' & echo 1`,
		"daemon, twice forked":  `(setsid sh -c '(sleep 1000 &) ; sleep 1000' &) ; echo 1`,
		"stopped":               `sh -c 'kill -STOP $$' & echo 1`,
		"chain of children":     `sh "$0.chain" & echo 1`,
	} {
		t.Run(name, func(t *testing.T) {
			made := script(t, text, func(c *Config) {
				if err := os.WriteFile(c.Command[0]+".chain", []byte(`sh "$0" &`), 0o700); err != nil {
					t.Fatal(err)
				}
			})
			out, err := call(t, boundedContext(t), made, newJob(), `{}`)
			if err != nil || string(out) != "1" {
				t.Errorf("result = %s, %v", out, err)
			}
		})
	}
}

// withLongGrace raises the grace period, so that commands can end by themselves on a busy
// machine.
func withLongGrace(t *testing.T) {
	t.Helper()
	before := grace
	grace = time.Minute
	t.Cleanup(func() { grace = before })
}

// A command that ends on SIGTERM is not killed, and may clean up.
func TestCancelSendsSIGTERMFirst(t *testing.T) {
	withLongGrace(t)
	job := newJob()
	made := script(t, `trap 'echo clearing up >&2; exit 0' TERM; echo ready >&2; while :; do sleep 0.05; done`)
	_, err := call(t, until(t, job), made, job, `{}`)
	wantCode(t, err, arcp.CodeCancelled, "enough")
	if got := strings.Join(job.messages(), ", "); !strings.HasSuffix(got, "clearing up") {
		t.Errorf("logged %q, want it to have had the time to clear up", got)
	}
}

func TestOutOfTime(t *testing.T) {
	job := newJob()
	ctx, cancel := context.WithCancelCause(boundedContext(t))
	go func() {
		job.waitForMessage(t, "ready")
		cancel(arcp.Errorf(arcp.CodeDeadlineExceeded, "too late"))
	}()
	_, err := call(t, ctx, script(t, `echo ready >&2; sleep 1000`), job, `{}`)
	wantCode(t, err, arcp.CodeDeadlineExceeded, "too late")
}

// An output of a gigabyte is neither buffered nor read to its end.
func TestLargeOutputIsNotBuffered(t *testing.T) {
	made := script(t, `head -c 1000000000 /dev/zero; echo done >&2`)
	var before, after runtime.MemStats
	measured, err := tool.NewRaw(made.Capability, func(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
		runtime.ReadMemStats(&before)
		defer runtime.ReadMemStats(&after) // the search for leftover processes allocates, too
		out, err := made.Run(ctx, job, args)
		if err != nil {
			return out, err
		}
		return out, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	job := newJob()
	_, e := call(t, boundedContext(t), measured, job, `{}`)
	wantCode(t, e, arcp.CodeResourceExhausted, "more than 1048576 bytes")
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("%d bytes were allocated", took)
	}
	if got := job.messages(); len(got) > 0 {
		t.Errorf("log = %q, want none: the command is stopped before its end", got)
	}
}

// Arguments that are not read do not hold the call up.
func TestUnreadArgumentsDoNotBlock(t *testing.T) {
	args := `"` + strings.Repeat("x", 1<<20-2) + `"`
	for name, text := range map[string]string{
		"ends":         `echo 1`,
		"closes first": `exec 0<&-; echo 1`,
		"leaves them":  `sleep 1000 & echo 1`,
	} {
		t.Run(name, func(t *testing.T) {
			out, err := call(t, boundedContext(t), script(t, text), newJob(), args)
			if err != nil || string(out) != "1" {
				t.Errorf("result = %s, %v", out, err)
			}
		})
	}
}

func TestStandardErrorBecomesBoundedLogs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	t.Run("a huge line", func(t *testing.T) {
		job := newJob()
		_, err := call(t, boundedContext(t), script(t, `head -c 10000000 /dev/zero | tr '\0' x >&2; echo >&2; echo next >&2; echo 1`), job, `{}`)
		got := job.messages()
		if err != nil || len(got) != 2 || got[0] != strings.Repeat("x", maxLine)+"…" || got[1] != "next" {
			t.Errorf("%d events, %v; want the line cut and the next one", len(got), err)
		}
	})
	t.Run("many lines", func(t *testing.T) {
		job := newJob()
		_, err := call(t, boundedContext(t), script(t, `yes line | head -n 200000 >&2; echo 1`), job, `{}`)
		got := job.messages()
		if last := got[len(got)-1]; err != nil || len(got) > 20_000 || !strings.Contains(last, "lines of standard error were left out") {
			t.Errorf("%d events, %v, the last one is %q", len(got), err, last)
		}
	})
	t.Run("not text", func(t *testing.T) {
		job := newJob()
		_, err := call(t, boundedContext(t), script(t, `printf 'a\377b\r\n\nlast' >&2; exit 1`), job, `{}`)
		if got := strings.Join(job.messages(), "|"); got != "a\uFFFDb|last" {
			t.Errorf("logged %q", got)
		}
		wantCode(t, err, arcp.CodeUnknown, "exit status 1")
		if want := `{"exit_status":1,"stderr":"a` + "\uFFFD" + `b\r\n\nlast"}`; err != nil && string(err.Details) != want {
			t.Errorf("details = %s, want %s", err.Details, want)
		}
	})
	t.Run("the last of it", func(t *testing.T) {
		_, err := call(t, boundedContext(t), script(t, `yes 1234567 | head -n 10000 >&2; printf the-end >&2; exit 1`), newJob(), `{}`)
		var f failure
		if err == nil || arcp.Unmarshal(err.Details, &f) != nil || len(f.Stderr) != tailBytes || !strings.HasSuffix(f.Stderr, "\nthe-end") {
			t.Errorf("error = %v, details %s", err, err.Details)
		}
	})
	t.Run("after the job", func(t *testing.T) {
		job := newJob()
		job.ended = context.Canceled
		out, err := call(t, boundedContext(t), script(t, `yes line | head -n 1000 >&2; echo 1`), job, `{}`)
		if err != nil || string(out) != "1" || len(job.messages()) != 1 {
			t.Errorf("result = %s, %v, after %d events: it must be read to the end, and nothing emitted", out, err, len(job.messages()))
		}
	})
}

// The processes of a command that kills its reaper are found by their mark.
func TestCommandWithKilledReaperIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	job := newJob()
	_, err := call(t, boundedContext(t), script(t, `setsid sh -c 'trap "" TERM; sleep 1000' & kill -KILL $PPID; sleep 1000`), job, `{}`)
	wantCode(t, err, arcp.CodeInternal, "reaper")
}

// partTaken is a script that writes a file when it sees an end of its input.
func partTaken(dir string) string {
	return `echo ready >&2; cat >/dev/null && : >"` + dir + `/whole"`
}

// killedRuntime is a runtime that is killed while commands run.
func killedRuntime(dir string) {
	ready := make(chan struct{})
	for _, c := range []Config{
		{Command: []string{"/bin/sh", "-c", `echo ready >&2; sleep 1000; echo ` + dir}},
		{Command: []string{"/bin/sh", "-c", `trap "" TERM HUP PIPE; setsid sh -c "trap '' TERM; echo ready >&2; sleep 1000; echo ` + dir + `" & wait; echo ` + dir}},
		{Command: []string{"/bin/sh", "-c", `echo ready >&2; sleep 1000; echo ` + dir}, Bounds: Bounds{Files: 50}},
		{Command: []string{"/bin/sh", "-c", partTaken(dir)}, Stdin: StdinStream},
		{Command: []string{"/bin/sh", "-c", partTaken(dir)}, Stdin: StdinStream},
		{Command: []string{"/bin/sh", "-c", partTaken(dir)}, Stdin: StdinStream},
	} {
		c.Capability = tool.Capability{Name: "x"}
		made, err := New(c)
		if err != nil {
			panic(err)
		}
		job := newStreamJob(&endless{chunks: 1, size: 1})
		go func() { _, _ = made.Run(context.Background(), tool.NewJob(job.fakeJob), nil) }()
		go func() {
			<-job.logC
			ready <- struct{}{}
		}()
		<-ready
	}
	os.Stdout.WriteString("ready\n")
	select {}
}

func TestKilledRuntimeLeavesNoProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	dir := t.TempDir()
	cmd := osexec.Command(self)
	cmd.Env = append(os.Environ(), "EXEC_TEST_DOOMED="+dir, "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("the runtime said %q, %v", line, err)
	}
	if n := len(processesOf(dir)); n < 4 {
		t.Errorf("%d processes, want the runtime and its commands", n)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for ctx := boundedContext(t); len(processesOf(dir)) > 0; runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatalf("processes are left: %q", processesOf(dir))
		}
	}
	for ctx := boundedContext(t); ; runtime.Gosched() {
		left, err := os.ReadDir(dir)
		if err != nil || ctx.Err() != nil {
			t.Fatalf("directories are left: %v, %v", left, err)
		}
		if len(left) == 0 {
			return
		}
	}
}
