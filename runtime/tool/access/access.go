// Package access opens files and fetches URLs for tools. Files and Fetcher check the job's authority
// on each access.
//
// # Files
//
// Files checks two paths: the requested path, and the real path with every symlink resolved. It
// opens the real path through directory descriptors, name by name, without following symlinks.
// The opened file is therefore the checked file, even while another process renames files. A
// missing file outside of the job's authority and an existing one are both PERMISSION_DENIED.
//
// Limits:
//   - A lease covers paths. A file with several names (hard links) is readable by any covered name.
//   - A directory that another process moves during use is used at its new path.
//   - An open file remains open after the end of the lease.
//   - Mounts are part of the tree.
//   - A directory on the path needs only search permission, as for any program.
//   - A tool that imports os is not confined.
//
// # Network
//
// Fetcher checks the URL of a request and of each redirect, and sends the checked URL. It checks the
// dialled address after name resolution, so a changing DNS answer has no effect.
package access

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// Check returns nil if the authority of a job allows an operation. target is an absolute path in which %
// has no special meaning, or a URL without userinfo, query and fragment. Each call counts as one
// operation of the job. Many goroutines may call a Check.
//
// The tool receives the error for its own target unchanged. Files replaces a PERMISSION_DENIED for
// the real location of a path, because the error would reveal the location.
type Check func(namespace, target string) error

// RefusalFunc receives each operation that the Check allows but Files or Fetcher refuses, because of the file
// at the path or the address of the host. Many goroutines may call it.
type RefusalFunc func(namespace string, err *arcp.Error)

// refuse reports a refusal and returns it.
func (rf RefusalFunc) refuse(namespace string, err *arcp.Error) error {
	if rf != nil {
		rf(namespace, err)
	}
	return err
}

// ask calls c. A nil Check allows no operation.
func (c Check) ask(namespace, target string) error {
	if c == nil {
		return arcp.Errorf(arcp.CodePermissionDenied, "%s of %s: the job has no authority", namespace, target)
	}
	return c(namespace, target)
}

func malformed(name, reason string) error {
	return arcp.Errorf(arcp.CodeInvalidArgument, "%q: %s", name, reason)
}

// tooLarge returns an error that is not retryable, because a retry has the same size.
func tooLarge(source string, limit int64) error {
	err := arcp.Errorf(arcp.CodeResourceExhausted, "%s is larger than %d", source, limit)
	err.Retryable = false
	return err
}

// isPlain reports whether s is valid UTF-8 without control characters.
func isPlain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
