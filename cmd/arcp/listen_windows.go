package main

import "golang.org/x/sys/windows"

// Errors of a bind.
const (
	errInUse  = windows.WSAEADDRINUSE
	errDenied = windows.WSAEACCES
)

// otherPort is the remedy for errDenied.
const otherPort = "another program or the system has reserved the port; give another port"
