package main

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes makes the kernel kill a child at the end of this process.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// terminate sends SIGTERM.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// start starts the process on its processors.
func (f fork) start() error {
	if f.cpus == nil {
		return f.cmd.Start()
	}
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if err := pinThread(0, f.cpus); err != nil {
		return err
	}
	return errors.Join(f.cmd.Start(), unix.SchedSetaffinity(0, &before))
}

// pinThread restricts a thread to some processors; 0 is the calling thread.
func pinThread(tid int, cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(tid, &set)
}
