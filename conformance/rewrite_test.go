package conformance

import (
	"slices"

	"github.com/arcpd/arcpd/transport"
)

// rewriting returns a plant that changes each frame of the server. An empty frame is left out.
func rewriting(change func(frame string) string) func(transport.Conn) transport.Conn {
	return func(conn transport.Conn) transport.Conn { return &rewritten{conn, change} }
}

// rewritten is a connection whose received frames are changed.
type rewritten struct {
	transport.Conn
	change func(frame string) string
}

func (r *rewritten) Read() ([]byte, error) {
	for {
		frame, err := r.Conn.Read()
		if err != nil {
			return nil, err
		}
		if changed := r.change(string(slices.Clone(frame))); changed != "" {
			return []byte(changed), nil
		}
	}
}
