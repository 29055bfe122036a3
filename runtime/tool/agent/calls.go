package agent

import (
	"encoding/base64"
	"strings"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

const (
	// maxResult bounds a result that comes in parts: a runtime sends no larger ones.
	maxResult = 256 << 20

	// maxHeld bounds what is kept of all jobs of a program together, parts of results
	// and events that wait to be relayed: two of the largest results.
	maxHeld = 2 * maxResult

	// maxEventBytes bounds the events of one job that wait to be relayed; parts of
	// its result are not among them.
	maxEventBytes = 16 << 20
)

// calls are the jobs there that are jobs here.
type calls struct {
	mu    sync.Mutex
	asked map[arcp.MessageID]*call // by what submitted them
	jobs  map[arcp.JobID]*call     // those that were accepted
	held  int                      // bytes that are kept of all of them
	most  int                      // that may be
}

func newCalls() *calls {
	return &calls{asked: make(map[arcp.MessageID]*call), jobs: make(map[arcp.JobID]*call), most: maxHeld}
}

// call is a job there that is one here.
type call struct {
	all      *calls
	request  arcp.MessageID
	job      tool.Job
	accepted chan struct{} // closed when there is known

	there arcp.JobID // of the lock of all until accepted is closed; then unchanging

	held int  // of the lock of all: bytes that are kept
	over bool // of the lock of all: nothing more is
	lost bool // of the lock of all: events were not kept
	deaf bool // of the lock of all: nobody reads events any more

	mu    sync.Mutex
	parts parts
}

func (c *calls) begin(job tool.Job) *call {
	k := &call{all: c, request: arcp.NewMessageID(), job: job, accepted: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[k.request] = k
	return k
}

// end forgets a call. Another may have found the same job there meanwhile.
func (c *calls) end(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asked, k.request)
	if c.jobs[k.there] == k {
		delete(c.jobs, k.there)
	}
	c.held -= k.held
	k.held, k.over = 0, true
}

func (c *calls) find(id arcp.JobID) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jobs[id]
}

// hear sees each message of the program before it is routed, in order. It takes
// the parts of results, which nothing that is slow here shall lose, and the events
// that cannot be kept.
func (c *calls) hear(env *arcp.Envelope) (taken bool) {
	if env.Type == arcp.JobAccepted {
		c.accept(env)
		return false
	}
	if !counts(env) {
		return false
	}
	k := c.find(env.JobID)
	switch {
	case k == nil:
		return false
	case env.Type == arcp.JobResultChunk:
		k.part(env)
		return true
	}
	return !k.keep(env)
}

// counts reports whether a message is an event that may be lost: not a question,
// an answer or the outcome.
func counts(env *arcp.Envelope) bool {
	name := string(env.Type)
	return env.EventSeq != 0 && env.JobID != "" && !env.Type.Terminal() && env.Type != arcp.JobAccepted && env.Type != arcp.Nack &&
		!strings.HasPrefix(name, "human.") && !strings.HasPrefix(name, "permission.") && !strings.HasPrefix(name, "lease.")
}

func sizeOf(env *arcp.Envelope) int { return len(env.Payload) + len(env.Extensions) }

// accept learns which job there a call is.
func (c *calls) accept(env *arcp.Envelope) {
	id := env.JobID
	if p, err := arcp.DecodePayload[arcp.JobAcceptedPayload](env); err == nil && p.JobID != "" {
		id = p.JobID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.asked[env.CorrelationID]
	if k == nil || k.there != "" || id == "" {
		return
	}
	k.there = id
	c.jobs[id] = k
	close(k.accepted)
}

// hold reserves memory for a call, if there is some.
func (k *call) hold(n int) bool {
	c := k.all
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.over || c.held+n > c.most {
		return false
	}
	c.held += n
	k.held += n
	return true
}

func (k *call) release(n int) {
	c := k.all
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, k.held)
	c.held -= n
	k.held -= n
}

// keep reserves the memory of an event, which is released when it was relayed.
func (k *call) keep(env *arcp.Envelope) bool {
	kept := !k.isDeaf() && k.hold(sizeOf(env))
	if !kept {
		k.lose(false)
	}
	return kept
}

// lose is told that an event will not be relayed, or that none will be any more.
func (k *call) lose(all bool) {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	k.lost, k.deaf = true, k.deaf || all
}

func (k *call) isDeaf() bool {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	return k.deaf
}

func (k *call) hasLost() bool {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	return k.lost
}

// parts is a result that comes in parts.
type parts struct {
	id   string
	data []byte
	next uint64
	more bool // the last part was not the last
	err  error
}

// part adds a part to the result, or finds that there will be none.
func (k *call) part(env *arcp.Envelope) {
	c, data, err := decodePart(env)
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &k.parts
	if c.ResultID != p.id {
		k.release(len(p.data))
		*p = parts{id: c.ResultID}
	}
	if p.err != nil {
		return
	}
	switch {
	case err != nil:
		p.err = err
	case c.ChunkSeq != p.next:
		p.err = arcp.Errorf(arcp.CodeDataLoss, "a part of the result is missing")
	case len(p.data)+len(data) > maxResult:
		p.err = arcp.Errorf(arcp.CodeResourceExhausted, "the result is larger than %d bytes", maxResult)
	case !k.hold(len(data)):
		p.err = arcp.Errorf(arcp.CodeResourceExhausted, "there is no room for the result: %d bytes are kept of the program's jobs", k.all.most).RetryAfter(1)
	default:
		p.data, p.next, p.more = append(p.data, data...), c.ChunkSeq+1, c.More
		return
	}
	k.release(len(p.data))
	p.data = nil
}

func decodePart(env *arcp.Envelope) (c arcp.JobResultChunkPayload, data []byte, err error) {
	c, err = arcp.DecodePayload[arcp.JobResultChunkPayload](env)
	data = []byte(c.Data)
	if err == nil && c.Encoding == "base64" {
		data, err = base64.StdEncoding.DecodeString(c.Data)
	}
	if err != nil {
		err = arcp.Errorf(arcp.CodeInternal, "a part of the result cannot be read")
	}
	return c, data, err
}

// whole returns the result that the outcome speaks of, if all of it has come.
func (k *call) whole(r *arcp.JobCompletedPayload) (arcp.Raw, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &k.parts
	switch size := uint64(len(p.data)); {
	case p.id != r.ResultID || p.err == nil && p.next == 0:
		return nil, arcp.Errorf(arcp.CodeDataLoss, "the parts of the result were lost")
	case p.err != nil:
		return nil, p.err
	case p.more || r.ResultSize != nil && *r.ResultSize != size:
		return nil, arcp.Errorf(arcp.CodeDataLoss, "of the result only %d bytes have come", size)
	}
	return p.data, nil
}
