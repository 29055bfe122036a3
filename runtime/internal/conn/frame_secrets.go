package conn

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// credentials returns the credentials of a live job with their values.
func (s *Server) credentials(job arcp.JobID) []arcp.Credential {
	if s.opts.Vault == nil {
		return nil
	}
	return s.opts.Vault.Credentials(job)
}

// appendValues adds secret values, which the log does not have, to the frame of an event for the
// submitting session.
func (s *Server) appendValues(frame []byte, e *store.Event) []byte {
	switch e.Type {
	case arcp.JobAccepted:
		return s.appendCredentials(frame, e.JobID())
	case arcp.EventEmit:
		return s.appendRotated(frame, e)
	}
	return frame
}

// appendRotated adds the new value to the event of a rotation, if the value is still valid. The
// frame ends with the data of the event, an object that is not empty.
func (s *Server) appendRotated(frame []byte, e *store.Event) []byte {
	value, ok := s.opts.Vault.Announced(e.JobID(), e.JSeq)
	if !ok {
		return frame
	}
	frame = append(frame[:len(frame)-len("}}}")], `,"value":`...)
	return append(arcp.AppendString(frame, value.Reveal()), "}}}"...)
}

// appendCredentials adds the credentials of a job to a frame of job.accepted. The frame ends with
// the payload, an object that is not empty.
func (s *Server) appendCredentials(frame []byte, job arcp.JobID) []byte {
	list := s.credentials(job)
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
