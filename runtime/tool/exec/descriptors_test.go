//go:build linux

package exec

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that this process has open, and has not marked to be closed, does not reach
// commands.
func TestCommandsInheritNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "left-open")
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR, 0o600) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const text = `for f in /proc/$$/fd/*; do readlink "$f"; done | grep -c left-open || true`
	for how, with := range map[string]func(*Config){
		"plain":   func(*Config) {},
		"bounded": within(Bounds{Files: 40}),
	} {
		out, err := call(t, boundedContext(t), script(t, text, with), newJob(), `{}`)
		if err != nil || string(out) != "0" {
			t.Errorf("%s: the file is open %s times in the command, %v", how, out, err)
		}
	}
	if out, err, _ := sandboxedScript(t, text)(); err != nil || out != "0" {
		t.Errorf("in a sandbox the file is open %s times in the command, %v", out, err)
	}
}

func TestInheritedDescriptorsAreClosed(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 100) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := CloseInherited(); err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v: it would be inherited", flags, err)
	}
}
