package conn

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/txn"
)

// artifactRoutes has the handlers of messages about artifacts (SPEC.md §5.17). They use the disk on
// another goroutine, in the order of the messages.
var artifactRoutes = map[arcp.Type]handler{
	arcp.ArtifactPut:     on(commandsOf, (*commands).putArtifact),
	arcp.ArtifactFetch:   on(commandsOf, (*commands).fetchArtifact),
	arcp.ArtifactRelease: on(commandsOf, (*commands).releaseArtifact),
}

// putArtifact handles artifact.put. The answer is artifact.ref.
func (cm *commands) putArtifact(_ time.Time, env *arcp.Envelope, p *arcp.ArtifactPutPayload) error {
	c := cm.c
	retain, err := artifact.RetentionOf(p.RetainSeconds)
	if err != nil {
		return errInvalid("%s", err.Message)
	}
	spec := artifact.Spec{
		Principal: c.principal.identity.Principal,
		Session:   c.id,
		MediaType: p.MediaType,
		SHA256:    p.SHA256,
		Key:       env.IdempotencyKey,
		Request:   env.ID,
		Retain:    retain,
	}
	data := p.Data
	c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		row, err := c.storeArtifact(ctx, spec, data)
		return func(now time.Time) {
			if err != nil {
				c.nack(now, env.ID, txn.Refusal(c.srv.opts.Logger, err, "put an artifact"))
				return
			}
			object := row.Object()
			c.reply(now, env.ID, arcp.ArtifactRef, arcp.ArtifactRefPayload{Artifact: object, ArtifactObject: object})
		}
	})
	return nil
}

// storeArtifact stores the content of artifact.put.
func (c *conn) storeArtifact(ctx context.Context, spec artifact.Spec, data string) (artifact.Row, error) {
	content, err := artifact.DecodeInline(data)
	if err != nil {
		return artifact.Row{}, err
	}
	return c.srv.opts.Artifacts.Put(ctx, spec, content)
}

// fetchArtifact handles artifact.fetch. The answer is artifact.put.
func (cm *commands) fetchArtifact(now time.Time, env *arcp.Envelope, p *arcp.ArtifactFetchPayload) error {
	c := cm.c
	if !p.ArtifactID.Valid() {
		c.refuseID(now, env, "artifact_id", arcp.ArtifactPrefix)
		return nil
	}
	if p.Offset > 0 || p.Length > 0 {
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeInvalidArgument, "artifact.fetch: only a worker fetches a part: use artifact.get"))
		return nil
	}
	principal := c.principal.identity.Principal
	c.tasks.backgroundInOrder(func(context.Context) func(time.Time) {
		row, content, err := c.srv.opts.Artifacts.Inline(principal, p.ArtifactID)
		answer := arcp.ArtifactPutPayload{MediaType: row.MediaType, Data: base64.StdEncoding.EncodeToString(content), SHA256: row.SHA256}
		return func(now time.Time) {
			if err != nil {
				c.nack(now, env.ID, txn.Refusal(c.srv.opts.Logger, err, "fetch an artifact"))
				return
			}
			c.reply(now, env.ID, arcp.ArtifactPut, answer)
		}
	})
	return nil
}

// releaseArtifact handles artifact.release, which has no answer.
func (cm *commands) releaseArtifact(now time.Time, env *arcp.Envelope, p *arcp.ArtifactReleasePayload) error {
	c := cm.c
	if !p.ArtifactID.Valid() {
		c.refuseID(now, env, "artifact_id", arcp.ArtifactPrefix)
		return nil
	}
	principal := c.principal.identity.Principal
	c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		if err := c.srv.opts.Artifacts.Release(ctx, principal, p.ArtifactID); err != nil {
			c.srv.opts.Logger.Error().Err(err).Str("artifact_id", string(p.ArtifactID)).Msg("release an artifact")
		}
		return func(time.Time) {}
	})
	return nil
}
