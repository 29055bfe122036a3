package builtin

import (
	"cmp"
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

type artifactPutIn struct {
	Data          string          `json:"data" jsonschema:"description=the content or a chunk of it in base64: at most 1 MiB"`
	More          bool            `json:"more,omitzero" jsonschema:"description=more chunks follow"`
	UploadID      arcp.ArtifactID `json:"upload_id,omitzero" jsonschema:"description=upload that the chunk continues"`
	Offset        int64           `json:"offset,omitzero" jsonschema:"description=position of the chunk in the content,minimum=0"`
	MediaType     string          `json:"media_type,omitzero" jsonschema:"description=media type; default application/octet-stream"`
	SHA256        string          `json:"sha256,omitzero" jsonschema:"description=expected digest of the whole content in hexadecimal"`
	RetainSeconds int64           `json:"retain_seconds,omitzero" jsonschema:"description=default one hour; at most 7 days,minimum=1"`
}

// withoutContent implements largeArguments.
func (in artifactPutIn) withoutContent() arcp.Raw {
	in.Data = ""
	raw, err := arcp.Marshal(in)
	if err != nil { // the struct encodes
		panic("builtin: arguments of artifact.put: " + err.Error())
	}
	return raw
}

type artifactGetIn struct {
	ArtifactID arcp.ArtifactID `json:"artifact_id" jsonschema:"description=the artifact to read"`
	Offset     int64           `json:"offset,omitzero" jsonschema:"description=position of the first byte,minimum=0"`
	Length     int             `json:"length,omitzero" jsonschema:"description=bytes; default 262144,minimum=1,maximum=1048576"`
}

type artifactListIn struct {
	Limit  int    `json:"limit,omitzero" jsonschema:"description=artifacts of a page,minimum=1,maximum=1000"`
	Cursor string `json:"cursor,omitzero" jsonschema:"description=next_cursor of the previous page"`
}

type artifactReleaseIn struct {
	ArtifactID arcp.ArtifactID `json:"artifact_id" jsonschema:"description=the artifact to delete"`
}

type artifactTools struct {
	store   *artifact.Store
	changes txn.Committer
	cursors *paging.Cursors
	logger  zerolog.Logger
}

// maxPutArguments bounds the arguments of artifact.put: base64 of a chunk, and the other members.
const maxPutArguments = artifact.MaxChunk/3*4 + 16<<10

func (t *artifactTools) register(r *registrar) {
	put := writeTool("artifact.put", "stores an artifact of the caller, also in chunks")
	put.Limits = tool.Limits{Timeout: -1, MaxRequestBytes: maxPutArguments} // a large artifact is synced to the disk
	register(r, put, r.callers.find, t.put)
	register(r, readTool("artifact.get", "an artifact of the caller with a part of its content"), r.callers.find, t.get)
	register(r, readTool("artifact.list", "the artifacts of the caller, the newest first"), r.callers.find, t.list)
	register(r, writeTool("artifact.release", "deletes an artifact of the caller"), r.callers.find, t.release)
}

// put handles artifact.put. A chunk that is not the last is not part of the write of the call: a client
// that repeats it has the same answer.
func (t *artifactTools) put(ctx context.Context, caller *Caller, in artifactPutIn) (any, error) {
	data, err := artifact.Decode(in.Data)
	if err == nil && len(data) > artifact.MaxChunk {
		err = arcp.Errorf(arcp.CodeInvalidArgument, "data may have at most %d bytes: put the content in chunks with more", artifact.MaxChunk)
	}
	if err != nil {
		return nil, err
	}
	id, err := t.upload(caller, &in)
	if err != nil {
		return nil, txn.Refusal(t.logger, err, "put an artifact")
	}
	next, err := t.store.WriteChunk(caller.Principal, id, in.Offset, data)
	switch {
	case err != nil:
		return nil, txn.Refusal(t.logger, err, "put an artifact")
	case in.More:
		return arcp.UploadProgress{UploadID: id, Offset: uint64(next)}, t.dropIfRefused(ctx, id, in.UploadID == "")
	}
	row, recs, committed, err := t.store.FinishUpload(caller.Principal, id, in.SHA256)
	if err == nil && len(recs) > 0 {
		err = t.changes.Commit(ctx, store.NewWrite().Put(recs...), committed)
	}
	if err != nil {
		return nil, txn.Refusal(t.logger, err, "put an artifact")
	}
	return row.Object(), nil
}

// dropIfRefused discards a new upload if the call is not stored: then no client knows it.
func (t *artifactTools) dropIfRefused(ctx context.Context, id arcp.ArtifactID, isNew bool) error {
	if !isNew {
		return nil
	}
	return t.changes.Commit(ctx, nil, func(err error) {
		if err != nil {
			t.store.DropUpload(id)
		}
	})
}

// upload returns the upload of a put, which it opens with the first chunk.
func (t *artifactTools) upload(caller *Caller, in *artifactPutIn) (arcp.ArtifactID, error) {
	switch {
	case in.UploadID != "" && (in.MediaType != "" || in.RetainSeconds != 0):
		return "", arcp.Errorf(arcp.CodeInvalidArgument, "media_type and retain_seconds belong to the first chunk")
	case in.UploadID != "":
		return in.UploadID, nil
	case in.Offset != 0:
		return "", arcp.Errorf(arcp.CodeInvalidArgument, "the first chunk has the offset 0: the others need upload_id")
	}
	return t.store.OpenUpload(artifact.Spec{
		Principal: caller.Principal,
		Session:   caller.Session,
		MediaType: cmp.Or(in.MediaType, "application/octet-stream"),
		Retain:    time.Duration(min(in.RetainSeconds, int64(artifact.MaxRetention/time.Second))) * time.Second,
		SHA256:    in.SHA256,
	})
}

// get handles artifact.get.
func (t *artifactTools) get(_ context.Context, caller *Caller, in artifactGetIn) (out arcp.ArtifactChunk, err error) {
	row, data, err := t.store.ReadChunk(caller.Principal, in.ArtifactID, in.Offset, cmp.Or(in.Length, artifact.DefaultChunk))
	if err != nil {
		return out, txn.Refusal(t.logger, err, "read an artifact")
	}
	return arcp.ArtifactChunk{ArtifactObject: row.Object(), Offset: uint64(in.Offset), Data: data,
		More: in.Offset+int64(len(data)) < row.Size}, nil
}

// list handles artifact.list.
func (t *artifactTools) list(_ context.Context, caller *Caller, in artifactListIn) (arcp.Page[arcp.ArtifactObject], error) {
	request := paging.Request{Scope: "artifacts\x00" + caller.Principal, Cursor: in.Cursor, Limit: in.Limit}
	return paging.Page(t.cursors, request, func(after string, add paging.Add[arcp.ArtifactObject]) error {
		t.store.List(caller.Principal, arcp.ArtifactID(after), func(row *artifact.Row) bool {
			return add(string(row.ID), 0, new(row.Object()))
		})
		return nil
	})
}

// release handles artifact.release. The deletion is in the write of the call.
func (t *artifactTools) release(ctx context.Context, caller *Caller, in artifactReleaseIn) (arcp.ArtifactReleased, error) {
	recs, done, found, err := t.store.StageRelease(ctx, caller.Principal, in.ArtifactID)
	if found {
		err = t.changes.Commit(ctx, store.NewWrite().Put(recs...), done)
	}
	if err != nil {
		return arcp.ArtifactReleased{}, txn.Refusal(t.logger, err, "release an artifact")
	}
	return arcp.ArtifactReleased{Released: found}, nil
}
