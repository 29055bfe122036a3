package conn

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/store"
)

// frameSecrets adds secret values to frames. The log does not have these values.
type frameSecrets struct {
	vault *credential.Vault // nil: there are no provisioners
}

// credentials returns the credentials of a live job with their values.
func (f frameSecrets) credentials(job arcp.JobID) []arcp.Credential {
	if f.vault == nil {
		return nil
	}
	return f.vault.Credentials(job)
}

// appendValues adds the secret values of an event to its frame for the submitting session.
func (f frameSecrets) appendValues(frame []byte, e *store.Event) []byte {
	if f.vault == nil {
		return frame
	}
	switch e.Type {
	case arcp.JobAccepted:
		return f.appendCredentials(frame, e.JobID())
	case arcp.EventEmit:
		return f.appendRotated(frame, e)
	}
	return frame
}

// appendRotated adds the new value to the event of a rotation, if the value is still valid. The
// frame ends with the data of the event, an object that is not empty.
func (f frameSecrets) appendRotated(frame []byte, e *store.Event) []byte {
	value, ok := f.vault.Announced(e.JobID(), e.JSeq)
	if !ok {
		return frame
	}
	frame = append(frame[:len(frame)-len("}}}")], `,"value":`...)
	return append(arcp.AppendString(frame, value.Reveal()), "}}}"...)
}

// appendCredentials adds the credentials of a job to a frame of job.accepted. The frame ends with
// the payload, an object that is not empty.
func (f frameSecrets) appendCredentials(frame []byte, job arcp.JobID) []byte {
	list := f.credentials(job)
	if len(list) == 0 {
		return frame
	}
	raw, err := arcp.Marshal(list)
	if err != nil { // strings, and values that were JSON
		panic("runtime: credentials: " + err.Error())
	}
	frame = append(frame[:len(frame)-len("}}")], `,"credentials":`...)
	return append(append(frame, raw...), "}}"...)
}
