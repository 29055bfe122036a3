package artifact

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of the range that one request reads, in bytes. A range is twice as large as the one before, so
// that a reader of a chunk does not request more, and a reader of all needs few requests.
const (
	minRange = 256 << 10
	maxRange = 16 << 20
)

// s3Reader reads an object. One goroutine uses it.
type s3Reader struct {
	s      *S3
	id     arcp.ArtifactID
	size   int64
	offset int64
	length int64 // of the last range; 0: none since Seek
	closed bool

	body  io.ReadCloser // of the range from offset on; nil: no request
	end   int64         // of the range
	stop  context.CancelFunc
	stall *time.Timer // calls stop
}

// Read implements io.Reader. It continues after a connection that breaks: an error without a byte after a
// second request is final.
func (r *s3Reader) Read(p []byte) (n int, err error) {
	if r.closed {
		return 0, fs.ErrClosed
	}
	for attempt := 0; attempt < 2 && r.offset < r.size && len(p) > 0; attempt++ {
		if r.body == nil {
			if err = r.request(); err != nil {
				return 0, err
			}
		}
		if n, err = r.read(p); n > 0 {
			return n, nil
		}
	}
	switch {
	case r.offset >= r.size:
		return 0, io.EOF
	case errors.Is(err, io.EOF): // the object is shorter than it was
		return 0, io.ErrUnexpectedEOF
	}
	return 0, failed("read object", err)
}

// request begins to read the next range.
func (r *s3Reader) request() error {
	r.length = min(max(2*r.length, minRange), maxRange)
	r.end = min(r.offset+r.length, r.size)
	var o minio.GetObjectOptions
	if err := o.SetRange(r.offset, r.end-1); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(r.s.ctx)
	r.stop = stop
	r.stall = time.AfterFunc(requestTimeout, stop)
	body, _, _, err := r.s.api.GetObject(ctx, r.s.bucket, r.s.key(r.id), o)
	r.stall.Stop()
	if err != nil {
		stop()
		return failed("read object", err)
	}
	r.body = body
	return nil
}

// read reads from the range. It ends the request after its last byte, or an error.
func (r *s3Reader) read(p []byte) (n int, err error) {
	r.stall.Reset(stallTimeout)
	n, err = r.body.Read(p[:min(int64(len(p)), r.end-r.offset)])
	r.stall.Stop()
	r.offset += int64(n)
	if err != nil || r.offset == r.end {
		r.endRequest()
	}
	return n, err
}

func (r *s3Reader) endRequest() {
	if r.body == nil {
		return
	}
	_ = r.body.Close() // what was read is complete
	r.stop()
	r.body = nil
}

// Seek implements io.Seeker.
func (r *s3Reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 || whence < io.SeekStart || whence > io.SeekEnd {
		return 0, fs.ErrInvalid
	}
	if offset != r.offset {
		r.endRequest()
		r.offset, r.length = offset, 0
	}
	return offset, nil
}

// Close implements io.Closer.
func (r *s3Reader) Close() error {
	if r.closed {
		return fs.ErrClosed
	}
	r.closed = true
	r.endRequest()
	return r.s.release(r.id)
}
