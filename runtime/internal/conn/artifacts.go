package conn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/transport"
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
	c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		row, err := c.storeArtifact(ctx, spec, p)
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
func (c *conn) storeArtifact(ctx context.Context, spec artifact.Spec, p *arcp.ArtifactPutPayload) (artifact.Row, error) {
	content, err := artifact.InlineContent(p)
	if err != nil {
		return artifact.Row{}, err
	}
	row, err := c.srv.opts.Artifacts.Put(ctx, spec, content)
	transport.ReleaseFrame(p.Sidecar) // Put has copied or written it
	return row, err
}

// fetchArtifact handles artifact.fetch. The answer is artifact.put, or artifact.ref with a link.
func (cm *commands) fetchArtifact(now time.Time, env *arcp.Envelope, p *arcp.ArtifactFetchPayload) error {
	c := cm.c
	if !p.ArtifactID.Valid() {
		c.refuseID(now, env, "artifact_id", arcp.ArtifactPrefix)
		return nil
	}
	identity, sidecar := c.principal.identity, c.output.sidecar
	// A resumed session may have negotiated links before the runtime was started without them.
	redirects := c.srv.opts.Artifacts.Links != nil && c.machine.Has(arcp.FeatureArtifactRedirect) && !isPart(p)
	c.tasks.backgroundInOrder(func(context.Context) func(time.Time) {
		if redirects {
			if ref := c.srv.linkArtifact(identity, p.ArtifactID); ref != nil {
				return func(now time.Time) { c.reply(now, env.ID, arcp.ArtifactRef, ref) }
			}
		}
		answer, err := readArtifact(c.srv.opts.Artifacts.Store, identity.Principal, p, sidecar)
		return func(now time.Time) {
			if err != nil {
				c.nack(now, env.ID, txn.Refusal(c.srv.opts.Logger, err, "fetch an artifact"))
				return
			}
			answer.CorrelationID = env.ID
			c.send(now, answer)
		}
	})
	return nil
}

// isPart reports whether a part of an artifact is requested.
func isPart(p *arcp.ArtifactFetchPayload) bool { return p.Offset > 0 || p.Length > 0 }

// linkArtifact returns the description of an artifact with a link to its content. It returns nil if the artifact
// fits into a message or is not found, or if there are too many links.
func (s *Server) linkArtifact(identity auth.Identity, id arcp.ArtifactID) *arcp.ArtifactRefPayload {
	row, err := s.opts.Artifacts.Get(identity.Principal, id)
	if err != nil || row.Size <= artifact.MaxInline {
		return nil
	}
	uri := s.opts.Artifacts.Links.Create(artifact.LinkTarget{
		Principal: identity.Principal,
		Artifact:  id,
		Allowed: func() error {
			_, err := actor.Revalidate(s.opts.Auth, identity)
			return err
		},
	})
	if uri == "" {
		return nil
	}
	object := row.Object()
	return &arcp.ArtifactRefPayload{Artifact: object, ArtifactObject: object, RedirectURI: uri.Reveal()}
}

// readArtifact reads an artifact, or a part of it, and returns the answer. sidecar reports that the content goes in a
// binary frame.
func readArtifact(artifacts *artifact.Store, principal string, p *arcp.ArtifactFetchPayload, sidecar bool) (env arcp.Envelope, err error) {
	var row artifact.Row
	var content []byte
	part := isPart(p)
	if part {
		length := min(cmp.Or(p.Length, artifact.DefaultChunk), artifact.MaxChunk)
		row, content, err = artifacts.ReadChunk(principal, p.ArtifactID, int64(min(p.Offset, math.MaxInt64)), int(length))
	} else {
		row, content, err = artifacts.Inline(principal, p.ArtifactID)
	}
	if err != nil {
		return env, err
	}
	answer := arcp.ArtifactPutPayload{MediaType: row.MediaType, SHA256: row.SHA256}
	if part {
		answer.Size = uint64(row.Size)
	}
	if sidecar {
		return arcp.Frame(arcp.ArtifactPut, sidecarAnswer(answer, content)), nil
	}
	env.Type = arcp.ArtifactPut
	env.Payload, err = withContent(&answer, content)
	return env, err
}

// withContent encodes a payload with content as its data. Base64 has no characters to escape.
func withContent(p *arcp.ArtifactPutPayload, content []byte) (arcp.Raw, error) {
	const empty = `"data":""`
	raw, err := arcp.Marshal(p)
	if err != nil {
		return nil, err
	}
	at := bytes.Index(raw, []byte(empty)) + len(empty) - 1 // the first one is the member: quotes in strings are escaped
	out := make([]byte, 0, len(raw)+base64.StdEncoding.EncodedLen(len(content)))
	out = base64.StdEncoding.AppendEncode(append(out, raw[:at]...), content)
	return append(out, raw[at:]...), nil
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
