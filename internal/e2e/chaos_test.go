package e2e

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/conformance/chaos"
)

var (
	chaosTime = flag.Duration("chaos.time", 8*time.Second, "how long TestChaos loads the runtime")
	chaosSeed = flag.Uint64("chaos.seed", 0, "what TestChaos does; 0 chooses")
	chaosOut  = flag.String("chaos.out", "", "file that gets the outcome of TestChaos; its progress goes to standard error")
)

// chaosPrincipals own the sessions that load the runtime.
var chaosPrincipals = []chaos.Principal{
	{Name: "alice", Token: "alice-" + crashToken}, {Name: "bob", Token: "bob-" + crashToken},
	{Name: "carol", Token: "carol-" + crashToken}, {Name: "dave", Token: "dave-" + crashToken},
}

// victim is a runtime that is killed and started again on the same data and
// address.
type victim struct {
	program string
	args    []string
	env     []string
	output  *os.File // its standard error

	cmd *exec.Cmd // nil: it does not run
}

// Start implements chaos.Server. A process that was killed while it started a program may leave a child that has the
// listener until it executes the program: the address is in use until then.
func (v *victim) Start(context.Context) (string, error) {
	for deadline := time.Now().Add(time.Minute); ; {
		address, err := v.start()
		if err == nil || !v.addressInUse() || time.Now().After(deadline) {
			return address, err
		}
		_ = v.Kill() // it has ended
	}
}

// addressInUse reports whether the end of the error output says so.
func (v *victim) addressInUse() bool {
	text, err := os.ReadFile(v.output.Name())
	return err == nil && bytes.Contains(text[max(0, len(text)-1024):], []byte("the address is in use"))
}

func (v *victim) start() (string, error) {
	cmd := exec.Command(v.program, v.args...)
	cmd.Env = append(os.Environ(), v.env...)
	cmd.Stderr = v.output
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	v.cmd = cmd
	line, err := bufio.NewReader(out).ReadString('\n')
	fields := strings.Fields(line)
	if err != nil || len(fields) < 2 || fields[0] != "listening" {
		return "", fmt.Errorf("it said %q (%v) instead of where it listens", line, err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(fields[1], "ws://"), "/arcp"), nil
}

// Kill implements chaos.Server.
func (v *victim) Kill() error {
	if v.cmd == nil {
		return nil
	}
	err := v.cmd.Process.Kill()
	_ = v.cmd.Wait() // killed
	v.cmd = nil
	return err
}

// freeAddr returns a loopback address outside the ephemeral ports, so that no connection takes
// the port while the server is down. On Linux its host is random, so that no other server does.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		host := "127.0.0.1"
		if runtime.GOOS == "linux" {
			host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
		}
		ln, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, 10_000+rand.IntN(20_000)))
		if err != nil {
			continue
		}
		defer ln.Close()
		return ln.Addr().String()
	}
	t.Fatal("no port is free")
	return ""
}

// campaign returns the configuration common to all campaigns.
func campaign(t *testing.T) chaos.Config {
	c := chaos.Config{Seed: *chaosSeed, Time: *chaosTime, Principals: chaosPrincipals, Progress: func(line string) { t.Log(line) }}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return c
}

// chaosTools is the workflow of chaos.Config.Effects as a configuration file. %q is the file of the
// effects.
const chaosTools = `
tools:
  - {name: chaos.once, recovery: fail, limits: {timeout_ms: 60000}, exec: &append [sh, -c, 'read -r args; case "$args" in *\}) ;; *) exit 1;; esac; printf "%%s %%s\n" "$ARCP_JOB_ID" "$args" >> "$0"; sleep 0.2; echo {}', %[1]q]}
  - {name: chaos.again, recovery: rerun, limits: {timeout_ms: 60000}, exec: *append}
workflows:
  - name: chaos.workflow
    steps:
      charge:
        tool: chaos.once
        arguments: {mark: =input.mark, step: charge}
        on_failure: {tool: chaos.again, arguments: {mark: =input.mark, step: refund}}
      count: {needs: [charge], tool: demo.count, arguments: {to: =input.to, interval_ms: 20}}
      pack: {needs: [charge], tool: chaos.again, arguments: {mark: =input.mark, step: pack}}
      ship: {needs: [count, pack], tool: chaos.once, arguments: {mark: =input.mark, step: ship}}
    result: =input.mark
`

// TestChaos runs the fault campaign: the promises to clients must hold whichever way
// connections and the runtime break.
func TestChaos(t *testing.T) {
	c := campaign(t)
	if *chaosOut != "" {
		c.Progress = func(line string) { fmt.Fprintln(os.Stderr, line) }
	}
	if c.Time < 20*time.Second {
		c.KillEvery = 2 * time.Second
	}
	dir := t.TempDir()
	c.Effects = filepath.Join(dir, "effects")
	if err := os.WriteFile(filepath.Join(dir, "arcp.yaml"), fmt.Appendf(nil, chaosTools, c.Effects), 0o600); err != nil {
		t.Fatal(err)
	}
	v := &victim{program: binary(t), output: captureStderr(t), args: []string{"serve", "--config", filepath.Join(dir, "arcp.yaml"), "--demo", "--listen", freeAddr(t), "--admin", "", "--data", t.TempDir(),
		"--replay-events", "0", "--replay-bytes", "0", "--log-level", "error"}}
	for _, p := range chaosPrincipals {
		v.args = append(v.args, "--token", p.Name+"="+p.Token)
	}
	o, err := chaos.Run(t.Context(), v, c)
	if err != nil {
		note(t, "chaos: FAILED: "+err.Error())
		t.Fatal(err)
	}
	note(t, o.String())
	for _, f := range o.Findings[:min(len(o.Findings), 20)] {
		t.Error(f)
	}
}

// note logs the outcome.
func note(t *testing.T, outcome string) {
	t.Log(outcome)
	if *chaosOut == "" {
		return
	}
	if err := os.WriteFile(*chaosOut, []byte(outcome+"\n"), 0o600); err != nil {
		t.Error(err)
	}
}
