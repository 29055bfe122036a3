package main

// machineMemory returns the memory of the machine in bytes, or the limit of the cgroup if that is less; 0 if unknown.
func machineMemory() int64 { return memoryOf("/proc/meminfo", "/sys/fs/cgroup/memory.max") }
