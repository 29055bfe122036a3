package artifact

import (
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// blockSize is the size from which content gets another block, in bytes.
const blockSize = 256 << 10

// Memory is a Content in the memory of this process. Its zero value is empty.
type Memory struct {
	mu   sync.Mutex
	byID map[arcp.ArtifactID]*blocks
}

// blocks is content in parts of at most MaxInline bytes. The content of one large Write is one part.
type blocks struct {
	parts  [][]byte
	starts []int64 // of each part
	size   int64
}

// Create implements Content.
func (m *Memory) Create(_ string, id arcp.ArtifactID) (Writer, error) {
	return &memoryWriter{memory: m, id: id, content: new(blocks)}, nil
}

// Open implements Content.
func (m *Memory) Open(id arcp.ArtifactID) (io.ReadSeekCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	content, ok := m.byID[id]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return memoryReader{io.NewSectionReader(content, 0, content.size), content}, nil
}

// memoryReader reads content in the memory of this process. Nothing outside the process can have
// changed it, so its digest needs no comparison.
type memoryReader struct {
	*io.SectionReader
	content *blocks
}

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
	content *blocks
}

func (w *memoryWriter) Write(p []byte) (int, error) { return w.content.Write(p) }

func (w *memoryWriter) Commit() error {
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	if w.memory.byID == nil {
		w.memory.byID = make(map[arcp.ArtifactID]*blocks)
	}
	w.memory.byID[w.id] = w.content
	return nil
}

func (w *memoryWriter) Abort() { w.content = new(blocks) }

// Write implements io.Writer. It copies p.
func (b *blocks) Write(p []byte) (n int, err error) {
	for n < len(p) {
		last, room := len(b.parts)-1, 0
		if last >= 0 {
			room = blockSize - len(b.parts[last])
		}
		if room <= 0 {
			b.parts, b.starts = append(b.parts, nil), append(b.starts, b.size)
			last, room = last+1, MaxInline
		}
		more := p[n:min(len(p), n+room)]
		b.parts[last] = append(b.parts[last], more...)
		b.size += int64(len(more))
		n += len(more)
	}
	return n, nil
}

// ReadAt implements io.ReaderAt.
func (b *blocks) ReadAt(p []byte, off int64) (n int, err error) {
	i, found := slices.BinarySearch(b.starts, off)
	if !found {
		i-- // the part before has the byte at off
	}
	for n < len(p) {
		at := off + int64(n)
		if at >= b.size {
			return n, io.EOF
		}
		n += copy(p[n:], b.parts[i][at-b.starts[i]:])
		i++
	}
	return n, nil
}

// whole returns the content if it is one part, otherwise nil. The caller must not change it.
func (r memoryReader) whole() []byte {
	if len(r.content.parts) != 1 {
		return nil
	}
	return slices.Clip(r.content.parts[0])
}
