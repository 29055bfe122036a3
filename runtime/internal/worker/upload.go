package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/tool"
)

// upload is an artifact whose content a worker sends in chunks. Job.Artifacts().Put reads the chunks through
// a pipe, so that none stays in memory. An upload that is not finished ends with the dispatch, or when it is
// idle. The goroutine of the queue of its content owns it.
type upload struct {
	ctx    context.Context // of the dispatch
	idle   *time.Timer     // ends the upload; runs while no chunk is written
	w      *io.PipeWriter
	ended  chan struct{} // closed when Put has returned
	object arcp.ArtifactObject
	err    error // of Put; read after ended is closed
	stored bool  // finish has returned no error

	digest string // that the content must have, in hexadecimal; "": any
	hash   hash.Hash
}

// openUpload begins an upload.
func (qr questionRelay) openUpload(ctx context.Context, c *content, p arcp.ArtifactPutPayload) error {
	retain, refused := artifact.RetentionOf(p.RetainSeconds)
	switch {
	case refused != nil:
		return refused
	case p.Data != "":
		return arcp.Errorf(arcp.CodeInvalidArgument, "artifact.put with a stream_id has no data: the chunks of the stream are the content")
	}
	r, w := io.Pipe()
	u := &upload{ctx: ctx, w: w, ended: make(chan struct{}), digest: p.SHA256, hash: sha256.New()}
	u.idle = time.AfterFunc(artifact.UploadIdle, func() { _ = w.CloseWithError(artifact.ErrIdle) }) // never fails
	c.upload = u
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) }) // never fails
	qr.pool.background(func() {
		defer close(u.ended)
		defer stop()
		defer u.idle.Stop()
		u.object, u.err = qr.job.Artifacts().Put(ctx, tool.NewArtifact{MediaType: p.MediaType, Content: r, Retain: retain})
		_ = r.CloseWithError(u.err) // never fails; ends a write of a chunk
	})
	return nil
}

// uploadChunk appends a chunk to an artifact. After an error there is no artifact.
func (qr questionRelay) uploadChunk(c *content, p arcp.StreamChunkPayload) error {
	err := c.count(p.Sequence)
	var data []byte
	if err == nil {
		data, err = uploadData(&p)
	}
	if err == nil {
		err = c.upload.write(data)
	}
	if err != nil {
		qr.contents.remove(c)
		c.upload.abort(err)
	}
	return err
}

// uploadData returns the content of a chunk of an artifact.
func uploadData(p *arcp.StreamChunkPayload) ([]byte, error) {
	if p.Encoding == arcp.EncodingSidecar {
		return p.Bytes(arcp.StreamBinary)
	}
	var text string
	if arcp.Unmarshal(p.Data, &text) != nil {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "stream.chunk: the data of an artifact is a string")
	}
	return artifact.Decode(text)
}

// write passes content to Put, and returns the error with which Put has ended.
func (u *upload) write(data []byte) error {
	if u.digest != "" {
		u.hash.Write(data) // never fails
	}
	u.idle.Stop()
	if _, err := u.w.Write(data); err != nil {
		return cmp.Or(u.wait(), err) // the pipe does not say why the upload has ended
	}
	u.idle.Reset(artifact.UploadIdle)
	return nil
}

// finish makes the artifact durable.
func (u *upload) finish() error {
	if u.digest != "" && !strings.EqualFold(u.digest, hex.EncodeToString(u.hash.Sum(nil))) {
		err := arcp.Errorf(arcp.CodeInvalidArgument, "the content does not have the sha256 of artifact.put")
		u.abort(err)
		return err
	}
	_ = u.w.Close() // never fails
	if err := u.wait(); err != nil {
		return err
	}
	u.stored = true
	return nil
}

// abort discards the content.
func (u *upload) abort(err error) {
	_ = u.w.CloseWithError(err) // never fails
	_ = u.wait()                // err says more
}

// wait waits for the end of Put or of the dispatch, and returns its error.
func (u *upload) wait() error {
	select {
	case <-u.ended:
		return u.err
	case <-u.ctx.Done():
		return context.Cause(u.ctx)
	}
}
