package access

import (
	"errors"
	"slices"
	"strings"
)

const (
	maxPath  = 4096  // bytes of a path and of a symlink's target, as on Linux
	maxLinks = 40    // symlinks on one path, as on Linux
	maxSteps = 10000 // look-ups for one path; hostile links would need millions
)

// errEscape ends a walk that leaves the authority, whether or not a file exists.
var errEscape = errors.New("the path leads out of the job's authority")

// walked is the part of a path that a walk has resolved. After an error, names ends where the walk failed.
type walked struct {
	names []string // the real path
	err   error    // reason for an early end; nil: the entry exists
	lost  []string // missing names, the first one in the directory of the end; set if they are the only reason of err
}

func (w *walked) real() string { return join(w.names) }

// missing reports whether only the last name of the path does not exist.
func (w *walked) missing() bool { return len(w.lost) == 1 }

// finish completes the path of a walk that failed at name with some names left. The rest of the path is part of
// the real path, unless it contains "..": then the target is unknown, and the authority must cover the path of
// the failure. missing says that name does not exist.
func (w *walked) finish(name string, rest []string, missing bool) {
	dir := len(w.names)
	if name != "" {
		w.names = append(w.names, name)
	}
	if slices.Contains(rest, "..") {
		return
	}
	w.names = append(w.names, rest...)
	if missing {
		w.lost = w.names[dir:]
	}
}

// within reports whether path is dir or below it.
func within(path, dir []string) bool {
	return len(path) >= len(dir) && slices.Equal(path[:len(dir)], dir)
}

// split returns the names of a path, including "..".
func split(path string) []string {
	var names []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

func join(names []string) string { return "/" + strings.Join(names, "/") }
