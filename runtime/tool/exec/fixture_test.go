//go:build linux

package exec

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/local"
)

func TestMain(m *testing.M) {
	if name := os.Getenv("EXEC_TEST_NULL"); name != "" {
		nullDevice = name
	}
	Hook()
	reaperEnv = append(reaperEnv, "GORACE=atexit_sleep_ms=0") // the detector would have each of them wait for a second
	if dir := os.Getenv("EXEC_TEST_DOOMED"); dir != "" {
		leaseRoot = dir
		killedRuntime(dir)
	}
	leaseRoot = os.TempDir() + "/arcp-exec-test-" + rand.Text()
	code := m.Run()
	_ = os.RemoveAll(leaseRoot) // as far as it can be
	os.Exit(code)
}

// leaseRoot is where leased directories are.
var leaseRoot string

// fakeJob records the log messages.
type fakeJob struct {
	tool.Host
	id    arcp.JobID
	trace string

	mu    sync.Mutex
	logs  []arcp.LogPayload
	logC  chan struct{} // receives when something was logged
	ended error         // of every call

	leases  []*fakeLease
	failure error // as Failed received it
}

// fakeLease is a lease on a directory.
type fakeLease struct {
	tool.ResourceLease
	dir      string
	released atomic.Bool
	touched  atomic.Int64 // times
}

func (l *fakeLease) ID() arcp.LeaseID { return "lease_1" }

func (l *fakeLease) Release(context.Context) error {
	l.released.Store(true)
	return nil
}

func (l *fakeLease) Touch(context.Context) (time.Time, error) {
	if l.released.Load() {
		return time.Time{}, errors.New("it is released")
	}
	l.touched.Add(1)
	return time.Now(), nil
}

func (j *fakeJob) LeaseDirectory(context.Context, tool.DirectoryRequest) (string, tool.ResourceLease, error) {
	all, err := local.OpenDirectories(leaseRoot)
	if err != nil {
		return "", nil, err
	}
	defer all.Close()
	dir, err := all.Make(local.NewName())
	l := &fakeLease{dir: dir}
	j.leases = append(j.leases, l)
	return dir, l, err
}

func (j *fakeJob) Failed(err error) { j.failure = err }

func newJob() *fakeJob {
	return &fakeJob{id: arcp.JobID("job_" + rand.Text()), logC: make(chan struct{}, 1)}
}

func (j *fakeJob) ID() arcp.JobID  { return j.id }
func (j *fakeJob) TraceID() string { return j.trace }
func (j *fakeJob) SpanID() string  { return "00f067aa0ba902b7" }

func (j *fakeJob) Emit(_ arcp.Type, payload any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logs = append(j.logs, payload.(arcp.LogPayload))
	select {
	case j.logC <- struct{}{}:
	default:
	}
	return j.ended
}

// messages returns the log messages so far.
func (j *fakeJob) messages() (list []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, l := range j.logs {
		list = append(list, l.Message)
	}
	return list
}

// waitForMessage returns when the job has logged a message.
func (j *fakeJob) waitForMessage(t *testing.T, message string) {
	t.Helper()
	for {
		if slices.Contains(j.messages(), message) {
			return
		}
		select {
		case <-j.logC:
		case <-t.Context().Done():
			t.Fatalf("no log event %q; there are %q", message, j.messages())
		}
	}
}

// script is a shell script as a tool. Its path is in the command line of the
// processes that run it.
func script(t *testing.T, text string, with ...func(*Config)) *tool.Tool {
	t.Helper()
	name := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	c := Config{Capability: tool.Capability{Name: "x"}, Command: []string{name}}
	for _, f := range with {
		f(&c)
	}
	if err := Check(&c); err != nil {
		t.Fatal(err)
	}
	made, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func within(b Bounds) func(*Config) { return func(c *Config) { c.Bounds = b } }

// call runs a tool as the runtime does, and fails the test if processes or directories remain.
func call(t *testing.T, ctx context.Context, made *tool.Tool, job *fakeJob, args string) (arcp.Raw, *arcp.Error) {
	t.Helper()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	out, err := made.Run(ctx, tool.NewJob(job), arcp.Raw(args))
	for _, token := range []string{string(job.id), t.TempDir()[:strings.LastIndexByte(t.TempDir(), '/')]} {
		left := slices.DeleteFunc(processesOf(token), func(p string) bool { return strings.HasSuffix(p, reaperName+" ") }) // it removes the directory
		if len(left) > 0 {
			t.Errorf("processes are left: %q", left)
		}
		for wait := boundedContext(t); len(processesOf(token)) > 0; runtime.Gosched() {
			if wait.Err() != nil {
				t.Fatalf("its reaper is left: %q", processesOf(token))
			}
		}
	}
	for _, l := range job.leases {
		stays := err != nil && strings.Contains(err.Message, "reaper")
		for wait := boundedContext(t); !stays && !l.released.Load() && wait.Err() == nil; runtime.Gosched() { // it is removed behind the call
		}
		_, statErr := os.Lstat(l.dir)
		switch gone := errors.Is(statErr, fs.ErrNotExist); {
		case gone != l.released.Load():
			t.Errorf("the directory is gone: %v; its lease is released: %v", gone, l.released.Load())
		case !gone && !stays:
			t.Errorf("the directory %s is left", l.dir)
		}
	}
	for wait := boundedContext(t); runtime.NumGoroutine() > goroutines && wait.Err() == nil; runtime.Gosched() { // those that have nothing more to do need a moment to end
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines, there were %d before", now, goroutines)
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d files are open, %d were before", now, files)
	}
	return out, err
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// processesOf lists the processes, but for this one, with a text in their
// environment or command line.
func processesOf(token string) (list []string) {
	for _, pid := range processes() {
		dir := "/proc/" + strconv.Itoa(pid)
		env, _ := os.ReadFile(dir + "/environ")
		line, _ := os.ReadFile(dir + "/cmdline")
		if pid != os.Getpid() && strings.Contains(string(env)+string(line), token) {
			list = append(list, strconv.Itoa(pid)+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return list
}

func wantCode(t *testing.T, err *arcp.Error, code arcp.Code, text string) {
	t.Helper()
	if err == nil || err.Code != code || !strings.Contains(err.Message, text) {
		t.Errorf("error = %v, want %s with %q", err, code, text)
	}
}

// boundedContext returns a context with a deadline that only a blocked call exceeds.
func boundedContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, arcp.Errorf(arcp.CodeTimeout, "the test waits no longer"))
	t.Cleanup(cancel)
	return ctx
}
