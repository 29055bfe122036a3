//go:build !race

package runtime_test

// noiseFrames is how many random frames a runtime is sent over each transport.
const noiseFrames = 60_000

const racing = false
