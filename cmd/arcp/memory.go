package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// minMaxData is the least bound of data on disk. The logs and the files that the store rewrites take a part of it.
const minMaxData = 64 << 20

// maxData returns the bound of the stored data in bytes: --max-data, or --max-disk. The default of data in
// memory is a quarter of the memory. 0 is no bound.
func maxData(v *settings.Values) (int64, error) {
	data, disk, inMemory := v.Size("max-data"), v.Size("max-disk"), v.Text("data") == memory
	switch n := max(data, disk); {
	case data > 0 && disk > 0 && data != disk:
		return 0, usagef("%s and %s bound the same data and differ: give one of them", v.Where("max-data"), v.Where("max-disk"))
	case n == 0 && inMemory:
		return quarterOfMemory(), nil
	case n > 0 && n < minMaxData && !inMemory:
		name := "max-data"
		if data == 0 {
			name = "max-disk"
		}
		return 0, usagef("%s is too little for data on disk: give at least 64MiB, or 0 for no bound", v.Where(name))
	default:
		return n, nil
	}
}

// maxArguments returns --max-arguments, or a quarter of the memory. If the memory is unknown it returns 0, the default of
// the runtime.
func maxArguments(v *settings.Values) int64 {
	if n := v.Size("max-arguments"); n > 0 {
		return n
	}
	return quarterOfMemory()
}

// quarterOfMemory returns a quarter of the memory in bytes; 0 if unknown.
func quarterOfMemory() int64 { return machineMemory() / 4 }

// minMemoryLimit is the least limit that limitMemory sets. A process with many connections and little data needs it.
const minMemoryLimit = 256 << 20

// limitMemory makes the garbage collector keep the memory of the process within a tenth above the bound of the data in
// it. The variable GOMEMLIMIT has precedence.
func limitMemory(maxData int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(max(maxData+maxData/10, minMemoryLimit))
	}
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
