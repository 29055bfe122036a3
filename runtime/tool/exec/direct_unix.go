//go:build unix

package exec

import (
	"errors"
	"os/exec"
	"syscall"
	"time"
)

// group is the process group of a command. A process that has left the group is not in it.
type group struct {
	id int // the process id of the command
}

// startGroup starts a command in a session and a process group of its own.
func startGroup(cmd *exec.Cmd) (*group, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &group{cmd.Process.Pid}, nil
}

// terminate sends SIGTERM to the group.
func (g *group) terminate() error { return syscall.Kill(-g.id, syscall.SIGTERM) }

// killAll kills the group until it has no process. After killTimeout it returns 1, because the number of the
// processes is unknown.
func (g *group) killAll() int {
	deadline := time.Now().Add(killTimeout)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := syscall.Kill(-g.id, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return 0
		}
		if time.Now().After(deadline) {
			return 1
		}
		time.Sleep(pause)
	}
}

// close does nothing: a process group has no handle.
func (g *group) close() {}
