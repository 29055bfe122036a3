package conformance

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a program start without the console of this process.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// terminateGroup kills a program, because Windows has no signals.
func terminateGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

// killGroup kills a program.
func killGroup(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // it may have ended
}
