package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// The reserve of an earlier version is found under its old name.
func TestReserveOfAnEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, oldReserveFile), "reserved")
	var log strings.Builder
	d := newDiskSpace(dir, 0, zerolog.New(&log))
	newDiskSpace(dir, 0, zerolog.New(&log))
	if text, err := os.ReadFile(d.reserve()); err != nil || string(text) != "reserved" {
		t.Errorf("reserve %q, %v", text, err)
	}
	if d.full(true); exists(d.reserve()) || exists(filepath.Join(dir, oldReserveFile)) || log.Len() > 0 {
		t.Errorf("a reserve is left, log %s", &log)
	}
}
