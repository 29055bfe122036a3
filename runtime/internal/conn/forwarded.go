package conn

import (
	"strconv"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// DefaultMaxFollows bounds the live jobs of other sessions that a session
// follows, over all its connections.
const DefaultMaxFollows = 10_000

const originExtension = `"extensions":{"arcpx.arcp.origin.v1":{`

// maxOrigins bounds what is remembered of jobs that a session does not follow,
// but is asked something by.
const maxOrigins = 1000

// forwarded is what the frames of other sessions' jobs say of their origin, by job.
type forwarded struct {
	follows map[arcp.JobID][]byte // of jobs that the session follows and that have not ended; see remember
	origins map[arcp.JobID][]byte // of jobs that have asked the session something; see learnOrigin
	head    []byte                // of the job of the item that nextItem returned last, if it is of another session
}

// remember keeps what the frames of a followed job say of their origin (SPEC.md
// §5.4).
func (c *conn) remember(j *store.Job) {
	if c.forwarded.follows == nil {
		c.forwarded.follows = make(map[arcp.JobID][]byte)
	}
	c.forwarded.follows[j.ID] = c.originHead(j)
}

// originHead names the submitting session, but not to another principal.
func (c *conn) originHead(j *store.Job) []byte {
	b := []byte(originExtension)
	if j.Session != "" && j.Principal == c.principal.identity.Principal {
		b = append(arcp.AppendString(append(b, `"session_id":`...), string(j.Session)), ',')
	}
	return b
}

// appendOrigin appends the extension that says where a forwarded event has its
// place.
func (c *conn) appendOrigin(dst []byte, e *store.Event) []byte {
	if e.Type.Terminal() {
		delete(c.forwarded.follows, e.JobID())
	}
	dst = append(append(dst, c.forwarded.head...), `"event_seq":`...)
	return append(strconv.AppendUint(dst, e.OriginSeq, 10), `}},`...)
}

// origin returns what the frames of a job say of their origin, if that is known.
func (c *conn) origin(id arcp.JobID) (head []byte, ok bool) {
	if head, ok = c.forwarded.follows[id]; !ok {
		head, ok = c.forwarded.origins[id]
	}
	return head, ok
}

// learnOrigin takes the origin from the job's row, which is kept at least as long as its
// events, and remembers it while there is room. t is the type of the event that needs it.
func (c *conn) learnOrigin(j *store.Job, t arcp.Type) []byte {
	switch {
	case mayBeAlone(t):
		if len(c.forwarded.origins) >= maxOrigins || c.forwarded.origins == nil {
			c.forwarded.origins = make(map[arcp.JobID][]byte)
		}
		c.forwarded.origins[j.ID] = c.originHead(j)
	case len(c.forwarded.follows) < c.srv.opts.MaxFollows: // by an earlier connection of the session
		c.remember(j)
	}
	return c.originHead(j)
}

// mayBeAlone reports whether an event of a type may be given to a session that
// does not follow its job: what it is asked, and what answers it.
func mayBeAlone(t arcp.Type) bool {
	switch t {
	case arcp.LeaseGranted, arcp.LeaseExtended, arcp.LeaseRevoked:
		return true
	}
	s := arcp.Lookup(t)
	return s != nil && s.Directed
}
