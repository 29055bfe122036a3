//go:build race

package runtime_test

// noiseFrames is how many random frames a runtime is sent over each transport.
// The race detector makes each cost ten times as much.
const noiseFrames = 24_000

// racing: the detector slows clients and servers unevenly and keeps memory of its
// own, so that the size of the heap says little.
const racing = true
