package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// benchSupported returns nil: Linux can be measured.
func benchSupported() error { return nil }

// splitCores pins this process to all available cores except the first, and returns the first for the runtime. With one
// core it returns nil.
func splitCores(stderr io.Writer) (server []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the cores of this process: %w", err)
	}
	var cores []int
	for cpu := range len(set) * strconv.IntSize {
		if set.IsSet(cpu) {
			cores = append(cores, cpu)
		}
	}
	if len(cores) < 2 {
		fmt.Fprintln(stderr, "only one core: the runtime and the load generator share it")
		return nil, nil
	}
	runtime.GOMAXPROCS(len(cores) - 1)
	return cores[:1], pinProcess(cores[1:])
}

// pinProcess pins all threads. New threads inherit their cores. The second pass pins threads created during the first.
func pinProcess(cpus []int) error {
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err == nil {
				err = pinThread(tid, cpus)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("pin thread %s: %w", t.Name(), err)
			}
		}
	}
	return nil
}

const tmpfsMagic = 0x01021994

func warnTmpfs(stderr io.Writer, dir string) {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil && fs.Type == tmpfsMagic {
		fmt.Fprintf(stderr, "%s is in memory: durable rows do not measure a disk; give --data DIR\n", dir)
	}
}
