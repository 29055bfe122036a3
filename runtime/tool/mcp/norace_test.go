//go:build !race

package mcp

// huge is a result that no server means well with.
const huge = 1 << 30
