package conn

import (
	"bytes"

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

// appendValues adds the secret values of an event to its frame for the submitting session. The frame
// ends with the payload.
func (f frameSecrets) appendValues(frame []byte, e *store.Event) []byte {
	if f.vault == nil {
		return frame
	}
	switch e.Type {
	case arcp.JobAccepted:
		payload := f.appendCredentials(frame[:len(frame)-1], e.JobID())
		return append(payload, '}')
	case arcp.EventEmit:
		if payload, ok := f.appendRotated(frame[:len(frame)-1], e); ok {
			return append(payload, '}')
		}
	}
	return frame
}

// rotated returns the payload of an event of a rotation with the new value; false: the event has no
// value, or the value is no longer valid.
func (f frameSecrets) rotated(e *store.Event) (payload arcp.Raw, ok bool) {
	if f.vault == nil || e.Type != arcp.EventEmit {
		return nil, false
	}
	return f.appendRotated(bytes.Clone(e.Payload()), e)
}

// appendRotated adds the new value to bytes that end with the payload of an event of a rotation. The
// payload ends with the data, an object that is not empty. ok is false for other events, and if the
// value is no longer valid.
func (f frameSecrets) appendRotated(b []byte, e *store.Event) (_ []byte, ok bool) {
	value, ok := f.vault.Announced(e.JobID(), e.JSeq)
	if !ok {
		return b, false
	}
	b = append(b[:len(b)-len("}}")], `,"value":`...)
	return append(arcp.AppendString(b, value.Reveal()), "}}"...), true
}

// appendCredentials adds the credentials of a job to bytes that end with the payload of job.accepted,
// an object that is not empty.
func (f frameSecrets) appendCredentials(b []byte, job arcp.JobID) []byte {
	list := f.credentials(job)
	if len(list) == 0 {
		return b
	}
	raw, err := arcp.Marshal(list)
	if err != nil { // strings, and values that were JSON
		panic("conn: credentials: " + err.Error())
	}
	b = append(b[:len(b)-1], `,"credentials":`...)
	return append(append(b, raw...), '}')
}
