//go:build !race

// Package race says whether the race detector watches the program, for tests that do less with it.
package race

// Enabled reports whether the program is built with the race detector.
const Enabled = false
