package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// leasingJob is a job that only supports leases.
type leasingJob struct {
	tool.Host
	refuse error
	asked  []tool.ResourceRequest
}

func (j *leasingJob) Lease(_ context.Context, req tool.ResourceRequest) (tool.ResourceLease, error) {
	j.asked = append(j.asked, req)
	return nil, j.refuse
}

// started starts a shell script, waits for its first line of output and returns its identity.
// The test's clean-up kills the rest of its process group.
func started(t *testing.T, script string) (*exec.Cmd, identity) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	job := &leasingJob{}
	if _, err := Start(t.Context(), tool.NewJob(job), cmd, time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the rest of the group
		_ = cmd.Wait()                                      // that it was killed is known
	})
	if a := job.asked[0]; len(job.asked) != 1 || a.Provider != Provider || a.Type != Process || a.For != time.Minute {
		t.Fatalf("asked for %+v", job.asked)
	}
	ready := make([]byte, 3)
	if _, err := io.ReadFull(out, ready); err != nil || string(ready) != "go\n" {
		t.Fatalf("the script has not begun: %q, %v", ready, err)
	}
	id, err := parseIdentity(job.asked[0].ExternalID)
	if err != nil || id.pid != cmd.Process.Pid || id.String() != job.asked[0].ExternalID {
		t.Fatalf("identity %v of pid %d: %v", id, cmd.Process.Pid, err)
	}
	return cmd, id
}

// members counts the processes of a group that have not ended.
func members(t *testing.T, group int) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err == nil {
			if s, err := readStat(pid); err == nil && s.group == group && !s.ended() {
				n++
			}
		}
	}
	return n
}

func TestEndEndsTheWholeGroup(t *testing.T) {
	cmd, id := started(t, `(sleep 1000 & sleep 1000 & wait) & sleep 1000 & echo go; wait; sleep 1000`)
	for members(t, id.pid) < 5 { // the shells and their children
		if t.Context().Err() != nil {
			t.Fatal("they have not started")
		}
	}
	if err := End(t.Context(), id.String()); err != nil {
		t.Fatal(err)
	}
	if n := members(t, id.pid); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself, want an end by a signal")
	}
	if err := End(t.Context(), id.String()); err != nil {
		t.Errorf("ended again: %v", err)
	}
}

// A process that ignores SIGTERM is killed after a short wait.
func TestEndKillsAfterSIGTERM(t *testing.T) {
	_, id := started(t, `trap '' TERM; sleep 1000 & echo go; while :; do sleep 1000; done`)
	if err := id.end(t.Context(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if n := members(t, id.pid); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// A process that is stopped ends, too.
func TestEndOfAStoppedProcess(t *testing.T) {
	cmd, id := started(t, `echo go; sleep 1000`)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := End(t.Context(), id.String()); err != nil {
		t.Fatal(err)
	}
}

// Processes left behind by a group's first process are found by their mark.
func TestEndOfOrphans(t *testing.T) {
	cmd, id := started(t, `sleep 1000 >/dev/null & echo go`)
	_ = cmd.Wait() // it has left
	if _, err := readStat(id.pid); err == nil || members(t, id.pid) != 1 {
		t.Fatalf("%d processes, want only the one that is left behind", members(t, id.pid))
	}
	stranger := id
	stranger.marker = "ANOTHER"
	if err := End(t.Context(), stranger.String()); err != nil || members(t, id.pid) != 1 {
		t.Fatalf("a group of that number that is another's: %v, %d left; want it not to be touched", err, members(t, id.pid))
	}
	if err := End(t.Context(), id.String()); err != nil || members(t, id.pid) != 0 {
		t.Fatalf("%v, %d are left", err, members(t, id.pid))
	}
}

// A pid that is another's by now is not touched: it has started at another time, or
// since the machine has.
func TestRecycledPidIsNotKilled(t *testing.T) {
	_, id := started(t, `echo go; sleep 1000`)
	earlier, later, before := id, id, id
	earlier.start, earlier.marker = id.start-1, "x"
	later.start, later.marker = id.start+1, "x"
	before.boot = "00000000-0000-0000-0000-000000000000"
	for _, other := range []identity{earlier, later, before} {
		if err := End(t.Context(), other.String()); err != nil {
			t.Errorf("End of the identity %v = %v, want no error", other, err)
		}
		if members(t, id.pid) == 0 {
			t.Fatalf("%v has ended %v", other, id)
		}
	}
}

// An unreadable process does not count as gone.
func TestErrorWithoutDescriptors(t *testing.T) {
	_, id := started(t, `echo go; sleep 1000`)
	g := group{identity: id, terminated: make(map[int]bool)}
	all, err := readStat(id.pid)
	must(t, err)
	withDescriptors(t, 0, func() {
		_, led := g.leaderExists()
		_, owns := g.owns(id.pid, all, true)
		_, marked := g.marked(id.pid)
		for name, err := range map[string]error{"led": led, "hold": g.openMember(id.pid, true), "owns": owns, "marked": marked, "end": End(t.Context(), id.String())} {
			if !errors.Is(err, syscall.EMFILE) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	})
	if left, err := g.find(); left == 0 || err != nil {
		t.Errorf("%d are left: %v", left, err)
	}
}

func TestEndStopsAtCancel(t *testing.T) {
	_, id := started(t, `trap '' TERM; echo go; while :; do sleep 1000; done`)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time"))
	err := id.end(ctx, time.Hour)
	if err == nil || !strings.Contains(err.Error(), "no time") {
		t.Fatalf("%v, want it to give up", err)
	}
}

// A command does not run without a lease, nor if the runtime ends before the lease is granted.
func TestCommandNeedsLease(t *testing.T) {
	trace := t.TempDir() + "/trace"
	cmd := exec.Command("touch", trace)
	_, err := Start(t.Context(), tool.NewJob(&leasingJob{refuse: arcp.Errorf(arcp.CodeResourceExhausted, "no more")}), cmd, time.Minute)
	if e, ok := errors.AsType[*arcp.Error](err); !ok || e.Code != arcp.CodeResourceExhausted {
		t.Errorf("error %v, want the refusal", err)
	}
	if cmd.ProcessState == nil {
		t.Error("the process was not waited for")
	}

	hold, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("touch", trace)
	gate(cmd, hold, "mark")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(hold.Close(), open.Close()) // as when this process dies
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 125 {
		t.Errorf("the process ended with %v, want exit status 125", err)
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("the program was started, want no start")
	}
}

func TestStartKeepsTheCommand(t *testing.T) {
	cmd := exec.Command("printf", "%s,%s", "a b", "$c'\"")
	out := new(strings.Builder)
	cmd.Stdout, cmd.Stdin, cmd.Dir = out, strings.NewReader("x"), "/"
	if _, err := Start(t.Context(), tool.NewJob(&leasingJob{}), cmd, 0); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != `a b,$c'"` {
		t.Errorf("output = %q, %v, want the arguments unchanged", out, err)
	}
	if _, err := Start(t.Context(), tool.NewJob(&leasingJob{}), exec.Command("no-such-command-here"), 0); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("what is not there: %v", err)
	}
	own := exec.Command("true")
	own.SysProcAttr = &syscall.SysProcAttr{}
	if _, err := Start(t.Context(), tool.NewJob(&leasingJob{}), own, 0); err == nil {
		t.Error("a command with a group of its own is started")
	}
}

func TestInvalidProcessNames(t *testing.T) {
	for _, bad := range []string{"", "1", "7", "-1:2:x:y", "0:2:x:y", "1:2:x:y", "x:2:x:y", "5:x:x:y", "5:2::y", "5:2:x:", "5:2:x:y:z"} {
		if err := End(t.Context(), bad); err == nil {
			t.Errorf("%q names a process", bad)
		}
	}
}
