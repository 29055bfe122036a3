package main

import (
	"math"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

func TestMaxData(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want int64
		err  string
	}{
		"a directory":        {[]string{"--data", "d"}, 0, ""},
		"data":               {[]string{"--data", "d", "--max-data", "64MiB"}, 64 << 20, ""},
		"disk":               {[]string{"--data", "d", "--max-disk", "64MiB"}, 64 << 20, ""},
		"both":               {[]string{"--data", "d", "--max-disk", "64MiB", "--max-data", "64MiB"}, 64 << 20, ""},
		"too little data":    {[]string{"--data", "d", "--max-data", "63MiB"}, 0, "--max-data is too little for data on disk: give at least 64MiB"},
		"too little disk":    {[]string{"--data", "d", "--max-disk", "1"}, 0, "--max-disk is too little for data on disk: give at least 64MiB"},
		"different":          {[]string{"--max-disk", "2MiB", "--max-data", "1MiB"}, 0, "--max-data and --max-disk bound the same data and differ"},
		"memory":             {[]string{"--data", ":memory:", "--max-data", "1MiB"}, 1 << 20, ""},
		"memory, by default": {[]string{"--data", ":memory:"}, quarterOfMemory(), ""},
	} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		settings.AddFlags(flags, nil)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		v, err := settings.Load(settings.Input{Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		got, err := maxData(v)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %d, %v; want %d and the error %q", name, got, err, c.want, c.err)
		}
	}
}

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

func TestLimitMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	for _, c := range []struct {
		env     string
		maxData int64
		want    int64
	}{
		{"1GiB", 10 << 30, math.MaxInt64},
		{"", 10 << 30, 11 << 30},
		{"", 1 << 20, minMemoryLimit},
	} {
		t.Setenv("GOMEMLIMIT", c.env)
		limitMemory(c.maxData)
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("GOMEMLIMIT=%q, %d bytes of data: a limit of %d, want %d", c.env, c.maxData, got, c.want)
		}
	}
}
