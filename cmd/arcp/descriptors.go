package main

import (
	"fmt"
	"syscall"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// Descriptors that connections leave to others, where the process may have many, and how
// many of those are for tables of the store.
const (
	maxReserve    = 2048
	maxStoreFiles = 1000
)

func reserve(files int) int { return min(files/2, maxReserve) }

// maxConnections returns --max-connections, or the share of the descriptor limit if that is
// less; negative: no limit. The rest is reserved for the store, which needs a descriptor for
// each new file.
func maxConnections(v *settings.Values) int {
	n := off(v.Number("max-connections"))
	files, ok := maxDescriptors()
	if !ok {
		return n
	}
	if room := files - reserve(files); n < 0 || room < n {
		return room
	}
	return n
}

// maxDescriptors is the limit of this process, which the Go runtime has raised as far
// as it may.
func maxDescriptors() (n int, ok bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0, false
	}
	return int(limit.Cur), true
}

// storeFiles is how many tables the store may have open.
func storeFiles() int {
	files, ok := maxDescriptors()
	if !ok {
		return maxStoreFiles
	}
	return min(maxStoreFiles, reserve(files)/2)
}

// fewConnections is fewer than a server is expected to accept.
const fewConnections = 1024

// descriptorsWarning says that descriptors allow fewer connections than was asked for,
// or few; empty: they do not.
func descriptorsWarning(v *settings.Values) string {
	n, want := maxConnections(v), off(v.Number("max-connections"))
	if n < 0 || n == want || !v.IsSet("max-connections") && n >= fewConnections {
		return ""
	}
	files, _ := maxDescriptors()
	return fmt.Sprintf("the process may have %d files open: at most %d connections are accepted; raise the limit (LimitNOFILE=, ulimit -Hn) for more", files, n)
}
