package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// MarkerVariable is a variable in the environment of every process that Start starts. Their child
// processes inherit it, and are found by it after the first process has ended.
const MarkerVariable = "ARCP_RESOURCE"

// Start starts a command in a process group of its own and leases the group for d. At
// the end of the lease all processes of the group are ended, with SIGTERM and, five
// seconds later, SIGKILL. The command does not begin before the lease is durable;
// without a lease, or when the runtime is killed in between, it never begins.
//
// The caller must call cmd.Wait. cmd.SysProcAttr and cmd.ExtraFiles must not be set.
// Start needs /bin/sh and /proc: UNIMPLEMENTED without.
func Start(ctx context.Context, job tool.Job, cmd *exec.Cmd, d time.Duration) (tool.ResourceLease, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	if cmd.SysProcAttr != nil || len(cmd.ExtraFiles) > 0 {
		return nil, errors.New("a leased command brings no SysProcAttr and no ExtraFiles")
	}
	hold, open, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start a leased process: %w", err)
	}
	defer func() { _ = errors.Join(hold.Close(), open.Close()) }() // a gate that still waits ends then
	mark := rand.Text()
	gate(cmd, hold, mark)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a leased process: %w", err)
	}
	l, err := leaseProcess(ctx, job, cmd, mark, d)
	if err == nil {
		_, err = io.WriteString(open, "go\n")
	}
	if err != nil {
		_ = cmd.Process.Kill() // it has not begun, and has no group yet
		_ = cmd.Wait()         // that it was killed is known
		return nil, err
	}
	return l, nil
}

// gate makes a command wait for a line on a pipe before it begins, in the same
// process.
func gate(cmd *exec.Cmd, hold *os.File, mark string) {
	const script = `IFS= read -r go <&3 || exit 125; exec 3<&-; exec "$@"`
	cmd.Args = append([]string{"sh", "-c", script, "sh", cmd.Path}, cmd.Args[min(1, len(cmd.Args)):]...)
	cmd.Path = "/bin/sh"
	cmd.Env = append(cmd.Environ(), MarkerVariable+"="+mark)
	cmd.ExtraFiles = []*os.File{hold}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// maxCommandText bounds the command in the display name of a lease, in bytes.
const maxCommandText = 200

func leaseProcess(ctx context.Context, job tool.Job, cmd *exec.Cmd, mark string, d time.Duration) (tool.ResourceLease, error) {
	id, err := identify(cmd.Process.Pid, mark)
	if err != nil {
		return nil, err
	}
	return job.Resources().Lease(ctx, tool.ResourceAsk{Provider: Provider, Type: Process, ExternalID: id.String(), For: d,
		DisplayName: fmt.Sprintf("pid %d: %s", cmd.Process.Pid, clip.Text(cmd.Args[4], maxCommandText))})
}

// identity identifies a process group beyond doubt.
type identity struct {
	boot   string // of the machine
	pid    int    // of the first process, and of the group
	start  uint64 // when it started, in ticks since the boot
	marker string // in the environment of all
}

func (i identity) String() string {
	return fmt.Sprintf("%d:%d:%s:%s", i.pid, i.start, i.marker, i.boot)
}

func parseIdentity(s string) (i identity, err error) {
	part := strings.Split(s, ":")
	if len(part) != 4 || part[2] == "" || part[3] == "" {
		return i, broken(Process, s)
	}
	i.marker, i.boot = part[2], part[3]
	pid, perr := strconv.Atoi(part[0])
	start, serr := strconv.ParseUint(part[1], 10, 64)
	if perr != nil || serr != nil || pid <= 1 {
		return i, broken(Process, s)
	}
	i.pid, i.start = pid, start
	return i, nil
}

// Time limits of the end of a process group.
const (
	termGrace    = 5 * time.Second // between SIGTERM and SIGKILL
	pollInterval = 20 * time.Millisecond
)

// End ends the processes that are left of a leased process group, and returns when none
// is left. It never signals a process outside of the group, whatever its pid.
func End(ctx context.Context, externalID string) error {
	i, err := parseIdentity(externalID)
	if err != nil {
		return err
	}
	return i.end(ctx, termGrace)
}

func (i identity) end(ctx context.Context, grace time.Duration) error {
	kill := time.Now().Add(grace)
	group := group{identity: i, terminated: make(map[int]bool)}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		left, err := group.find()
		if err != nil || left == 0 {
			return err
		}
		group.signal(!time.Now().Before(kill))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return arcp.Errorf(arcp.CodeDeadlineExceeded, "%d processes of the group %d have not ended: %v", left, i.pid, context.Cause(ctx))
		}
	}
}
