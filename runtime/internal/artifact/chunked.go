package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of chunks, in bytes.
const (
	DefaultChunk = 256 << 10 // that ReadChunk returns
	MaxChunk     = 1 << 20   // base64 of it fits into a frame of both dialects
)

const (
	// maxUploads bounds the open uploads of a principal. Each has an open file.
	maxUploads = 16

	// UploadIdle is the time after which an upload without a chunk is discarded.
	UploadIdle = 10 * time.Minute
)

// ErrIdle is the error of an upload without a chunk for UploadIdle.
var ErrIdle = arcp.Errorf(arcp.CodeDeadlineExceeded, "the upload was idle for %v", UploadIdle)

// Decode decodes the data of a chunk or of a whole artifact. The error is INVALID_ARGUMENT.
func Decode(data string) ([]byte, error) {
	content, err := base64.StdEncoding.Strict().DecodeString(data)
	if err != nil || strings.IndexByte(data, '\n') >= 0 || strings.IndexByte(data, '\r') >= 0 { // which package base64 skips
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "data must be base64 of the standard alphabet, with padding")
	}
	return content, nil
}

func errTooLarge() *arcp.Error {
	return arcp.Errorf(arcp.CodeInvalidArgument, "artifact.put may have at most %d bytes of content", MaxInline)
}

// DecodeInline decodes the data of artifact.put. The error is INVALID_ARGUMENT, also for more than MaxInline
// bytes.
func DecodeInline(data string) ([]byte, error) {
	if base64.StdEncoding.DecodedLen(len(data)) > MaxInline+2 { // at most 2 bytes of padding
		return nil, errTooLarge()
	}
	content, err := Decode(data)
	if err == nil && len(content) > MaxInline {
		err = errTooLarge()
	}
	return content, err
}

// InlineContent returns the content of artifact.put. The errors are those of DecodeInline.
func InlineContent(p *arcp.ArtifactPutPayload) ([]byte, error) {
	if p.Encoding != arcp.EncodingSidecar {
		return DecodeInline(p.Data)
	}
	content, err := p.Bytes()
	if err == nil && len(content) > MaxInline {
		err = errTooLarge()
	}
	return content, err
}

// RetentionOf returns the retain_seconds of artifact.put; 0: the default. The error is INVALID_ARGUMENT.
func RetentionOf(seconds *uint64) (time.Duration, *arcp.Error) {
	switch {
	case seconds == nil:
		return 0, nil
	case *seconds == 0:
		return 0, arcp.Errorf(arcp.CodeInvalidArgument, "retain_seconds must be at least 1")
	}
	return time.Duration(min(*seconds, uint64(MaxRetention/time.Second))) * time.Second, nil
}

// chunkedUpload is an upload whose chunks come in calls of a client. It belongs to the principal,
// and ends with the process.
type chunkedUpload struct {
	principal string
	dropped   bool // guarded by Store.mu: the next OpenUpload of the principal, or Sweep, discards it

	mu     sync.Mutex // is held while content is written
	upload *Upload    // nil: it has ended
	last   []byte     // digest of the last chunk
	size   int        // of the last chunk
	usedAt time.Time
}

// OpenUpload begins an upload in chunks. The artifact will have the returned id. Errors are those of
// Begin, and RESOURCE_EXHAUSTED if the principal has too many open uploads.
func (s *Store) OpenUpload(spec Spec) (arcp.ArtifactID, error) {
	s.abortDropped(spec.Principal)
	u, err := s.Begin(spec)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	o := s.principals[spec.Principal] // exists: u counts
	refused := o.uploads >= maxUploads
	if !refused {
		o.uploads++
		s.uploads[u.row.ID] = &chunkedUpload{principal: spec.Principal, upload: u, usedAt: time.Now()}
	}
	s.mu.Unlock()
	if refused {
		err := arcp.Errorf(arcp.CodeResourceExhausted, "a principal may have at most %d open uploads: end some", maxUploads).RetryAfter(10)
		u.Abort(err)
		return "", err
	}
	return u.row.ID, nil
}

// WriteChunk appends a chunk to an upload of a principal, and returns the offset of the next one. The
// last chunk may be repeated. OUT_OF_RANGE: the chunk has another offset than the next one, which
// details have. NOT_FOUND: there is no such upload. After another error the upload is discarded.
func (s *Store) WriteChunk(principal string, id arcp.ArtifactID, offset int64, data []byte) (next int64, err error) {
	c, err := s.openUpload(principal, id)
	if err != nil {
		return s.endOfUpload(principal, id, offset, data, err)
	}
	defer c.mu.Unlock()
	c.usedAt = time.Now()
	sum := sha256.Sum256(data)
	next = c.upload.row.Size
	if offset == next-int64(c.size) && len(data) == c.size && bytes.Equal(sum[:], c.last) {
		return next, nil
	}
	if offset != next {
		return 0, errOffset(id, next)
	}
	if _, err := c.upload.Write(data); err != nil {
		c.abort(err)
		return 0, err
	}
	c.last, c.size = sum[:], len(data)
	return c.upload.row.Size, nil
}

// openUpload returns an open upload of a principal, whose mu is held.
func (s *Store) openUpload(principal string, id arcp.ArtifactID) (*chunkedUpload, error) {
	s.mu.Lock()
	c := s.uploads[id]
	s.mu.Unlock()
	if c != nil && c.principal == principal {
		c.mu.Lock()
		if c.upload != nil {
			return c, nil
		}
		c.mu.Unlock()
	}
	return nil, arcp.Errorf(arcp.CodeNotFound, "no upload %s", id)
}

// endOfUpload answers a repetition of the last chunk of an upload that has become an artifact.
func (s *Store) endOfUpload(principal string, id arcp.ArtifactID, offset int64, data []byte, unknown error) (next int64, err error) {
	row, err := s.Get(principal, id)
	if err != nil {
		return 0, unknown
	}
	if offset+int64(len(data)) != row.Size {
		return 0, errOffset(id, row.Size)
	}
	return row.Size, nil
}

// errOffset refuses a chunk because the next one has another offset.
func errOffset(id arcp.ArtifactID, next int64) *arcp.Error {
	return arcp.Errorf(arcp.CodeOutOfRange, "the next chunk of upload %s begins at byte %d", id, next).
		WithDetails(arcp.UploadProgress{UploadID: id, Offset: uint64(next)})
}

// FinishUpload makes the content of an upload durable, as Upload.Finish does. The caller commits the
// record, and then calls committed. A repetition returns the row and no record. digest is the expected
// SHA-256 in hexadecimal; "": the one of the Spec.
func (s *Store) FinishUpload(principal string, id arcp.ArtifactID, digest string) (row Row, rec []store.Record, committed func(error), err error) {
	c, err := s.openUpload(principal, id)
	if err != nil {
		row, getErr := s.Get(principal, id)
		switch {
		case getErr != nil:
			return Row{}, nil, nil, err
		case digest != "" && !strings.EqualFold(digest, row.SHA256):
			return Row{}, nil, nil, errOtherDigest(row.SHA256)
		}
		return row, nil, func(error) {}, nil
	}
	defer c.mu.Unlock()
	u := c.upload
	if digest != "" && !isDigest(digest) {
		err := errDigest()
		c.abort(err)
		return Row{}, nil, nil, err
	}
	if digest != "" {
		u.want = strings.ToLower(digest)
	}
	c.close()
	row, record, err := u.Finish()
	if err != nil {
		return Row{}, nil, nil, err
	}
	return row, []store.Record{record}, u.Committed, nil
}

// DropUpload lets the next OpenUpload of its principal, or the next Sweep, discard an upload. It does not
// block.
func (s *Store) DropUpload(id arcp.ArtifactID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.uploads[id]; c != nil {
		c.dropped = true
	}
}

// close removes an upload from the open ones. Called with c.mu.
func (c *chunkedUpload) close() {
	s := c.upload.store
	s.mu.Lock()
	delete(s.uploads, c.upload.row.ID)
	s.principals[c.principal].uploads-- // exists: the upload counts
	s.mu.Unlock()
	c.upload = nil
}

// abort discards an upload because of an error. Called with c.mu.
func (c *chunkedUpload) abort(err error) {
	u := c.upload
	c.close()
	u.Abort(err)
}

// abortDropped discards the uploads of a principal that were dropped.
func (s *Store) abortDropped(principal string) {
	s.mu.Lock()
	var dropped []*chunkedUpload
	for _, c := range s.uploads {
		if c.dropped && c.principal == principal {
			dropped = append(dropped, c)
		}
	}
	s.mu.Unlock()
	for _, c := range dropped {
		c.mu.Lock()
		if c.upload != nil {
			c.abort(ErrIdle)
		}
		c.mu.Unlock()
	}
}

// abortIdle discards uploads that were dropped, or had no chunk for UploadIdle.
func (s *Store) abortIdle(now time.Time) {
	s.mu.Lock()
	idle := make(map[*chunkedUpload]bool, len(s.uploads)) // the value is dropped
	for _, c := range s.uploads {
		idle[c] = c.dropped
	}
	s.mu.Unlock()
	for c, dropped := range idle {
		if !c.mu.TryLock() { // a chunk is being written
			continue
		}
		if c.upload != nil && (dropped || now.Sub(c.usedAt) >= UploadIdle) {
			c.abort(ErrIdle)
		}
		c.mu.Unlock()
	}
}

// ReadChunk returns at most length bytes of the content of an artifact of a principal from an offset.
// Errors are those of Open, and OUT_OF_RANGE for an offset behind the end.
func (s *Store) ReadChunk(principal string, id arcp.ArtifactID, offset int64, length int) (Row, []byte, error) {
	row, data, err := s.readChunk(principal, id, offset, length)
	s.opts.countFetch(id, err)
	return row, data, err
}

func (s *Store) readChunk(principal string, id arcp.ArtifactID, offset int64, length int) (Row, []byte, error) {
	row, content, err := s.open(principal, id)
	if err != nil {
		return Row{}, nil, err
	}
	defer content.Close()
	if offset > row.Size {
		return Row{}, nil, arcp.Errorf(arcp.CodeOutOfRange, "offset %d is behind the end: the artifact has %d bytes", offset, row.Size)
	}
	data := make([]byte, min(int64(length), row.Size-offset))
	if _, err = content.Seek(offset, io.SeekStart); err == nil {
		_, err = io.ReadFull(content, data)
	}
	if err != nil {
		return Row{}, nil, s.opts.damaged(id, err)
	}
	return row, data, nil
}

// StageRelease returns the records that delete an artifact of a principal. The caller commits them and
// calls done with the result. found is false if the principal does not have the artifact.
func (s *Store) StageRelease(ctx context.Context, principal string, id arcp.ArtifactID) (recs []store.Record, done func(error), found bool, err error) {
	list := s.markReleased(principal, id)
	if len(list) == 0 {
		return nil, nil, false, nil
	}
	done = func(err error) { s.deleted("release", list, err) }
	if recs, err = s.read(ctx, list); err != nil {
		done(err)
		return nil, nil, false, fmt.Errorf("release artifact %s: %w", id, err)
	}
	return recs, done, true, nil
}

// markReleased marks an artifact of a principal as deleting; nil: there is none.
func (s *Store) markReleased(principal string, id arcp.ArtifactID) []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(principal, id)
	if e == nil {
		s.opts.Operation("release", "refused")
		return nil
	}
	e.deleting = true
	return []*entry{e}
}
