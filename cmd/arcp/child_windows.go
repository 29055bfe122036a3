package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// childAttributes gives a child a process group of its own, which terminate needs. A child remains if this
// process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// terminate sends CTRL_BREAK, which a Go program receives as os.Interrupt.
func terminate(p *os.Process) error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.Pid))
}

// start starts the process.
func (f fork) start() error { return f.cmd.Start() }
