package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

var errNoArtifacts = arcp.Errorf(arcp.CodeFailedPrecondition, "this runtime has no artifacts")

func (j toolJob) PutArtifact(ctx context.Context, n tool.NewArtifact) (arcp.ArtifactObject, error) {
	object, err := j.putArtifact(ctx, n)
	if err != nil {
		return arcp.ArtifactObject{}, err // without the description of an artifact that is not stored
	}
	return object, nil
}

// putArtifact stores the content on the goroutine of the tool. The row of the artifact and artifact.ref
// are one write of the job.
func (tg toolGoroutine) putArtifact(ctx context.Context, n tool.NewArtifact) (arcp.ArtifactObject, error) {
	var none arcp.ArtifactObject
	switch {
	case tg.s.e.cfg.Artifacts == nil:
		return none, errNoArtifacts
	case tg.attemptEnded():
		return none, errEnded
	}
	root, err := tg.root(ctx)
	if err != nil {
		return none, err
	}
	u, err := tg.s.e.cfg.Artifacts.Begin(artifact.Spec{Principal: tg.s.row.Principal, Session: tg.s.row.Session, Job: root.ID,
		MediaType: n.MediaType, Retain: n.Retain})
	if err != nil {
		return none, err
	}
	if err := u.Copy(ctx, n.Content); err != nil {
		return none, err
	}
	row, rec, err := u.Finish()
	if err != nil {
		return none, err
	}
	object := row.Object()
	ev, err := tg.encode(arcp.ArtifactRef, arcp.ArtifactRefPayload{Artifact: object, ArtifactObject: object}, &tg.s.common)
	if err != nil {
		u.Committed(err)
		return none, err
	}
	a := &addArtifact{of: tg.s, upload: u, record: rec, event: ev, toolReply: newToolReply()}
	if !tg.s.post(a) {
		a.end(errEnded)
	}
	return object, <-a.done
}

// addArtifact adds an artifact to the next write of the job.
type addArtifact struct {
	of     *supervisor // of the attempt that puts the artifact
	upload *artifact.Upload
	record store.Record
	event  *store.Event
	toolReply
}

func (a *addArtifact) apply(s *supervisor, _ time.Time) {
	s.mu.Lock()
	ended := s != a.of || s.events.ending()
	if !ended {
		s.events.push(a.event)
	}
	s.mu.Unlock()
	if ended {
		a.end(errEnded)
		return
	}
	s.write.artifacts = append(s.write.artifacts, a.record)
	s.write.addCommands(a)
}

func (a *addArtifact) committed(_ *jobWriter, err error) { a.end(err) }
func (a *addArtifact) rejected(*Engine, bool)            { a.end(errEnded) }

// end ends the upload with the result of its commit, and answers the tool.
func (a *addArtifact) end(err error) {
	a.upload.Committed(err)
	a.done <- endedIf(err)
}

func (j toolJob) OpenArtifact(ctx context.Context, id arcp.ArtifactID) (arcp.ArtifactObject, io.ReadSeekCloser, error) {
	return j.openArtifact(ctx, id)
}

// openArtifact opens an artifact that the family of the job may read: one that the arguments of its
// root name, or that a job of the family has put.
func (tg toolGoroutine) openArtifact(ctx context.Context, id arcp.ArtifactID) (object arcp.ArtifactObject, content io.ReadSeekCloser, err error) {
	artifacts := tg.s.e.cfg.Artifacts
	if artifacts == nil {
		return object, nil, errNoArtifacts
	}
	root, err := tg.root(ctx)
	if err != nil {
		return object, nil, err
	}
	row, err := artifacts.Get(tg.s.row.Principal, id)
	if err == nil && row.Job != root.ID && !artifact.Names(root.Arguments, id) {
		err = arcp.Errorf(arcp.CodeNotFound, "the arguments of the job name no artifact %s", id)
	}
	if err != nil {
		return object, nil, err
	}
	if row, content, err = artifacts.Open(tg.s.row.Principal, id); err != nil {
		return object, nil, err
	}
	return row.Object(), content, nil
}

// root returns the row of the ancestor of the job that has no parent. If an ancestor was deleted, it
// returns one without arguments: those of a descendant were written by a tool, which must not choose
// what the family may read.
func (tg toolGoroutine) root(ctx context.Context) (*store.Job, error) {
	row := &tg.s.row
	for row.Parent != "" {
		if r := tg.s.e.run(row.Parent); r != nil {
			row = &r.row
			continue
		}
		parent, err := tg.s.e.cfg.Store.Job(ctx, row.Parent)
		if errors.Is(err, store.ErrNotFound) {
			return &store.Job{ID: row.Parent}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the parent of job %s: %w", row.ID, err)
		}
		row = &parent
	}
	return row, nil
}
