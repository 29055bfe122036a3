package exec

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sandboxed returns a command line that runs a program in bubblewrap:
//   - in a process namespace that ends with its first process, which ends with its parent;
//   - with a read-only file system and a writable dir;
//   - with empty /tmp and /run, which have the sockets of programs that start others on request;
//   - with the network of the host;
//   - without capabilities, with which root could unmount a cover.
func sandboxed(bwrap string, hide []string, program, dir string, args []string) ([]string, error) {
	line := []string{bwrap, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL",
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run",
		"--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"} // for name resolution
	covers, err := coversOf(hide, resolveLinks(dir))
	if err != nil {
		return nil, err
	}
	var end []string
	for _, c := range covers {
		if !emptied(c.dir) && !below(c.dir, resolveLinks(dir)) {
			line, end = append(line, c.mounts...), append(end, c.end...)
		}
	}
	line = append(line, "--bind", resolveLinks(dir), resolveLinks(dir))
	for _, c := range covers {
		if below(c.dir, resolveLinks(dir)) { // the bind mount of dir would uncover it
			line, end = append(line, c.mounts...), append(end, c.end...)
		}
	}
	line = append(line, "--ro-bind", resolveLinks(program), resolveLinks(program))
	if emptied(program) && program != resolveLinks(program) {
		line = append(line, "--symlink", resolveLinks(program), program)
	}
	line = append(append(line, end...), "--chdir", resolveLinks(dir), "--", program)
	return append(line, args...), nil
}

// cover hides files in a directory, or the whole directory.
type cover struct {
	dir    string
	hidden []string // names of the hidden files; nil: the whole directory
	mounts []string // arguments of bubblewrap
	end    []string // arguments that follow all mounts
}

// coversOf returns the covers that hide files and directories from a command in dir, outermost first. It
// ignores paths that do not exist.
func coversOf(hide []string, dir string) ([]*cover, error) {
	places := map[string]*cover{}
	for _, h := range hide {
		info, err := os.Stat(h)
		switch {
		case err != nil:
		case info.IsDir():
			places[resolveLinks(h)] = &cover{dir: resolveLinks(h)}
		default:
			for _, name := range linkChain(h) {
				in, base := filepath.Split(name)
				in = resolveLinks(in)
				c := places[in]
				if c == nil {
					c = &cover{dir: in, hidden: []string{}}
					places[in] = c
				}
				if c.hidden != nil {
					c.hidden = append(c.hidden, base)
				}
			}
		}
	}
	maps.DeleteFunc(places, func(in string, _ *cover) bool { // within a directory that is hidden as a whole
		for _, c := range places {
			if c.hidden == nil && c.dir != in && below(in, c.dir) {
				return true
			}
		}
		return false
	})
	covers := slices.SortedFunc(maps.Values(places), func(a, b *cover) int { return strings.Compare(a.dir, b.dir) })
	for _, c := range covers {
		if c.dir == dir && c.hidden != nil {
			c.planFiles()
		} else if err := c.planDirectory(); err != nil {
			return nil, err
		}
	}
	return covers, nil
}

// maxLinks bounds a chain of symbolic links.
const maxLinks = 40

// linkChain returns the name of a file and, if it is a symbolic link, all targets of the chain of links.
func linkChain(name string) (names []string) {
	for range maxLinks {
		names = append(names, name)
		to, err := os.Readlink(name)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(resolveLinks(filepath.Dir(name)), to)
		}
		name = to
	}
	return names
}

// maxBeside bounds the entries of a directory in which a file is hidden.
const maxBeside = 2000

// planFiles hides files in the working directory, over which no directory can be mounted. A hidden file becomes readable
// when another file is renamed to its name: Check logs a warning.
func (c *cover) planFiles() {
	for _, h := range c.hidden {
		if name := filepath.Join(c.dir, h); name == resolveLinks(name) { // the target of a link has its own cover
			c.mounts = append(c.mounts, "--ro-bind", os.DevNull, name)
		}
	}
}

// planDirectory hides a directory, or files in it. For files it mounts an empty directory and binds the other
// entries there. A mount on the file itself would disappear when another file is renamed to its name,
// as most programs replace files.
func (c *cover) planDirectory() error {
	c.mounts, c.end = []string{"--tmpfs", c.dir}, []string{"--remount-ro", c.dir}
	if c.hidden == nil {
		return nil
	}
	if c.dir == "/" {
		return fmt.Errorf("sandbox: %s has secrets of the server and is in /, where it cannot be hidden: move it to a directory of its own", c.hidden[0])
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("sandbox: hide %s: %w", c.hidden[0], err)
	}
	if len(entries) > maxBeside {
		return fmt.Errorf("sandbox: %s has %d entries beside a file with secrets of the server; it may have %d: move that to a directory of its own", c.dir, len(entries), maxBeside)
	}
	for _, e := range entries {
		name := filepath.Join(c.dir, e.Name())
		switch {
		case c.hides(e.Name()):
		case e.Type()&os.ModeSymlink != 0:
			if to, err := os.Readlink(name); err == nil {
				c.mounts = append(c.mounts, "--symlink", to, name)
			}
		default:
			c.mounts = append(c.mounts, "--ro-bind-try", name, name)
		}
	}
	return nil
}

// hides reports whether an entry is a hidden file, or by its name a temporary copy of a hidden file.
func (c *cover) hides(entry string) bool {
	return slices.ContainsFunc(c.hidden, func(h string) bool {
		return strings.HasPrefix(strings.TrimLeft(entry, ".#~"), strings.TrimLeft(h, ".#~"))
	})
}

// resolveLinks returns a path with all symbolic links resolved. bubblewrap cannot mount over a link to an absolute path, and
// a file is readable through every link.
func resolveLinks(name string) string {
	if r, err := filepath.EvalSymlinks(name); err == nil {
		return r
	}
	return name
}

// below reports whether a path is a directory or below it.
func below(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// emptied reports whether a path is in a directory that is empty in a sandbox.
func emptied(name string) bool { return below(name, "/tmp") || below(name, "/run") }
