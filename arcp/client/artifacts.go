package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Artifacts stores and returns artifacts of the principal of a client.
type Artifacts struct{ c *Client }

// Artifacts returns the methods for artifacts.
func (c *Client) Artifacts() Artifacts { return Artifacts{c} }

// PutArtifactParams describes an artifact to store.
type PutArtifactParams struct {
	MediaType      string
	Content        io.Reader     // is read to its end; an error of it is returned unchanged
	Retain         time.Duration // 0: the default of the runtime, which also has a maximum
	IdempotencyKey string        // a repeated put returns the same artifact; "": none
}

// Artifact is the content of an artifact.
type Artifact struct {
	MediaType string
	Content   []byte
}

const (
	maxInlineArtifact = 4 << 20   // bytes of content in one message
	putChunk          = 1 << 20   // bytes of a chunk of artifact.put, at most 1 MiB
	getChunk          = 256 << 10 // bytes of a chunk of artifact.get: its result is one event
)

var (
	errDigest     = errors.New("the content does not have the digest")
	errLargeKey   = errors.New("an artifact with an idempotency key has at most 4 MiB")
	errLargeFetch = errors.New("the artifact has more than 4 MiB: read it with Get")
	errWorkerKey  = arcp.Errorf(arcp.CodeInvalidArgument, "an artifact that a worker puts for its job has no idempotency key")
)

// Put stores an artifact of the principal, and returns its description when it is durable. Content over
// 4 MiB, and all content in the draft dialect, is sent in chunks with the tool artifact.put; it then has no
// IdempotencyKey. A lost connection does not interrupt the put if the session is resumed. Put compares
// the digests of the content here and at the runtime. A refusal is a *RemoteError or a *JobError.
func (a Artifacts) Put(ctx context.Context, p PutArtifactParams) (arcp.ArtifactObject, error) {
	head, err := io.ReadAll(io.LimitReader(p.Content, maxInlineArtifact+1))
	if err != nil {
		return arcp.ArtifactObject{}, err
	}
	if len(head) <= maxInlineArtifact && a.c.Session().Dialect == arcp.DialectRFC {
		return a.putInline(ctx, p, head)
	}
	if p.IdempotencyKey != "" {
		return arcp.ArtifactObject{}, errLargeKey
	}
	return a.putChunks(ctx, p, io.MultiReader(bytes.NewReader(head), p.Content))
}

// putInline stores an artifact with one message.
func (a Artifacts) putInline(ctx context.Context, p PutArtifactParams, content []byte) (arcp.ArtifactObject, error) {
	put := sidecarPut(a.c, p, content)
	env := arcp.Frame(arcp.ArtifactPut, put)
	env.IdempotencyKey = p.IdempotencyKey
	got, err := a.c.request(ctx, env, arcp.ArtifactRef, nil)
	if err != nil {
		return arcp.ArtifactObject{}, err
	}
	return readReference(&got, put.SHA256)
}

// message returns the message that stores the content.
func (p *PutArtifactParams) message(content []byte) arcp.ArtifactPutPayload {
	put := arcp.ArtifactPutPayload{MediaType: p.MediaType, Data: base64.StdEncoding.EncodeToString(content), SHA256: digestOf(content)}
	if p.Retain > 0 {
		put.RetainSeconds = new(seconds(p.Retain))
	}
	return put
}

// readReference reads the answer to the message, and compares the digest.
func readReference(got *arcp.Envelope, digest string) (arcp.ArtifactObject, error) {
	ref, err := arcp.DecodePayload[arcp.ArtifactRefPayload](got)
	if err == nil && ref.Artifact.SHA256 != "" && !strings.EqualFold(ref.Artifact.SHA256, digest) {
		err = errDigest
	}
	if err != nil {
		return arcp.ArtifactObject{}, &ProtocolError{string(got.Type), err}
	}
	return ref.Artifact, nil
}

// putArguments are the arguments of artifact.put.
type putArguments struct {
	Data          []byte          `json:"data,omitzero"` // nil: with Encoding
	Encoding      string          `json:"encoding,omitzero"`
	Size          int             `json:"size,omitzero"`
	More          bool            `json:"more,omitzero"`
	UploadID      arcp.ArtifactID `json:"upload_id,omitzero"`
	Offset        uint64          `json:"offset,omitzero"`
	MediaType     string          `json:"media_type,omitzero"`
	SHA256        string          `json:"sha256,omitzero"`
	RetainSeconds uint64          `json:"retain_seconds,omitzero"`
}

// putAnswer is the result of artifact.put: of a chunk that more follow, or of the last one.
type putAnswer struct {
	arcp.ArtifactObject
	arcp.UploadProgress
}

// putChunks stores an artifact with calls of artifact.put.
func (a Artifacts) putChunks(ctx context.Context, p PutArtifactParams, content io.Reader) (arcp.ArtifactObject, error) {
	hash, source := sha256.New(), bufio.NewReaderSize(content, 1)
	args := putArguments{MediaType: p.MediaType, More: true}
	if p.Retain > 0 {
		args.RetainSeconds = seconds(p.Retain)
	}
	for chunk := make([]byte, putChunk); ; {
		n, err := io.ReadFull(source, chunk)
		if err == nil {
			_, err = source.Peek(1)
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			args.More = false
		default:
			return arcp.ArtifactObject{}, err
		}
		args.Data = chunk[:n]
		hash.Write(args.Data) // never fails
		if !args.More {
			args.SHA256 = hex.EncodeToString(hash.Sum(nil))
		}
		got, err := callResult[putAnswer](ctx, a.startPut(ctx, args))
		switch {
		case err != nil:
			return arcp.ArtifactObject{}, err
		case !args.More && !strings.EqualFold(got.SHA256, args.SHA256):
			return arcp.ArtifactObject{}, &ProtocolError{"artifact.put", errDigest}
		case !args.More:
			return got.ArtifactObject, nil
		case got.UploadID == "" || got.Offset != args.Offset+uint64(n):
			return arcp.ArtifactObject{}, &ProtocolError{"artifact.put", fmt.Errorf("the next chunk of upload %q has the offset %d, not %d", got.UploadID, got.Offset, args.Offset+uint64(n))}
		}
		args = putArguments{More: true, UploadID: got.UploadID, Offset: got.Offset}
	}
}

// startedCall is a call of a tool whose result is awaited later.
type startedCall struct {
	job *Job
	err error
}

// startPut calls artifact.put.
func (a Artifacts) startPut(ctx context.Context, args putArguments) startedCall {
	var sidecar []byte
	if sendsSidecars(a.c) {
		sidecar, args.Data = args.Data, nil
		args.Encoding, args.Size = arcp.EncodingSidecar, len(sidecar)
	}
	return a.startWith(ctx, "artifact.put", args, sidecar)
}

// start calls a built-in tool, and does not wait until it is accepted.
func (a Artifacts) start(ctx context.Context, tool string, args any) startedCall {
	return a.startWith(ctx, tool, args, nil)
}

// startWith is start with a binary frame; nil: none.
func (a Artifacts) startWith(ctx context.Context, tool string, args any, sidecar []byte) startedCall {
	p := InvokeParams{Tool: tool, Arguments: args}
	env, err := p.envelope()
	env.Sidecar = sidecar
	if err != nil {
		return startedCall{err: err}
	}
	job, err := a.c.submit(ctx, env, true, true)
	return startedCall{job, err}
}

// callResult waits for the result of a call.
func callResult[T any](ctx context.Context, call startedCall) (got T, err error) {
	if call.err != nil {
		return got, call.err
	}
	r, err := call.job.Wait(ctx)
	if err != nil {
		return got, err
	}
	if err := arcp.Unmarshal(r.Value, &got); err != nil {
		return got, &ProtocolError{string(r.Envelope.Type), err}
	}
	return got, nil
}

// Fetch returns the content of an artifact of the principal that has at most 4 MiB. It compares
// the content with the digest that the runtime sends. A refusal is a *RemoteError.
func (a Artifacts) Fetch(ctx context.Context, id arcp.ArtifactID) (Artifact, error) {
	got, err := a.c.request(ctx, arcp.Frame(arcp.ArtifactFetch, arcp.ArtifactFetchPayload{ArtifactID: id}), arcp.ArtifactPut, nil)
	switch {
	case err != nil && got.Type == arcp.ArtifactRef:
		return Artifact{}, errLargeFetch
	case err != nil:
		return Artifact{}, err
	}
	p, err := arcp.DecodePayload[arcp.ArtifactPutPayload](&got)
	if err != nil {
		return Artifact{}, &ProtocolError{string(got.Type), err}
	}
	return readContent(&p)
}

// readContent reads the content of an artifact, and compares it with the digest.
func readContent(p *arcp.ArtifactPutPayload) (Artifact, error) {
	content, err := p.Bytes()
	if err == nil && p.SHA256 != "" && !strings.EqualFold(p.SHA256, digestOf(content)) {
		err = errDigest
	}
	if err != nil {
		return Artifact{}, &ProtocolError{string(arcp.ArtifactPut), err}
	}
	return Artifact{p.MediaType, content}, nil
}

// Get returns a reader of the content of an artifact of the principal. It reads the first chunk, and in the
// draft dialect all chunks, with the tool artifact.get, and the others with artifact.fetch, which stores
// nothing. With Options.ArtifactRedirect it reads an artifact over 4 MiB over HTTP instead, if the runtime issues a
// link. What the link does not bring is read in chunks. ctx ends the reader, too. A refusal is a *RemoteError or a
// *JobError.
func (a Artifacts) Get(ctx context.Context, id arcp.ArtifactID) (*ArtifactReader, error) {
	r := &ArtifactReader{a: a, ctx: ctx, hash: sha256.New()}
	first, err := callResult[arcp.ArtifactChunk](ctx, r.call(id))
	if err != nil {
		return nil, err
	}
	r.ArtifactObject = first.ArtifactObject
	r.requested = uint64(len(first.Data))
	if err := r.receive(&first); err != nil {
		return nil, err
	}
	if r.Size > maxInlineArtifact && a.redirects() {
		r.openLink()
	}
	return r, nil
}

// redirects reports whether the runtime issues links to artifacts.
func (a Artifacts) redirects() bool {
	s := a.c.Session()
	return s.Dialect == arcp.DialectRFC && s.Capabilities.Has(arcp.FeatureArtifactRedirect)
}

// ArtifactReader reads the content of an artifact. It belongs to one goroutine. At the end it compares the
// content with the digest that the runtime has sent; another digest is a *ProtocolError instead of io.EOF.
type ArtifactReader struct {
	arcp.ArtifactObject

	a         Artifacts
	ctx       context.Context // of Get
	hash      hash.Hash
	pending   []chunkRequest // in the order of their offsets
	requested uint64         // offset of the next request
	received  uint64         // offset of the next chunk
	rest      []byte         // of the last chunk
	err       error          // of later reads
	link      *download      // brings the content instead of chunks; nil: there is none
	buffer    []byte         // of what the link brings
}

// getAhead is the number of chunks that are requested before they are read.
const getAhead = 4

// Read implements io.Reader.
func (r *ArtifactReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.err = r.next()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close ends a download over HTTP. A reader needs no Close after an error, as io.EOF, and without
// Options.ArtifactRedirect. It returns nil.
func (r *ArtifactReader) Close() error {
	r.closeLink()
	if r.rest = nil; r.err == nil {
		r.err = fs.ErrClosed
	}
	return nil
}

// openLink begins to read the content from a link. After an error the content comes in chunks.
func (r *ArtifactReader) openLink() {
	link, err := r.a.download(r.ctx, &r.ArtifactObject)
	if err != nil {
		r.logLink(err)
		return
	}
	r.link, r.buffer = link, make([]byte, getChunk)
	r.hash.Reset()
	r.received, r.rest = 0, nil
}

// readLink receives the next part of the content from the link. After an error the rest of the content comes in
// chunks.
func (r *ArtifactReader) readLink() error {
	n, err := r.link.Read(r.buffer[:min(getChunk, r.Size-r.received)])
	if n == 0 {
		r.logLink(err)
		r.closeLink()
		r.requested = r.received
		return r.ctx.Err()
	}
	r.rest = r.buffer[:n]
	r.hash.Write(r.rest) // never fails
	r.received += uint64(n)
	return nil
}

func (r *ArtifactReader) logLink(err error) {
	r.a.c.opts.Log("download an artifact from its link; the rest is read in chunks", "artifact_id", r.ArtifactID, "bytes", r.received, "error", err)
}

func (r *ArtifactReader) closeLink() {
	if r.link != nil {
		r.link.close()
		r.link = nil
	}
}

// next receives the next chunk.
func (r *ArtifactReader) next() error {
	if r.link != nil && r.received < r.Size {
		return r.readLink()
	}
	if r.received == r.Size {
		r.closeLink()
		if r.SHA256 != "" && !strings.EqualFold(r.SHA256, hex.EncodeToString(r.hash.Sum(nil))) {
			return &ProtocolError{"artifact.get", errDigest}
		}
		return io.EOF
	}
	for len(r.pending) < getAhead && r.requested < r.Size {
		r.pending = append(r.pending, r.request())
		r.requested += min(getChunk, r.Size-r.requested)
	}
	chunk, err := r.pending[0]()
	if err != nil {
		return err
	}
	r.pending = r.pending[1:]
	return r.receive(&chunk)
}

// chunkRequest waits for a requested chunk.
type chunkRequest func() (arcp.ArtifactChunk, error)

// request requests the chunk at r.requested.
func (r *ArtifactReader) request() chunkRequest {
	if r.a.c.Session().Dialect != arcp.DialectRFC {
		call := r.call(r.ArtifactID)
		return func() (arcp.ArtifactChunk, error) { return callResult[arcp.ArtifactChunk](r.ctx, call) }
	}
	fetch := arcp.ArtifactFetchPayload{ArtifactID: r.ArtifactID, Offset: r.requested, Length: getChunk}
	type answer struct {
		chunk arcp.ArtifactChunk
		err   error
	}
	received := make(chan answer, 1)
	go func() {
		p, err := ask[arcp.ArtifactPutPayload](r.ctx, r.a.c, arcp.ArtifactFetch, fetch, arcp.ArtifactPut)
		chunk := arcp.ArtifactChunk{Offset: fetch.Offset}
		if err == nil {
			if chunk.Data, err = p.Bytes(); err != nil {
				err = &ProtocolError{string(arcp.ArtifactPut), err}
			}
		}
		received <- answer{chunk, err}
	}()
	return func() (arcp.ArtifactChunk, error) {
		got := <-received
		return got.chunk, got.err
	}
}

// call calls artifact.get for the chunk at r.requested.
func (r *ArtifactReader) call(id arcp.ArtifactID) startedCall {
	return r.a.start(r.ctx, "artifact.get", struct {
		ArtifactID arcp.ArtifactID `json:"artifact_id"`
		Offset     uint64          `json:"offset"`
		Length     int             `json:"length"`
	}{id, r.requested, getChunk})
}

// receive checks a chunk and passes it to Read.
func (r *ArtifactReader) receive(chunk *arcp.ArtifactChunk) error {
	if want := min(getChunk, r.Size-r.received); chunk.Offset != r.received || uint64(len(chunk.Data)) != want {
		return &ProtocolError{"artifact.get", fmt.Errorf("%d bytes at offset %d, want %d at %d", len(chunk.Data), chunk.Offset, want, r.received)}
	}
	r.hash.Write(chunk.Data) // never fails
	r.rest = chunk.Data
	r.received += uint64(len(chunk.Data))
	return nil
}

// Release lets the runtime delete an artifact of the principal. It does not wait: there is no
// answer. An unknown id is ignored.
func (a Artifacts) Release(id arcp.ArtifactID) error {
	return a.c.Send(arcp.Frame(arcp.ArtifactRelease, arcp.ArtifactReleasePayload{ArtifactID: id}))
}

// quotedBase64 returns content as a JSON string in base64.
func quotedBase64(content []byte) arcp.Raw {
	return arcp.AppendString(nil, base64.StdEncoding.EncodeToString(content))
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
