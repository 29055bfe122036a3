//go:build !linux

package exec

// start starts a command in a group of its own. mark is the environment variable NAME=VALUE that its processes
// inherit.
var start starter = startDirect

// unsupported returns an error for settings that this system does not enforce.
func unsupported(c *Config) error { return linuxOnly(c) }

// runHook does nothing: only Linux has processes of this package.
func runHook([]string) {}
