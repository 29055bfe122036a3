//go:build !linux

package bench

import "errors"

// selfCPU returns 0: this system is not measured.
func selfCPU() float64 { return 0 }

// processCPU returns 0: this system is not measured.
func processCPU(int) float64 { return 0 }

// residentMemory returns an error: this system is not measured.
func residentMemory(int) (int64, error) {
	return 0, errors.New("the memory of a process is measured on Linux only")
}
