package runtime

import (
	"strconv"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// maxFollows bounds the live jobs of other sessions that a session follows.
const maxFollows = 10_000

const originExtension = `"extensions":{"arcpx.arcp.origin.v1":{`

// remember keeps what the frames of a followed job say of their origin: the
// submitting session, which is of the same principal (SPEC.md §5.4).
func (c *conn) remember(j *store.Job) {
	b := []byte(originExtension)
	if j.Session != "" {
		b = append(arcp.AppendString(append(b, `"session_id":`...), string(j.Session)), ',')
	}
	if c.follows == nil {
		c.follows = make(map[arcp.JobID][]byte)
	}
	c.follows[j.ID] = b
}

// appendOrigin appends the extension that says where a forwarded event has its
// place.
func (c *conn) appendOrigin(dst []byte, e *store.Event) []byte {
	id := e.JobID()
	head, ok := c.follows[id]
	if !ok {
		head = []byte(originExtension)
	}
	if e.Type.Terminal() {
		delete(c.follows, id)
	}
	dst = append(append(dst, head...), `"event_seq":`...)
	return append(strconv.AppendUint(dst, e.OriginSeq, 10), `}},`...)
}
