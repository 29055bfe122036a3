// Package access opens files and fetches URLs for tools. Files and Fetcher check the job's
// authority on each access, so that a tool cannot forget to.
//
// # Files
//
// Two paths are checked: the requested one, and the real one with every symlink resolved. The
// real path is opened through directory descriptors, name by name, without following symlinks,
// so the file that was checked is the file that is opened, even while another process renames
// things. A missing file outside of the job's authority looks like an existing one: both are
// PERMISSION_DENIED.
//
// Limits. A lease covers paths. A file with a second name (a hard link) is readable by any
// covered name. A directory that another process moves away during use is used at its new
// place. A file that is open stays open when the lease ends. Mounts are part of the tree. A
// directory on the way needs only search permission, as for any program. A tool that imports
// os is not confined.
//
// # Network
//
// The URL of a request and of each redirect is checked, and sent as it was checked. The
// dialled address is checked after name resolution, so an answer that changes between check
// and dial gains nothing.
package access

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// Check asks the authority of a job whether an operation is allowed; nil: it is. target is an
// absolute path, taken literally (a % in it is a %), or a URL without userinfo, query and
// fragment. Each call is one authority-bearing operation. It may be called by many goroutines.
//
// The tool receives the error for its own target unchanged. A PERMISSION_DENIED for the real
// location of a path is replaced, as it would reveal that location.
type Check func(namespace, target string) error

// RefusalFunc is called for each operation that is refused although the Check allows it, because
// of the file at the path or the address of the host. Many goroutines may call it.
type RefusalFunc func(namespace string, err *arcp.Error)

// refuse reports a refusal and returns it.
func (t RefusalFunc) refuse(namespace string, err *arcp.Error) error {
	if t != nil {
		t(namespace, err)
	}
	return err
}

// may asks c. Without a Check nothing is allowed.
func (c Check) may(namespace, target string) error {
	if c == nil {
		return arcp.Errorf(arcp.CodePermissionDenied, "%s of %s: the job has no authority", namespace, target)
	}
	return c(namespace, target)
}

func malformed(what, why string) error {
	return arcp.Errorf(arcp.CodeInvalidArgument, "%q: %s", what, why)
}

// tooLarge is not retryable: a retry reads the same size.
func tooLarge(what string, limit int64) error {
	err := arcp.Errorf(arcp.CodeResourceExhausted, "%s is larger than %d", what, limit)
	err.Retryable = false
	return err
}

// plain reports whether s is text that a log shows unchanged.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
