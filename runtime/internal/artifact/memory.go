package artifact

import (
	"io"
	"io/fs"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// chunkSize bounds the memory that a Memory allocates at once, in bytes.
const chunkSize = 256 << 10

// Memory is a Content in the memory of this process. Its zero value is empty.
type Memory struct {
	mu   sync.Mutex
	byID map[arcp.ArtifactID]chunks
}

// chunks is content in parts. All but the last have chunkSize bytes.
type chunks [][]byte

// Create implements Content.
func (m *Memory) Create(_ string, id arcp.ArtifactID) (Writer, error) {
	return &memoryWriter{memory: m, id: id}, nil
}

// Open implements Content.
func (m *Memory) Open(id arcp.ArtifactID) (io.ReadSeekCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	content, ok := m.byID[id]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return memoryReader{io.NewSectionReader(content, 0, content.size())}, nil
}

// memoryReader reads content in the memory of this process. Nothing outside the process can have
// changed it, so its digest needs no comparison.
type memoryReader struct{ *io.SectionReader }

// Close implements io.Closer.
func (memoryReader) Close() error { return nil }

// Remove implements Content.
func (m *Memory) Remove(id arcp.ArtifactID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byID, id)
	return nil
}

// Recover implements Content: nothing survives the process.
func (m *Memory) Recover() ([]arcp.ArtifactID, error) { return nil, nil }

// memoryWriter is the Writer of a Memory.
type memoryWriter struct {
	memory  *Memory
	id      arcp.ArtifactID
	content chunks
}

func (w *memoryWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		last := len(w.content) - 1
		if last < 0 || len(w.content[last]) == chunkSize {
			w.content = append(w.content, nil)
			last++
		}
		more := p[n:min(len(p), n+chunkSize-len(w.content[last]))]
		w.content[last] = append(w.content[last], more...)
		n += len(more)
	}
	return n, nil
}

func (w *memoryWriter) Commit() error {
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	if w.memory.byID == nil {
		w.memory.byID = make(map[arcp.ArtifactID]chunks)
	}
	w.memory.byID[w.id] = w.content
	return nil
}

func (w *memoryWriter) Abort() { w.content = nil }

func (c chunks) size() int64 {
	if len(c) == 0 {
		return 0
	}
	last := len(c) - 1
	return int64(last)*chunkSize + int64(len(c[last]))
}

// ReadAt implements io.ReaderAt.
func (c chunks) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if at >= c.size() {
			return n, io.EOF
		}
		n += copy(p[n:], c[at/chunkSize][at%chunkSize:])
	}
	return n, nil
}
