//go:build linux

package exec

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/interop"
	"github.com/arcpd/arcpd/runtime/tool"
)

// A command that stops its reaper can be cancelled, and leaves nothing, also nothing
// that is stopped itself.
func TestCommandWithStoppedReaperIsCancelled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	for name, text := range map[string]string{
		"and the command waits": `kill -STOP $PPID; echo ready >&2; sleep 1000`,
		"and the command stops": `sleep 1000 & kill -STOP $! $PPID; echo ready >&2; kill -STOP $$`,
		"and there is too much": `kill -STOP $PPID; echo ready >&2; head -c 2000000 /dev/zero; sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob()
			ctx, code := until(t, job), arcp.CodeCancelled
			if strings.Contains(text, "head") {
				ctx, code = boundedContext(t), arcp.CodeResourceExhausted
			}
			_, err := call(t, ctx, script(t, text), job, `{}`)
			wantCode(t, err, code, "")
		})
	}
}

// A reaper that does not report after commandEnd is killed when its reportTimeout is over.
func TestUnresponsiveReaperIsKilled(t *testing.T) {
	reaper := osexec.Command("sleep", "1000")
	if err := reaper.Start(); err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	l := &reaped{reaper: reaper, control: null, reported: make(chan struct{}), reportTimeout: time.Microsecond}
	l.send(commandEnd)
	_ = reaper.Wait() // the exit status is checked next
	if ws := reaper.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
		t.Errorf("the reaper ended with %v, want SIGKILL", reaper.ProcessState)
	}
	if l, err := start(order{Program: "/bin/true", Argv: []string{"true"}, Dir: "/", GraceMS: 2000}, "ARCP_TEST=1"); err != nil || l.supervisor.(*reaped).reportTimeout != 2*time.Second+killTimeout+reaperMargin {
		t.Errorf("reportTimeout = %v, %v", l, err)
	} else if _, err := l.wait(t.Context()); err != nil {
		t.Errorf("wait for /bin/true: %v", err)
	} else {
		l.close()
	}
}

// deep makes directories in each other, so many that no path leads to the last.
const deep = `perl -e 'for (1..5000) { mkdir "d" or die $!; chdir "d" or die $! }; chmod 0, "."' || exit 1; `

// Removing the directory of a command needs few open files, however deeply the command has
// nested directories.
func TestDeepDirectoriesAreRemoved(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	interop.Needs(t, "perl")
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := syscall.Rlimit{Cur: uint64(openFiles(t)) + 60, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	if _, err := call(t, boundedContext(t), script(t, deep+`echo 1`), newJob(), `{}`); err != nil {
		t.Errorf("a call with a deep directory to remove: %v", err)
	}
	_, err := call(t, boundedContext(t), script(t, deep+`echo made >&2; kill -KILL $PPID; sleep 1000`), newJob(), `{}`)
	wantCode(t, err, arcp.CodeInternal, "reaper")
}

// Processes and directories that could not be removed are logged.
func TestLeftoversAreLogged(t *testing.T) {
	var log bytes.Buffer
	cmd, err := prepare(&Config{Capability: tool.Capability{Name: "x", Version: "1"}, Command: []string{"sh"}, Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	cmd.logSurvivors("job_1", &report{Left: 3})
	cmd.logSurvivors("job_2", &report{})
	gone, stays := &fakeLease{dir: "/nonexistent"}, &fakeLease{dir: "/"}
	for _, l := range []*fakeLease{gone, stays} {
		cmd.releaseDir("job_3", workDir{l.dir, l})
	}
	if !gone.released.Load() || stays.released.Load() {
		t.Errorf("released: %v of what is gone, %v of what stays", gone.released.Load(), stays.released.Load())
	}
	want := `{"level":"warn","tool":"x@1","job_id":"job_1","processes":3,"message":"processes of the command could not be ended"}
{"level":"warn","tool":"x@1","job_id":"job_3","lease_id":"lease_1","message":"the directory of the command is not removed yet: its lease ends soon after the job"}`
	if got := strings.TrimSpace(log.String()); got != want {
		t.Errorf("logged %s\nwant %s", got, want)
	}
}

// If a command replaces its directory by a link, the link is removed and its target is not.
func TestDirectoryReplacedByLink(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	made := script(t, `echo x > `+kept+`/file; d=$PWD; cd /; rmdir "$d"; ln -s `+kept+` "$d"; echo 1`)
	if _, err := call(t, boundedContext(t), made, newJob(), `{}`); err != nil {
		t.Errorf("a call that replaces its directory by a link: %v", err)
	}
	if _, err := os.Stat(kept + "/file"); err != nil {
		t.Errorf("the target of the link is gone: %v", err)
	}
}

// A command is not started when its reaper cannot let go of its files.
func TestReaperWithoutNullDevice(t *testing.T) {
	reaperEnv = append(reaperEnv, "EXEC_TEST_NULL=/nonexistent")
	defer func() { reaperEnv = reaperEnv[:len(reaperEnv)-1] }()
	mark := filepath.Join(t.TempDir(), "mark")
	made := script(t, `touch `+mark+`; sleep 1000`)
	_, err := call(t, boundedContext(t), made, newJob(), `{}`)
	wantCode(t, err, arcp.CodeUnavailable, "cannot be started: open /nonexistent")
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command was started, want no start")
	}
}

// A command may end shortly after its job. Its directory exists until the command has ended.
func TestDirectoryOutlivesCommand(t *testing.T) {
	withLongGrace(t)
	job := newJob()
	_, err := call(t, until(t, job), script(t, `trap 'echo x > file && echo kept >&2; exit' TERM; echo ready >&2; while :; do sleep 0.05; done`), job, `{}`)
	wantCode(t, err, arcp.CodeCancelled, "")
	if !slices.Contains(job.messages(), "kept") {
		t.Errorf("log = %q, want the message of the command that wrote its file", job.messages())
	}
	if n := job.leases[0].touched.Load(); n != 1 {
		t.Errorf("the lease was touched %d times, want once, when the job had ended", n)
	}
}
