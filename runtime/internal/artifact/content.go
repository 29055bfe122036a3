package artifact

import (
	"errors"
	"io"

	"github.com/arcpd/arcpd/arcp"
)

// ErrUnavailable is the error of a Content on another machine that does not answer, or that refuses the
// request.
var ErrUnavailable = errors.New("the storage of artifacts is not available")

// Content holds the content of artifacts. Any goroutine may call its methods. All implementations
// pass one test suite, in content_test.go.
type Content interface {
	// Create begins the content of an artifact of a principal. The id must not be in use.
	Create(principal string, id arcp.ArtifactID) (Writer, error)

	// Open opens the content of an artifact. It stays readable until it is closed, also after
	// Remove. The error is fs.ErrNotExist if there is no content.
	Open(id arcp.ArtifactID) (io.ReadSeekCloser, error)

	// Remove removes the content of an artifact, also unfinished content that nothing writes. It
	// returns nil if there is none.
	Remove(id arcp.ArtifactID) error

	// Recover removes unfinished content of an earlier process, and returns the ids with content.
	// It is called before all other methods.
	Recover() ([]arcp.ArtifactID, error)
}

// Writer writes the content of an artifact. One goroutine uses it, and calls Commit or Abort at the
// end.
type Writer interface {
	io.Writer

	// Commit makes the content durable. After an error Content.Remove removes what may be left.
	Commit() error

	// Abort discards the content.
	Abort()
}
