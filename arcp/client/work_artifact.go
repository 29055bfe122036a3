package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

const (
	workerChunk = 512 << 10       // bytes of content in a frame of a worker
	abortWait   = 5 * time.Second // for the answer to the end of an upload that has failed
)

// PutArtifact stores an artifact of the job, and returns its description when it is durable. Content over
// 4 MiB is sent in chunks; a lost connection does not interrupt the put if the session is resumed.
// IdempotencyKey must not be set: the error is an *arcp.Error with the code INVALID_ARGUMENT. A refusal is a
// *RemoteError.
func (call *WorkerCall) PutArtifact(ctx context.Context, p PutArtifactParams) (arcp.ArtifactObject, error) {
	head, err := io.ReadAll(io.LimitReader(p.Content, maxInlineArtifact+1))
	switch {
	case err != nil:
		return arcp.ArtifactObject{}, err
	case p.IdempotencyKey != "":
		return arcp.ArtifactObject{}, errWorkerKey
	case len(head) > maxInlineArtifact:
		return call.putChunks(ctx, p, io.MultiReader(bytes.NewReader(head), p.Content))
	}
	put := sidecarPut(call.w.c, p, head)
	env, err := call.ask(ctx, arcp.ArtifactPut, put, arcp.ArtifactRef)
	if err != nil {
		return arcp.ArtifactObject{}, err
	}
	return readReference(&env, put.SHA256)
}

// putChunks stores an artifact whose content is a stream.
func (call *WorkerCall) putChunks(ctx context.Context, p PutArtifactParams, content io.Reader) (object arcp.ArtifactObject, err error) {
	put := p.message(nil)
	put.SHA256 = "" // it is not known yet
	st := &WorkerStream{call: call, id: arcp.StreamID(arcp.NewID(arcp.StreamPrefix))}
	if _, err := st.send(ctx, arcp.ArtifactPut, put); err != nil {
		return object, err
	}
	digest, err := st.copy(ctx, content)
	if err != nil {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), abortWait)
		defer stop()
		_ = st.CloseWithError(ctx, arcp.Errorf(arcp.CodeAborted, "the worker gives up the artifact")) // it may have ended
		return object, err
	}
	env, err := st.request(ctx, arcp.StreamClose, st.end(), arcp.ArtifactRef)
	if err != nil {
		return object, err
	}
	return readReference(&env, digest)
}

// copy sends content in chunks, and returns its digest.
func (st *WorkerStream) copy(ctx context.Context, content io.Reader) (digest string, err error) {
	sum := sha256.New()
	for chunk := make([]byte, workerChunk); ; {
		n, err := io.ReadFull(content, chunk)
		if n > 0 {
			sum.Write(chunk[:n]) // never fails
			if err := st.Chunk(ctx, binaryChunk(st.call.w.c, chunk[:n])); err != nil {
				return "", err
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return hex.EncodeToString(sum.Sum(nil)), nil
		default:
			return "", err
		}
	}
}

// FetchArtifact returns the content of an artifact that the job may read and that has at most 4 MiB. A
// refusal is a *RemoteError.
func (call *WorkerCall) FetchArtifact(ctx context.Context, id arcp.ArtifactID) (Artifact, error) {
	env, err := call.ask(ctx, arcp.ArtifactFetch, arcp.ArtifactFetchPayload{ArtifactID: id}, arcp.ArtifactPut)
	if err != nil {
		return Artifact{}, err
	}
	p, err := arcp.DecodePayload[arcp.ArtifactPutPayload](&env)
	if err != nil {
		return Artifact{}, &ProtocolError{string(env.Type), err}
	}
	return readContent(&p)
}

// OpenArtifact returns a reader of an artifact that the job may read. It reads parts of the content on demand.
// ctx ends the reader, too. A refusal is a *RemoteError.
func (call *WorkerCall) OpenArtifact(ctx context.Context, id arcp.ArtifactID) (*WorkerArtifact, error) {
	a := &WorkerArtifact{call: call, ctx: ctx, hash: sha256.New()}
	a.ArtifactID = id
	return a, a.fetch()
}

// WorkerArtifact reads an artifact. Its description has no URI and no expiry. It belongs to one goroutine. At
// the end of content that was read as a whole, it compares the digest with the one that the runtime has sent:
// another one is a *ProtocolError instead of io.EOF.
type WorkerArtifact struct {
	arcp.ArtifactObject

	call *WorkerCall
	ctx  context.Context // of OpenArtifact

	at     uint64 // position of the next read
	part   []byte // the last part that was fetched
	partAt uint64 // its position

	hash   hash.Hash
	hashed uint64 // bytes from the start of the content in hash
}

// fetch fetches the part at the position.
func (a *WorkerArtifact) fetch() error {
	request := arcp.ArtifactFetchPayload{ArtifactID: a.ArtifactID, Offset: a.at, Length: workerChunk}
	env, err := a.call.ask(a.ctx, arcp.ArtifactFetch, request, arcp.ArtifactPut)
	if err != nil {
		return err
	}
	p, err := arcp.DecodePayload[arcp.ArtifactPutPayload](&env)
	if err == nil {
		a.part, err = p.Bytes()
	}
	if want := min(workerChunk, p.Size-a.at); err == nil && uint64(len(a.part)) != want {
		err = fmt.Errorf("%d bytes at offset %d, want %d", len(a.part), a.at, want)
	}
	if err != nil {
		return &ProtocolError{string(env.Type), err}
	}
	a.partAt, a.MediaType, a.Size, a.SHA256 = a.at, p.MediaType, p.Size, p.SHA256
	return nil
}

// Read implements io.Reader.
func (a *WorkerArtifact) Read(p []byte) (int, error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case a.at >= a.Size:
		return 0, a.ended()
	case a.at < a.partAt || a.at >= a.partAt+uint64(len(a.part)):
		if err := a.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, a.part[a.at-a.partAt:])
	if a.at == a.hashed {
		a.hash.Write(p[:n]) // never fails
		a.hashed += uint64(n)
	}
	a.at += uint64(n)
	return n, nil
}

// ended returns io.EOF, or the error of content with another digest.
func (a *WorkerArtifact) ended() error {
	if a.hashed == a.Size && a.SHA256 != "" && !strings.EqualFold(a.SHA256, hex.EncodeToString(a.hash.Sum(nil))) {
		return &ProtocolError{string(arcp.ArtifactPut), errDigest}
	}
	return io.EOF
}

// Seek implements io.Seeker.
func (a *WorkerArtifact) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += int64(a.at)
	case io.SeekEnd:
		offset += int64(a.Size)
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to %d: it is before the start of the artifact", offset)
	}
	a.at = uint64(offset)
	return offset, nil
}

// Close does nothing: each part has been read completely.
func (a *WorkerArtifact) Close() error { return nil }
