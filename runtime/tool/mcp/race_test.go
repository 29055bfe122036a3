//go:build race

package mcp

// huge is smaller with the race detector, which slows the test down twenty times.
const huge = 64 << 20
