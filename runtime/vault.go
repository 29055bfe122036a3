package runtime

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/store"
)

// newVault makes the vault if there are provisioners, or were: what they have
// issued is then still to be revoked.
func (r *Runtime) newVault() (err error) {
	if len(r.cfg.Provisioners) == 0 && r.cfg.Sealer == nil {
		return nil
	}
	sealer := r.cfg.Sealer
	if sealer == nil {
		sealer = credential.EphemeralSealer()
	}
	r.vault, err = credential.New(credential.Options{Sources: r.cfg.Provisioners, Log: r.log, Store: r.cfg.Store, Sealer: sealer, Logger: r.cfg.Log,
		Unrevoked: func(n int) { r.metrics.CredentialsUnrevoked.Set(float64(n)) },
		Operation: func(op, result string) { r.metrics.CredentialOperations.WithLabelValues(op, result).Inc() }})
	return err
}

func (r *Runtime) closeVault() {
	if r.vault != nil {
		r.vault.Close()
	}
}

// credentials are those of a job, with their values, while it has not ended.
func (r *Runtime) credentials(job arcp.JobID) []arcp.Credential {
	if r.vault == nil {
		return nil
	}
	return r.vault.Credentials(job)
}

// appendValues gives a frame for the submitting session the values that its event
// tells of.
func (r *Runtime) appendValues(frame []byte, e *store.Event) []byte {
	switch e.Type {
	case arcp.JobAccepted:
		return r.appendCredentials(frame, e.JobID())
	case arcp.EventEmit:
		return r.appendRotated(frame, e)
	}
	return frame
}

// appendRotated gives the event of a rotation its value, while that is the one
// that counts. The frame ends with the data of the event, which has a member.
func (r *Runtime) appendRotated(frame []byte, e *store.Event) []byte {
	value, ok := r.vault.Announced(e.JobID(), e.JSeq)
	if !ok {
		return frame
	}
	frame = append(frame[:len(frame)-len("}}}")], `,"value":`...)
	return append(arcp.AppendString(frame, value.Reveal()), "}}}"...)
}

// appendCredentials gives a frame of job.accepted the credentials of its job. The
// log has them not: the frame ends with the payload, which has other members.
func (r *Runtime) appendCredentials(frame []byte, job arcp.JobID) []byte {
	list := r.credentials(job)
	if len(list) == 0 {
		return frame
	}
	raw, err := arcp.Marshal(list)
	if err != nil { // texts, and what was JSON
		panic("runtime: credentials: " + err.Error())
	}
	frame = append(frame[:len(frame)-len("}}")], `,"credentials":`...)
	return append(append(frame, raw...), "}}"...)
}
