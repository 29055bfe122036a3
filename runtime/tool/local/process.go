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
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// MarkerVariable is a variable in the environment of every process that Start starts. The clean-up finds
// child processes by the inherited variable after the first process has ended.
const MarkerVariable = "ARCP_RESOURCE"

// Start starts a command in a new process group and leases the group for d. The end of the lease sends
// SIGTERM to all processes of the group and, five seconds later, SIGKILL. The command does not run
// before the lease is durable. It never runs if the lease fails or the runtime is killed before.
//
// The caller must call cmd.Wait, and must not set cmd.SysProcAttr and cmd.ExtraFiles. The error is
// UNIMPLEMENTED on other systems than Linux, and without /bin/sh or /proc.
func Start(ctx context.Context, job tool.Job, cmd *exec.Cmd, d time.Duration) (tool.ResourceLease, error) {
	if err := supported(); err != nil {
		return nil, err
	}
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
	defer func() { _ = errors.Join(hold.Close(), open.Close()) }() // a waiting gate ends
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
		_ = cmd.Process.Kill() // the gate is the only process
		_ = cmd.Wait()         // the process was killed
		return nil, err
	}
	return l, nil
}

// gate changes a command so that its process waits for a line on a pipe before it runs the program.
func gate(cmd *exec.Cmd, hold *os.File, mark string) {
	const script = `IFS= read -r go <&3 || exit 125; exec 3<&-; exec "$@"`
	cmd.Args = append([]string{"sh", "-c", script, "sh", cmd.Path}, cmd.Args[min(1, len(cmd.Args)):]...)
	cmd.Path = "/bin/sh"
	cmd.Env = append(cmd.Environ(), MarkerVariable+"="+mark)
	cmd.ExtraFiles = []*os.File{hold}
	cmd.SysProcAttr = ownGroup()
}

// maxCommandText bounds the command in the display name of a lease, in bytes.
const maxCommandText = 200

func leaseProcess(ctx context.Context, job tool.Job, cmd *exec.Cmd, mark string, d time.Duration) (tool.ResourceLease, error) {
	id, err := identify(cmd.Process.Pid, mark)
	if err != nil {
		return nil, err
	}
	return job.Resources().Lease(ctx, tool.ResourceRequest{Provider: Provider, Type: Process, ExternalID: id.String(), For: d,
		DisplayName: fmt.Sprintf("pid %d: %s", cmd.Process.Pid, clip.Text(cmd.Args[4], maxCommandText))})
}

// identity identifies a process group, also after a reuse of its pid.
type identity struct {
	boot   string // boot id of the machine
	pid    int    // of the first process and the group
	start  uint64 // start of the first process in ticks since the boot
	marker string // value of MarkerVariable in all processes
}

func (i identity) String() string {
	return fmt.Sprintf("%d:%d:%s:%s", i.pid, i.start, i.marker, i.boot)
}

func parseIdentity(s string) (i identity, err error) {
	part := strings.Split(s, ":")
	if len(part) != 4 || part[2] == "" || part[3] == "" {
		return i, errNoSuchName(Process, s)
	}
	i.marker, i.boot = part[2], part[3]
	pid, perr := strconv.Atoi(part[0])
	start, serr := strconv.ParseUint(part[1], 10, 64)
	if perr != nil || serr != nil || pid <= 1 {
		return i, errNoSuchName(Process, s)
	}
	i.pid, i.start = pid, start
	return i, nil
}

// Times of the end of a process group.
const (
	termGrace    = 5 * time.Second // between SIGTERM and SIGKILL
	pollInterval = 20 * time.Millisecond
)

// End ends the processes of a leased process group and returns when all have ended. It never signals a process
// outside of the group, also after a reuse of a pid.
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
