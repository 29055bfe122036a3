package access

// MaxEntries bounds the entries that ReadDir returns.
const MaxEntries = 100_000

// Files opens files within the authority of a job. Many goroutines may use it. The zero value allows no operation.
//
// A path must be absolute, valid UTF-8 without control characters, and at most 4096 bytes. It is
// first cleaned as text, as path.Clean does: /a/link/../b is /a/b, and a slash at the end is removed.
//
// Files opens regular files and lists directories. A device, a fifo, a socket and a link on a proc
// file system are PERMISSION_DENIED.
//
// An error of the file system is an *fs.PathError with the requested path.
//
// Only Linux opens an entry of a directory without side effects and without following links. On other systems
// every operation is UNIMPLEMENTED.
type Files struct {
	check     Check
	onRefusal RefusalFunc
}

// NewFiles returns Files that ask check before each access.
func NewFiles(check Check) *Files { return &Files{check: check} }

// OnRefusal returns a copy of f that calls report for each operation that f itself refuses.
func (f *Files) OnRefusal(report RefusalFunc) *Files { return &Files{f.check, report} }
