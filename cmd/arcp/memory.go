package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// maxArguments returns --max-arguments, or a quarter of the memory. If the memory is unknown it returns 0, the default of
// the runtime.
func maxArguments(v *settings.Values) int64 {
	if n := v.Size("max-arguments"); n > 0 {
		return n
	}
	return memoryOf("/proc/meminfo", "/sys/fs/cgroup/memory.max") / 4
}

// memoryOf returns the memory of the machine in bytes, or the limit of the cgroup if that is less; 0 if unknown.
func memoryOf(meminfo, cgroup string) int64 {
	var total int64
	text, err := os.ReadFile(meminfo)
	if _, rest, ok := bytes.Cut(text, []byte("MemTotal:")); err == nil && ok {
		if _, err := fmt.Sscanf(string(rest), "%d kB", &total); err == nil {
			total <<= 10
		}
	}
	text, err = os.ReadFile(cgroup)
	if err != nil {
		return total
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no limit
	if err == nil && limit > 0 && (total == 0 || limit < total) {
		return limit
	}
	return total
}
