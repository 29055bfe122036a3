package main

import (
	"math"
	"unsafe"

	"golang.org/x/sys/windows"
)

// memoryStatus is MEMORYSTATUSEX of the Windows API.
type memoryStatus struct {
	length, load                            uint32
	totalPhysical, freePhysical             uint64
	totalPageFile, freePageFile             uint64
	totalVirtual, freeVirtual, freeExtended uint64
}

var globalMemoryStatus = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// machineMemory returns the memory of the machine in bytes; 0 if unknown.
func machineMemory() int64 {
	var status memoryStatus
	status.length = uint32(unsafe.Sizeof(status))
	ok, _, _ := globalMemoryStatus.Call(uintptr(unsafe.Pointer(&status)))
	if ok == 0 || status.totalPhysical > math.MaxInt64 {
		return 0
	}
	return int64(status.totalPhysical)
}
