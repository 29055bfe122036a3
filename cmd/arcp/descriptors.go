package main

import (
	"fmt"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// Largest number of file descriptors reserved for other uses than connections, and of these for store tables.
const (
	maxReserve    = 2048
	maxStoreFiles = 1000
)

func reserve(files int) int { return min(files/2, maxReserve) }

// maxConnections returns --max-connections, or the share of the descriptor limit if that is less; negative: no
// limit. The rest is reserved, mainly for files of the store.
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

// storeFiles returns the number of tables that the store may have open.
func storeFiles() int {
	files, ok := maxDescriptors()
	if !ok {
		return maxStoreFiles
	}
	return min(maxStoreFiles, reserve(files)/2)
}

// fewConnections is the number of connections below which a warning is logged.
const fewConnections = 1024

// descriptorsWarning returns a warning if the descriptor limit allows fewer connections than configured, or few;
// else "".
func descriptorsWarning(v *settings.Values) string {
	n, want := maxConnections(v), off(v.Number("max-connections"))
	if n < 0 || n == want || !v.IsSet("max-connections") && n >= fewConnections {
		return ""
	}
	files, _ := maxDescriptors()
	return fmt.Sprintf("the limit of %d open files allows %d connections; raise the limit (LimitNOFILE=, ulimit -Hn) for more", files, n)
}
