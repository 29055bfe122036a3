package arcpd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// What the server has inherited from whoever started it is closed in all that it starts.
func TestServerHandsNothingOn(t *testing.T) {
	const fd = 9
	bin := filepath.Join(t.TempDir(), "left-open")
	script := fmt.Sprintf("#!/bin/sh\nexec %d</dev/null\nexec '%s' \"$@\"\n", fd, binary(t))
	if err := os.WriteFile(bin, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p := startServer(t, bin, ":memory:")
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", p.cmd.Process.Pid, fd))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`flags:\s*([0-7]+)`).FindSubmatch(info)
	if m == nil {
		t.Fatalf("no flags in %s", info)
	}
	if flags, err := strconv.ParseUint(string(m[1]), 8, 64); err != nil || flags&unix.O_CLOEXEC == 0 {
		t.Errorf("flags %s, %v: programs that the server starts inherit the file", m[1], err)
	}
}
