//go:build race

package mcp

// huge is less with the race detector, which makes it take twenty times as long.
const huge = 64 << 20
