//go:build !linux

package main

import "io"

// benchSupported returns an error: the measurements need the processors and the /proc of Linux.
func benchSupported() error {
	return failf("bench: it measures on Linux only, where it selects the cores of a process and reads the processor time and memory of a process; run it on Linux")
}

// splitCores returns nil: benchSupported refuses before.
func splitCores(io.Writer) (server []int, err error) { return nil, nil }

// warnTmpfs does nothing: benchSupported refuses before.
func warnTmpfs(io.Writer, string) {}
