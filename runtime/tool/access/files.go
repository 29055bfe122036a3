package access

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

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
// Other systems than Linux cannot open an entry of a directory without side effects. On macOS therefore:
//
//   - A directory on the path needs read permission.
//   - An entry that is replaced during a call may be opened, but is neither read nor changed.
//   - OpenFile does not open an existing file for writing, because its other names cannot be excluded. WriteFile
//     replaces it.
//
// On Windows every operation is UNIMPLEMENTED.
type Files struct {
	check     Check
	onRefusal RefusalFunc
}

// NewFiles returns Files that ask check before each access.
func NewFiles(check Check) *Files { return &Files{check: check} }

// OnRefusal returns a copy of f that calls report for each operation that f itself refuses.
func (f *Files) OnRefusal(report RefusalFunc) *Files { return &Files{f.check, report} }

// clean returns the path in the form for Check.
func clean(name string) (string, error) {
	switch {
	case name == "":
		return "", malformed(name, "the path is empty")
	case len(name) > maxPath:
		return "", malformed(name[:64]+"…", "the path is too long")
	case !isPlain(name):
		return "", malformed(name, "the path has control characters or is not UTF-8")
	case !path.IsAbs(name):
		return "", malformed(name, "the path is not absolute")
	}
	return path.Clean(name), nil
}

// refused returns an error that does not reveal the real path.
func refused(asked string) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, "%s leads out of what the job may touch", asked)
}

func notRegular(asked string) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, "%s is neither a regular file nor a directory", asked)
}

// request is an operation on a path.
type request struct {
	op        string
	asked     string
	namespace string                  // the last namespace that the operation needs
	covers    func(path string) error // checks the authority over a real path
	onRefusal RefusalFunc
}

// newRequest checks the authority over the requested path.
func (f *Files) newRequest(name string, in intent) (r request, err error) {
	asked, err := clean(name)
	if err != nil {
		return r, err
	}
	for _, ns := range in.namespaces {
		if err := f.check.ask(ns, asked); err != nil {
			return r, err
		}
	}
	return request{
		op:        in.op,
		asked:     asked,
		namespace: in.namespaces[len(in.namespaces)-1],
		covers:    func(path string) error { return f.checkReal(in.namespaces, asked, path) },
		onRefusal: f.onRefusal,
	}, nil
}

func (r *request) refuse(err *arcp.Error) error { return r.onRefusal.refuse(r.namespace, err) }

func (r *request) fail(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errEscape):
		return r.refuse(refused(r.asked))
	}
	return &fs.PathError{Op: r.op, Path: r.asked, Err: err}
}

// admit checks the authority over the real path. It returns the error of the walk only for a path within the
// authority.
func (r *request) admit(w *walked, in intent) error {
	if wire, ok := errors.AsType[*arcp.Error](w.err); ok {
		return wire
	}
	if errors.Is(w.err, errEscape) {
		return r.refuse(refused(r.asked))
	}
	if real := w.real(); real != r.asked {
		if err := r.covers(real); err != nil {
			return err
		}
	}
	if in.create && len(w.lost) > 0 {
		return nil
	}
	return r.fail(w.err)
}

// intent is an operation before its path is resolved.
type intent struct {
	op         string
	namespaces []string
	nofollow   bool // the operation applies to a symlink at the end of the path, not to its target
	create     bool // names may be missing; target.lost lists them
}

var (
	reading = []string{arcp.NamespaceFSRead}
	writing = []string{arcp.NamespaceFSWrite}
	both    = []string{arcp.NamespaceFSRead, arcp.NamespaceFSWrite}
)

// checkReal checks the authority over the real path. A refusal does not reveal the path.
func (f *Files) checkReal(namespaces []string, asked, real string) error {
	if !isPlain(real) {
		return refused(asked)
	}
	for _, ns := range namespaces {
		err := f.check.ask(ns, real)
		if err == nil {
			continue
		}
		wire, ok := errors.AsType[*arcp.Error](err)
		if ok && (wire.Code == arcp.CodePermissionDenied || wire.Code == arcp.CodeInvalidArgument) {
			return refused(asked)
		}
		return err // the end of the lease or the budget
	}
	return nil
}

// The flags that OpenFile supports.
const allFlags = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_EXCL | os.O_SYNC | os.O_TRUNC

// namespaces returns the namespaces that OpenFile needs for the flags.
func namespaces(path string, flag int) ([]string, error) {
	if flag&^allFlags != 0 {
		return nil, malformed(path, "this flag is not supported")
	}
	mode := flag & (os.O_WRONLY | os.O_RDWR)
	changes := flag & (os.O_CREATE | os.O_TRUNC | os.O_APPEND | os.O_EXCL)
	switch {
	case mode == os.O_WRONLY:
		return writing, nil
	case mode == os.O_RDWR:
		return both, nil
	case mode == os.O_RDONLY && changes == 0:
		return reading, nil
	}
	return nil, malformed(path, "a file that is only read is not created or changed")
}

// Open opens a regular file for reading. The job needs fs.read.
func (f *Files) Open(path string) (*os.File, error) {
	return f.OpenFile(path, os.O_RDONLY, 0)
}

// ReadFile returns the content of a file. The job needs fs.read. The error is RESOURCE_EXHAUSTED for more than limit
// bytes.
func (f *Files) ReadFile(path string, limit int64) ([]byte, error) {
	file, err := f.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, max(limit, 0)))
	if err != nil {
		return nil, err
	}
	if n, err := file.Read(make([]byte, 1)); n > 0 {
		return nil, tooLarge(file.Name(), limit)
	} else if err != io.EOF {
		return nil, err
	}
	return data, nil
}

// Create creates or empties a file for writing. The job needs fs.write. Unlike with os.Create, the file cannot be
// read.
func (f *Files) Create(path string) (*os.File, error) {
	return f.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
}

// cause returns the error in a path error, without the path.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func sortByName(list []fs.DirEntry) {
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
}
