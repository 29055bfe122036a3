package main

import (
	"os"
	"syscall"
)

// childAttributes returns nil. A child remains if this process is killed.
func childAttributes() *syscall.SysProcAttr { return nil }

// terminate sends SIGTERM.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// start starts the process.
func (f fork) start() error { return f.cmd.Start() }
