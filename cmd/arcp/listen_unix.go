//go:build unix

package main

import "syscall"

// Errors of a bind.
const (
	errInUse  = syscall.EADDRINUSE
	errDenied = syscall.EACCES
)

// otherPort is the remedy for errDenied.
const otherPort = "give a port above 1023"
