package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/internal/race"
)

// The test below kills a runtime as often as this.
const (
	kills    = 20
	sessions = 6 // that load it meanwhile
)

const crashToken = "crash-token-0123456789"

// process is a runtime in a separate process.
type process struct {
	cmd     *exec.Cmd
	url     string
	address string
}

// endToEnd skips a test with -short.
func endToEnd(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
}

// ofOtherPrograms skips a test with the race detector, which watches this process alone. The test starts the server and a
// program of another project, and has no concurrency of its own.
func ofOtherPrograms(t *testing.T) {
	t.Helper()
	endToEnd(t)
	if race.Enabled {
		t.Skip("starts programs that the race detector does not watch: left out with -race")
	}
}

// watchedIn skips a test with the race detector. The tests of another package run the code that the test has in
// this process with it, in less time.
func watchedIn(t *testing.T, pkg string) {
	t.Helper()
	endToEnd(t)
	if race.Enabled {
		t.Skipf("the race detector watches this code in the tests of package %s: left out with -race", pkg)
	}
}

// binary builds the command once for all tests.
func binary(t *testing.T) string {
	t.Helper()
	endToEnd(t)
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "arcp")
	if out, err := exec.Command("go", "build", "-o", path, "./cmd/arcp").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

var buildDir string

func TestMain(m *testing.M) {
	if plant := os.Getenv(plantEnv); plant != "" {
		plantedMain(plant)
	}
	err := os.Chdir("../..") // the root of the module
	if err != nil {
		panic(err)
	}
	if buildDir, err = os.MkdirTemp("", "arcp-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(buildDir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// binaryAfter returns a program that runs shell commands and then becomes the server.
func binaryAfter(t *testing.T, commands string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server")
	script := fmt.Sprintf("#!/bin/sh\n%s\nexec '%s' \"$@\"\n", commands, binary(t))
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// startServer runs `arcp serve` on a data directory until it is killed.
func startServer(t *testing.T, bin, data string, more ...string) *process {
	t.Helper()
	cmd := exec.Command(bin, append([]string{"serve", "--demo", "--listen", freeAddr(t), "--admin", "127.0.0.1:0",
		"--data", data, "--token", "alice=" + crashToken, "--log-level", "error"}, more...)...)
	cmd.Stderr = captureStderr(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killProcess(cmd) })
	line, err := bufio.NewReader(out).ReadString('\n')
	fields := strings.Fields(line)
	if err != nil || len(fields) < 2 || fields[0] != "listening" {
		t.Fatalf("server said %q, %v; want its listening line", line, err)
	}
	return &process{cmd: cmd, url: fields[1], address: strings.TrimSuffix(strings.TrimPrefix(fields[1], "ws://"), "/arcp")}
}

// captureStderr returns a file for the error output of processes. Its end is shown if the test
// fails.
func captureStderr(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer f.Close()
		if !t.Failed() {
			return
		}
		const most = 16 << 10
		data, err := os.ReadFile(f.Name())
		t.Logf("standard error (%v): %s", err, data[max(0, len(data)-most):])
	})
	return f
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // killed
}

// eventRecorder records the events that clients have seen of jobs.
type eventRecorder struct {
	mu     sync.Mutex
	jobs   map[arcp.JobID]map[arcp.MessageID]string // event id → type and payload
	ends   map[arcp.JobID]int                       // terminal events seen
	faults []string
}

// record adds one envelope of a session whose last event_seq was *last.
func (rec *eventRecorder) record(env *arcp.Envelope, last *uint64) {
	if env.EventSeq == 0 {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if env.EventSeq != *last+1 {
		rec.faults = append(rec.faults, fmt.Sprintf("event_seq %d after %d", env.EventSeq, *last))
	}
	*last = env.EventSeq
	if rec.jobs[env.JobID] == nil {
		rec.jobs[env.JobID] = map[arcp.MessageID]string{}
	}
	rec.jobs[env.JobID][env.ID] = string(env.Type) + string(env.Payload)
	if env.Type.Terminal() {
		rec.ends[env.JobID]++
	}
}

func connect(ctx context.Context, url string, rec *eventRecorder) (*client.Client, error) {
	var last uint64
	return client.Dial(ctx, url, client.Options{
		Auth: client.Auth{Scheme: "bearer", Token: client.Secret(crashToken)},
		OnEnvelope: func(env *arcp.Envelope) bool {
			if rec != nil {
				rec.record(env, &last)
			}
			return false
		},
	})
}

// load submits jobs of every kind until the connection breaks.
func load(ctx context.Context, url string, rec *eventRecorder, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	c, err := connect(ctx, url, rec)
	if err != nil {
		return
	}
	defer c.Abort()
	for {
		tool, args := "demo.echo", `{"x":[1,2.50,"ü"]}`
		switch rnd.IntN(5) {
		case 0:
			tool, args = "demo.emit", `{"count":40,"bytes":64}`
		case 1:
			tool, args = "demo.progress", `{"steps":20,"interval_ms":1}`
		case 2:
			tool, args = "demo.sleep", fmt.Sprintf(`{"ms":%d}`, rnd.IntN(80))
		case 3:
			tool, args = "demo.count", `{"to":30,"interval_ms":2}`
		}
		if _, err := c.Invoke(ctx, client.InvokeParams{Tool: tool, Arguments: arcp.Raw(args), DiscardEvents: true}); err != nil {
			return
		}
	}
}

// TestKillNine kills a loaded runtime repeatedly. Events that a client has seen must exist
// afterwards, unchanged. Every accepted job must end exactly once: unfinished ones continue.
func TestKillNine(t *testing.T) {
	bin, data := binary(t), t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for round := range kills {
		rec := &eventRecorder{jobs: map[arcp.JobID]map[arcp.MessageID]string{}, ends: map[arcp.JobID]int{}}
		p := startServer(t, bin, data)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var clients sync.WaitGroup
		for i := range sessions {
			clients.Go(func() { load(ctx, p.url, rec, seed+uint64(round*sessions+i)) })
		}
		pause(ctx, time.Duration(20+rnd.IntN(180))*time.Millisecond)
		p.kill(t)
		clients.Wait()
		p = startServer(t, bin, data)
		verify(ctx, t, p.url, rec)
		p.kill(t)
		cancel()
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// pause lets the load run for a moment, so that the time of the kill varies.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// completions counts completed jobs or calls of the clients that load a server.
type completions struct {
	n       atomic.Int64
	changec chan struct{} // buffered 1
}

func newCompletions() *completions { return &completions{changec: make(chan struct{}, 1)} }

func (c *completions) add() {
	c.n.Add(1)
	select {
	case c.changec <- struct{}{}:
	default:
	}
}

// await waits until n more have been added, or the load has ended. Only one goroutine may wait.
func (c *completions) await(load context.Context, n int64) {
	for want := c.n.Load() + n; c.n.Load() < want; {
		select {
		case <-c.changec:
		case <-load.Done():
			return
		}
	}
}

func verify(ctx context.Context, t *testing.T, url string, rec *eventRecorder) {
	t.Helper()
	for _, fault := range rec.faults {
		t.Error(fault)
	}
	c, err := connect(ctx, url, nil)
	if err != nil {
		t.Fatalf("connect after restart: %v", err)
	}
	defer c.Abort()
	listed := map[arcp.JobID]arcp.JobState{}
	for j, err := range c.Jobs(ctx, client.ListJobsParams{}) {
		if err != nil {
			t.Fatalf("list jobs: %v", err)
		}
		listed[j.JobID] = arcp.JobState(j.Status)
	}
	seen := 0
	for id, events := range rec.jobs {
		seen += len(events)
		state, ok := listed[id]
		if !ok {
			t.Errorf("%s was accepted and is gone", id)
			continue
		}
		if rec.ends[id] > 0 && !state.Terminal() {
			t.Errorf("%s is %s after a restart; it had ended", id, state)
		}
		verifyJob(ctx, t, c, id, events, rec.ends[id])
	}
	t.Logf("%d jobs, %d events seen before the kill", len(rec.jobs), seen)
}

// verifyJob compares a job's history with the events seen before.
func verifyJob(ctx context.Context, t *testing.T, c *client.Client, id arcp.JobID, seen map[arcp.MessageID]string, ended int) {
	t.Helper()
	j, err := c.SubscribeJob(ctx, client.SubscribeJobParams{JobID: id, History: true})
	if err != nil {
		t.Errorf("%s: %v", id, err)
		return
	}
	terminals, found := 0, 0
	for ev, err := range j.Events(ctx) {
		if err != nil {
			t.Errorf("%s: %v", id, err)
			break
		}
		if was, ok := seen[ev.ID]; ok {
			if found++; was != string(ev.Type)+string(ev.Payload) {
				t.Errorf("%s: event %s was %s and is %s%s now", id, ev.ID, was, ev.Type, ev.Payload)
			}
		} else if ended > 0 {
			t.Errorf("%s: has an event %s that came after its end", id, ev.Type)
		}
		if ev.Type.Terminal() {
			terminals++
		}
	}
	if found != len(seen) {
		t.Errorf("%s: %d of the %d events that were seen are gone", id, len(seen)-found, len(seen))
	}
	if terminals != 1 {
		t.Errorf("%s: ended %d times, want once", id, terminals)
	}
}
