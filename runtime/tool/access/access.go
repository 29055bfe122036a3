// Package access is how a tool touches files and the network: Files and Fetcher
// ask the job's authority on the way to each of them, so that a tool which uses
// them cannot forget to.
//
// # Files
//
// Two paths are checked, the one asked for and the real one: where the path ends
// when every symlink on it is resolved. The real place is reached through
// directory descriptors, name by name, and none of these steps follows a
// symlink; what was checked is what is opened, whoever renames things meanwhile.
// What does not exist outside of the job's authority cannot be told from what
// exists there: both are PERMISSION_DENIED.
//
// Limits. A lease is about places. A file with a second name (a hard link) is
// read by whichever name is covered. A directory that another process moves away
// while it is used is used where it went. A file that is open stays open when the
// lease ends. Mounts are part of the tree. A directory needs only the permission to
// search it on the way, as for any program. None of this confines a tool that
// imports os.
//
// # Network
//
// The URL of a request and of each redirect is checked, and sent as it was
// checked. The address that is dialled is looked at after name resolution, so an
// answer that changes between the check and the dial gains nothing.
package access

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// The namespaces of a Check.
const (
	Read  = "fs.read"
	Write = "fs.write"
	Fetch = "net.fetch"
)

// Check asks the authority of a job whether it may do an operation: target is an
// absolute path, to be taken literally (a % in it is a %), or a URL without
// userinfo, query and fragment. nil: it may. Each call is one authority-bearing
// operation. It may be called by many goroutines.
//
// What it returns for what the tool asked for is returned to the tool unchanged.
// Its PERMISSION_DENIED for the real place of a path is not: it would name it.
type Check func(namespace, target string) error

// RefusalFunc is called for each operation that is refused although the Check allows it, because
// of the file at the path or the address of the host. Many goroutines may call it.
type RefusalFunc func(namespace string, err *arcp.Error)

// refuse tells of a refusal and returns it.
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

// tooLarge is not retryable: the next attempt meets the same size.
func tooLarge(what string, limit int64) error {
	err := arcp.Errorf(arcp.CodeResourceExhausted, "%s is larger than %d", what, limit)
	err.Retryable = false
	return err
}

// plain reports whether s is text that reads in a log as what it is.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
