//go:build linux

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// The server closes inherited descriptors in the programs that it starts.
func TestServerHandsNothingOn(t *testing.T) {
	const fd = 9
	p := startServer(t, binaryAfter(t, fmt.Sprintf("exec %d</dev/null", fd)), ":memory:")
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
