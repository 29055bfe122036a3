package builtin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

type credentialsIn struct {
	Limit int `json:"limit,omitzero" jsonschema:"description=maximum of items,minimum=1,maximum=1000"`
}

type credentialForgetIn struct {
	JobID       arcp.JobID `json:"job_id" jsonschema:"description=job whose credentials were revoked manually"`
	Provisioner string     `json:"provisioner" jsonschema:"description=issuer of the credentials"`
}

type credentialForgotten struct {
	Forgotten bool `json:"forgotten"`
}

type credentialRotateIn struct {
	JobID       arcp.JobID `json:"job_id" jsonschema:"description=job whose credentials are replaced"`
	Provisioner string     `json:"provisioner,omitzero" jsonschema:"description=issuer of the credentials; absent: all issuers"`
}

type credentialsRotated struct {
	Rotated []credentialRotated `json:"rotated"`
}

type credentialRotated struct {
	Provisioner   string   `json:"provisioner"`
	CredentialIDs []string `json:"credential_ids"`
}

// rotateTimeout bounds jobs.rotate_credentials. A call of a provisioner may take 30 s.
const rotateTimeout = 2 * time.Minute

type credentialTools struct {
	vault   *credential.Vault // nil: there are no provisioners
	changes txn.Committer
	audit   audit.Log
	logger  zerolog.Logger
}

// register registers the tools for admins. Without provisioners they return FAILED_PRECONDITION.
func (t *credentialTools) register(r *registrar) {
	admin := func(job tool.Job) (*Caller, error) {
		caller, err := r.callers.find(job)
		switch {
		case err != nil:
			return nil, err
		case !caller.Admin:
			return nil, arcp.Errorf(arcp.CodePermissionDenied, "this needs the role admin")
		case t.vault == nil:
			return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "there are no provisioners")
		}
		return caller, nil
	}
	register(r, readTool("jobs.credentials", "credentials that were issued to jobs and are not revoked; for the role admin"), admin, t.list)
	register(r, writeTool("jobs.forget_credentials", "removes the record of manually revoked credentials; for the role admin"),
		admin, t.forget)
	register(r, tool.Capability{
		Name:        "jobs.rotate_credentials",
		SideEffect:  tool.SideEffectExternal,
		Limits:      tool.Limits{Timeout: rotateTimeout},
		Description: "replaces the credentials of a live job; for the role admin",
	}, admin, t.rotate)
}

// list handles jobs.credentials. It returns one page, which no cursor continues.
func (t *credentialTools) list(ctx context.Context, _ *Caller, in credentialsIn) (page arcp.Page[arcp.CredentialView], err error) {
	page.Items = []arcp.CredentialView{}
	err = t.vault.List(ctx, func(e credential.Entry) bool {
		row := arcp.CredentialView{
			JobID:       e.Job,
			Provisioner: e.Provisioner,
			Generation:  e.Generation,
			Principal:   e.Principal,
			Agent:       e.Agent,
			State:       string(e.State),
			CreatedAt:   e.CreatedAt.UTC(),
			Failed:      e.Failed,
			NextAt:      e.NextAt,
			Error:       e.Error,
		}
		for _, ref := range e.Refs {
			row.CredentialIDs = append(row.CredentialIDs, ref.ID)
		}
		page.Items = append(page.Items, row)
		return len(page.Items) < cmp.Or(in.Limit, paging.DefaultLen)
	})
	if err != nil {
		return page, txn.Refusal(t.logger, err, "list credentials")
	}
	return page, nil
}

func (t *credentialTools) forget(ctx context.Context, caller *Caller, in credentialForgetIn) (credentialForgotten, error) {
	t.auditChange("forget_credentials", caller, in.JobID, in.Provisioner)
	switch err := t.vault.Forget(ctx, in.JobID, in.Provisioner, t.changes.Commit); {
	case errors.Is(err, store.ErrNotFound):
		return credentialForgotten{}, arcp.Errorf(arcp.CodeNotFound, "job %s has no credentials of %s", in.JobID, in.Provisioner)
	case errors.Is(err, credential.ErrActive):
		return credentialForgotten{}, arcp.Errorf(arcp.CodeFailedPrecondition, "%s", err)
	case err != nil:
		return credentialForgotten{}, txn.Refusal(t.logger, err, "forget credentials")
	}
	return credentialForgotten{true}, nil
}

// auditChange audits that an admin changes the credentials of a job.
func (t *credentialTools) auditChange(action string, caller *Caller, target arcp.JobID, provisioner string) {
	t.audit.Event(action, caller.Principal, "").Str("job_id", string(caller.Job.ID())).Str("target", string(target)).
		Str("provisioner", provisioner).Str("decision", "allowed").Msg("audit")
}

// rotate handles jobs.rotate_credentials. A job without credentials of the provisioner is
// NOT_FOUND. A job whose credentials are being replaced is FAILED_PRECONDITION.
func (t *credentialTools) rotate(ctx context.Context, caller *Caller, in credentialRotateIn) (out credentialsRotated, err error) {
	t.auditChange("rotate_credentials", caller, in.JobID, in.Provisioner)
	list, err := t.vault.Rotate(ctx, in.JobID, in.Provisioner)
	for _, done := range list {
		out.Rotated = append(out.Rotated, credentialRotated{done.Provisioner, done.IDs})
	}
	refusal, refused := arcp.AsError(err)
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, store.ErrNotFound):
		return out, arcp.Errorf(arcp.CodeNotFound, "job %s has no credentials, or none of the provisioner, or has ended", in.JobID)
	case errors.Is(err, credential.ErrRotating), errors.Is(err, credential.ErrEnded):
		return out, arcp.Errorf(arcp.CodeFailedPrecondition, "%s", err)
	case refused:
		return out, refusal
	}
	return out, txn.Refusal(t.logger, err, "rotate credentials")
}
