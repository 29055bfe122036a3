package conformance

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// RefusedError is the error of Run and RunAgainst for a server that refuses the credential of the
// target, Target.Token or none. Every check that opens a session would fail. A server that does not
// authenticate refuses none.
type RefusedError struct {
	Type arcp.Type // session.unauthenticated, session.rejected or session.error
	Code arcp.Code // empty if the server sent none
}

// Error does not have the message of the server, which may repeat the token.
func (e *RefusedError) Error() string {
	text := "conformance: the server refuses the credential: " + string(e.Type)
	if e.Code != "" {
		text += " " + string(e.Code)
	}
	return text
}

// refusal returns the error of an answer to the opening of a session, or nil if the answer refuses
// no credential.
func refusal(f *received) *RefusedError {
	e := &RefusedError{f.Type, f.errorCode()}
	switch {
	case f.Type == arcp.SessionUnauthenticated,
		f.Type == arcp.SessionRejected && e.Code == arcp.CodeUnauthenticated,
		f.Type == script.SessionError && e.Code == arcp.CodeUnauthenticated:
		return e
	}
	return nil
}
