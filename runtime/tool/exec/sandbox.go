package exec

import (
	"os"
	"path/filepath"
	"strings"
)

// sandboxed is a command line that runs a program by bubblewrap: in process ids of its
// own, which end with its first process, and that with its parent; with the file
// system to read, dir to write, and /tmp and /run empty. The sockets by which
// other programs could be asked to start something are in /run. The network is
// that of the host. Root has no capabilities in it: with them it could take away
// what hides a file.
func sandboxed(bwrap string, hide []string, program, dir string, args []string) []string {
	line := []string{bwrap, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL",
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run",
		"--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"} // names are looked up by what is there
	for _, h := range hide {
		line = append(line, cover(real(h))...)
	}
	line = append(line, "--bind", real(dir), real(dir))
	for _, h := range hide {
		if h = real(h); below(h, real(dir)) { // dir has shown it again
			line = append(line, cover(h)...)
		}
	}
	line = append(line, "--ro-bind", real(program), real(program))
	if emptied(program) && program != real(program) {
		line = append(line, "--symlink", real(program), program)
	}
	line = append(line, "--chdir", real(dir), "--", program)
	return append(line, args...)
}

// cover hides a file or directory. One that is not there needs none.
func cover(name string) []string {
	switch info, err := os.Stat(name); {
	case err != nil:
		return nil
	case info.IsDir():
		return []string{"--tmpfs", name}
	}
	return []string{"--ro-bind", os.DevNull, name}
}

// real is where a path leads to: bubblewrap cannot mount over a link to an absolute
// path, and a file can be read by all that lead to it.
func real(name string) string {
	if r, err := filepath.EvalSymlinks(name); err == nil {
		return r
	}
	return name
}

// below reports whether a path is below a directory, or is it.
func below(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// emptied reports whether a path is in a directory that is empty in a sandbox.
func emptied(name string) bool { return below(name, "/tmp") || below(name, "/run") }
