package chaos

import (
	"fmt"

	"github.com/arcpd/arcpd/arcp"
)

// abilities are the actions that not every dialect can express or answers. In the draft dialect
// they depend on the library.
type abilities struct {
	direct   bool // submits may be direct
	start    bool // workflow.start and agent.delegate exist
	schedule bool // job.schedule exists
	reopen   bool // a session.open attaches to a session by its id
	cancel   bool // each cancel is answered, also of an ended job
	probe    bool // a refused job.subscribe is answered and fails no other request
}

// codec encodes and decodes the messages of one connection.
type codec interface {
	encode(env *arcp.Envelope) ([]byte, error)

	// decode returns the message of a frame, or nil without an equivalent message. The problems
	// have no Observer.
	decode(frame []byte) (m *message, problems []Finding)
}

// message is a received message.
type message struct {
	arcp.Envelope
	frame []byte // a replay repeats the frame of an event
}

// rfcCodec is the codec of the RFC's dialect.
type rfcCodec struct{}

func (rfcCodec) encode(env *arcp.Envelope) ([]byte, error) { return env.Append(nil), nil }

func (rfcCodec) decode(frame []byte) (*message, []Finding) {
	env, err := arcp.Decode(frame)
	if err != nil {
		return nil, []Finding{undecodable(frame, err)}
	}
	return &message{env, frame}, nil
}

func undecodable(frame []byte, err error) Finding {
	return Finding{Rule: RuleAnswer, Detail: fmt.Sprintf("a frame of the runtime cannot be decoded: %s: %v", frame, err)}
}
