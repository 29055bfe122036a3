package credential

import (
	"os"
	"os/exec"
	"syscall"
)

// environment returns the environment of a program.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "SYSTEMROOT=" + os.Getenv("SYSTEMROOT")}
}

// isolate makes a program start without the console of this process.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// terminateGroup kills a program, because Windows has no signals.
func terminateGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

// killGroup does nothing: the program has ended, and Windows has no process groups to kill.
func killGroup(*exec.Cmd) {}
