// Package e2e has the end-to-end tests: they build the arcp command, start it as a process and
// speak with it over sockets, kill it and start it again. They run in the root of the module
// and are skipped with -short.
package e2e
