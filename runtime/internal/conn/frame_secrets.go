package conn

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// credentials are those of a job, with their values, while it has not ended.
func (s *Server) credentials(job arcp.JobID) []arcp.Credential {
	if s.opts.Vault == nil {
		return nil
	}
	return s.opts.Vault.Credentials(job)
}

// appendValues gives a frame for the submitting session the values that its event
// tells of.
func (s *Server) appendValues(frame []byte, e *store.Event) []byte {
	switch e.Type {
	case arcp.JobAccepted:
		return s.appendCredentials(frame, e.JobID())
	case arcp.EventEmit:
		return s.appendRotated(frame, e)
	}
	return frame
}

// appendRotated gives the event of a rotation its value, while that is the one
// that counts. The frame ends with the data of the event, which has a member.
func (s *Server) appendRotated(frame []byte, e *store.Event) []byte {
	value, ok := s.opts.Vault.Announced(e.JobID(), e.JSeq)
	if !ok {
		return frame
	}
	frame = append(frame[:len(frame)-len("}}}")], `,"value":`...)
	return append(arcp.AppendString(frame, value.Reveal()), "}}}"...)
}

// appendCredentials gives a frame of job.accepted the credentials of its job. The
// log has them not: the frame ends with the payload, which has other members.
func (s *Server) appendCredentials(frame []byte, job arcp.JobID) []byte {
	list := s.credentials(job)
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
