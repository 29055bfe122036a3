package main

import (
	"path/filepath"
	"testing"
)

func TestMemoryIsBoundedByTheCgroup(t *testing.T) {
	dir := t.TempDir()
	info := write(t, filepath.Join(dir, "meminfo"), "MemTotal:       8000 kB\nMemFree: 1 kB\n")
	for name, c := range map[string]struct {
		meminfo, cgroup string
		want            int64
	}{
		"no cgroup":          {info, filepath.Join(dir, "none"), 8000 << 10},
		"a cgroup without":   {info, write(t, filepath.Join(dir, "max"), "max\n"), 8000 << 10},
		"a small cgroup":     {info, write(t, filepath.Join(dir, "small"), "1048576\n"), 1 << 20},
		"a large cgroup":     {info, write(t, filepath.Join(dir, "large"), "99999999999\n"), 8000 << 10},
		"the cgroup alone":   {filepath.Join(dir, "none"), filepath.Join(dir, "small"), 1 << 20},
		"nothing":            {filepath.Join(dir, "none"), filepath.Join(dir, "none"), 0},
		"what nobody can be": {write(t, filepath.Join(dir, "odd"), "MemTotal: x\n"), filepath.Join(dir, "none"), 0},
	} {
		if got := memoryOf(c.meminfo, c.cgroup); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}
