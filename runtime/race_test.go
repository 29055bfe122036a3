//go:build race

package runtime_test

// noiseFrames is how many random frames a runtime is sent over each transport.
// The race detector makes each cost ten times as much.
const noiseFrames = 24_000
