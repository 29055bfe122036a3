package builtin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

type credentialsIn struct {
	Limit int `json:"limit,omitzero" jsonschema:"description=rows at most,minimum=1,maximum=1000"`
}

type credentialForgetIn struct {
	JobID       arcp.JobID `json:"job_id" jsonschema:"description=whose credentials were revoked by hand"`
	Provisioner string     `json:"provisioner" jsonschema:"description=that had issued them"`
}

type credentialForgotten struct {
	Forgotten bool `json:"forgotten"`
}

type credentialRotateIn struct {
	JobID       arcp.JobID `json:"job_id" jsonschema:"description=whose credentials are replaced"`
	Provisioner string     `json:"provisioner,omitzero" jsonschema:"description=whose credentials; absent: of all that the job has some from"`
}

type credentialsRotated struct {
	Rotated []credentialRotated `json:"rotated"`
}

type credentialRotated struct {
	Provisioner   string   `json:"provisioner"`
	CredentialIDs []string `json:"credential_ids"`
}

// rotateTimeout is after how long an admin is not told any more what has come of
// it. A provisioner has half a minute.
const rotateTimeout = 2 * time.Minute

func (b *Tools) registerCredentials() error {
	return errors.Join(
		builtin(b, "jobs.credentials", tool.SideEffectRead, "credentials that were issued to jobs and are not revoked; for the role admin", b.credentialsList),
		builtin(b, "jobs.forget_credentials", tool.SideEffectWrite, "forgets credentials that were revoked by hand; for the role admin", b.credentialsForget),
		builtinLike(b, tool.Capability{Name: "jobs.rotate_credentials", SideEffect: tool.SideEffectExternal, Limits: tool.Limits{Timeout: rotateTimeout},
			Description: "gives a job that goes on new credentials; for the role admin"}, b.credentialsRotate),
	)
}

// keeper is the vault, for an admin.
func (b *Tools) keeper(job tool.Job) (*credential.Vault, error) {
	who, err := b.caller(job)
	switch {
	case err != nil:
		return nil, err
	case !who.Admin:
		return nil, arcp.Errorf(arcp.CodePermissionDenied, "this needs the role admin")
	case b.Vault == nil:
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "there are no provisioners")
	}
	return b.Vault, nil
}

func (b *Tools) credentialsList(ctx context.Context, job tool.Job, in credentialsIn) (page arcp.Page[arcp.CredentialView], err error) {
	vault, err := b.keeper(job)
	if err != nil {
		return page, err
	}
	page.Items = []arcp.CredentialView{}
	err = vault.List(ctx, func(e credential.Entry) bool {
		row := arcp.CredentialView{JobID: e.Job, Provisioner: e.Provisioner, Generation: e.Generation, Principal: e.Principal, Agent: e.Agent, State: string(e.State),
			CreatedAt: e.CreatedAt.UTC(), Failed: e.Failed, NextAt: e.NextAt, Error: e.Error}
		for _, ref := range e.Refs {
			row.CredentialIDs = append(row.CredentialIDs, ref.ID)
		}
		page.Items = append(page.Items, row)
		return len(page.Items) < cmp.Or(in.Limit, paging.DefaultLen)
	})
	if err != nil {
		return page, txn.Refusal(b.Logger, err, "list credentials")
	}
	return page, nil
}

func (b *Tools) credentialsForget(ctx context.Context, job tool.Job, in credentialForgetIn) (credentialForgotten, error) {
	vault, err := b.keeper(job)
	if err != nil {
		return credentialForgotten{}, err
	}
	b.auditKeeper("forget_credentials", job, in.JobID, in.Provisioner)
	switch err := vault.Forget(ctx, in.JobID, in.Provisioner, b.Changes.Commit); {
	case errors.Is(err, store.ErrNotFound):
		return credentialForgotten{}, arcp.Errorf(arcp.CodeNotFound, "job %s has no credentials of %s", in.JobID, in.Provisioner)
	case errors.Is(err, credential.ErrHeld):
		return credentialForgotten{}, arcp.Errorf(arcp.CodeFailedPrecondition, "%s", err)
	case err != nil:
		return credentialForgotten{}, txn.Refusal(b.Logger, err, "forget credentials")
	}
	return credentialForgotten{true}, nil
}

// auditKeeper records what an admin does with the credentials of a job.
func (b *Tools) auditKeeper(action string, job tool.Job, target arcp.JobID, provisioner string) {
	actor := ""
	if caller, ok := job.Host().(engine.Caller); ok {
		actor = caller.Principal()
	}
	b.Audit.Event(action, actor, "").Str("job_id", string(job.ID())).Str("target", string(target)).
		Str("provisioner", provisioner).Str("decision", "allowed").Msg("audit")
}

func (b *Tools) credentialsRotate(ctx context.Context, job tool.Job, in credentialRotateIn) (out credentialsRotated, err error) {
	vault, err := b.keeper(job)
	if err != nil {
		return out, err
	}
	b.auditKeeper("rotate_credentials", job, in.JobID, in.Provisioner)
	list, err := vault.Rotate(ctx, in.JobID, in.Provisioner)
	for _, done := range list {
		out.Rotated = append(out.Rotated, credentialRotated{done.Provisioner, done.IDs})
	}
	told, known := arcp.AsError(err)
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, store.ErrNotFound):
		return out, arcp.Errorf(arcp.CodeNotFound, "job %s has no credentials, or none of the provisioner, or has ended", in.JobID)
	case errors.Is(err, credential.ErrRotating), errors.Is(err, credential.ErrEnded):
		return out, arcp.Errorf(arcp.CodeFailedPrecondition, "%s", err)
	case known:
		return out, told
	}
	return out, txn.Refusal(b.Logger, err, "rotate credentials")
}
