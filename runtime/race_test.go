//go:build race

package runtime_test

// racing: the detector slows clients and servers unevenly and keeps memory of its
// own, so that the size of the heap says little.
const racing = true
