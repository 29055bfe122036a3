package mcp

import (
	"strconv"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// connWrapper sees every message of a session as it comes over the wire. From it a call
// gets its result as the bytes that the server sent, in which numbers are exact
// and members in order, and its notifications in the order in which they came,
// before the result: the SDK delivers results past what is still being handled.
//
// Its methods may be called by many goroutines, and never block.
type connWrapper struct {
	most  int                                       // bytes of a message that comes
	stray func(level, logger string, data arcp.Raw) // a log message of no call

	mu    sync.Mutex
	next  uint64
	calls map[string]*call // by progress token
	asked map[string]*call // by the id of the request, as JSON

	// ghosts are requests of calls that have ended here and were not answered, by id.
	// The server may still run their tools, so what it says without a name may be
	// about them.
	ghosts  map[string]struct{}
	haunted bool // there were too many: nobody knows any more when none is left
}

// maxGhosts bounds the requests that are remembered when nobody waits for their
// answers. It is far above what a server that means well leaves unanswered.
const maxGhosts = 1024

// call is a request under way.
type call struct {
	token  string
	job    tool.Job    // zero: a list
	queue  chan notice // of a job; closed by end
	lost   uint64      // log messages that found no room; of the wrapper's lock
	id     string      // of the request that waits for its answer; empty: none; of the wrapper's lock
	result arcp.Raw    // of the wrapper's lock
}

// notice is what a server says about a call under way: progress, or a log
// message.
type notice struct {
	progress *arcp.JobProgressPayload
	level    string
	text     string
	attrs    arcp.Raw
}

func newTap(most int, stray func(level, logger string, data arcp.Raw)) *connWrapper {
	return &connWrapper{most: most, stray: stray, calls: make(map[string]*call), asked: make(map[string]*call), ghosts: make(map[string]struct{})}
}

// begin makes a call, whose token goes with its requests.
func (t *connWrapper) begin(job tool.Job) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	c := &call{token: "arcp-" + strconv.FormatUint(t.next, 10), job: job}
	if !job.IsZero() {
		c.queue = make(chan notice, maxQueued)
	}
	t.calls[c.token] = c
	return c
}

// end forgets a call, and closes its queue. It returns how many log messages
// found no room.
func (t *connWrapper) end(c *call) (lost uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.calls, c.token)
	delete(t.asked, c.id)
	if !c.job.IsZero() && c.id != "" {
		t.hauntLocked(c.id)
	}
	if c.queue != nil {
		close(c.queue)
	}
	return c.lost
}

func (t *connWrapper) hauntLocked(id string) {
	if len(t.ghosts) == maxGhosts {
		t.haunted = true
		return
	}
	t.ghosts[id] = struct{}{}
}

// take returns the last result of a call, nil if none was seen.
func (t *connWrapper) take(c *call) arcp.Raw {
	t.mu.Lock()
	defer t.mu.Unlock()
	raw := c.result
	c.result = nil
	return raw
}

// busy reports whether a tool call is under way.
func (t *connWrapper) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.calls {
		if !c.job.IsZero() {
			return true
		}
	}
	return false
}

// only is the one tool call under way; nil if there are none or several. Those that
// have ended here and were not answered count.
func (t *connWrapper) only() *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.onlyLocked()
}

func (t *connWrapper) onlyLocked() (only *call) {
	if len(t.ghosts) > 0 || t.haunted {
		return nil
	}
	for _, c := range t.calls {
		if c.job.IsZero() {
			continue
		}
		if only != nil {
			return nil
		}
		only = c
	}
	return only
}

// message is what the wrapper reads of a message.
type message struct {
	ID     arcp.Raw `json:"id"`
	Method string   `json:"method"`
	Params arcp.Raw `json:"params"`
	Result arcp.Raw `json:"result"`
}

// meta is where a progress token travels.
type meta struct {
	Meta struct {
		ProgressToken arcp.Raw `json:"progressToken"`
	} `json:"_meta"`
}

func (m *meta) token() string { return text(m.Meta.ProgressToken) }

// text is the string that raw encodes; empty if it is none.
func text(raw arcp.Raw) (s string) {
	if raw.Kind() != '"' || arcp.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// sent notes which request belongs to which call, and returns the request's id.
func (t *connWrapper) sent(msg []byte) (id arcp.Raw) {
	var m message
	if arcp.Unmarshal(msg, &m) != nil || m.Method == "" || len(m.ID) == 0 {
		return nil
	}
	var p meta
	if arcp.Unmarshal(m.Params, &p) != nil {
		return m.ID
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[p.token()]
	switch {
	case c != nil:
		delete(t.asked, c.id)
		c.id = string(m.ID)
		t.asked[c.id] = c
	case m.Method == "tools/call": // its call ended while it was being written
		t.hauntLocked(string(m.ID))
	}
	return m.ID
}

// received notes what a message says about a call.
func (t *connWrapper) received(msg []byte) {
	var m message
	if arcp.Unmarshal(msg, &m) != nil {
		return // the SDK says what is wrong with it
	}
	switch {
	case m.Method == "notifications/progress":
		t.progress(m.Params)
	case m.Method == "notifications/message":
		t.message(m.Params)
	case m.Method == "" && len(m.ID) > 0:
		t.answered(string(m.ID), m.Result)
	}
}

// answered notes the end of a request; result is nil if it has failed.
func (t *connWrapper) answered(id string, result arcp.Raw) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ghosts, id)
	if c := t.asked[id]; c != nil {
		delete(t.asked, id)
		c.id, c.result = "", result
	}
}

func (t *connWrapper) progress(params arcp.Raw) {
	var p struct {
		Token    arcp.Raw `json:"progressToken"`
		Progress float64  `json:"progress"`
		Total    float64  `json:"total"`
		Message  string   `json:"message"`
	}
	if arcp.Unmarshal(params, &p) != nil || !(p.Progress >= 0) {
		return
	}
	n := &arcp.JobProgressPayload{Current: p.Progress, Message: clip.Ellipsis(p.Message, maxDescription)}
	if p.Total > 0 {
		n.Total = &p.Total
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.calls[text(p.Token)]; c != nil {
		t.enqueueLocked(c, notice{progress: n})
	}
}

// message gives a log message to the call that it names or, if it names none, to
// the only one that there is.
func (t *connWrapper) message(params arcp.Raw) {
	var p struct {
		meta
		Level  string   `json:"level"`
		Logger string   `json:"logger"`
		Data   arcp.Raw `json:"data"`
	}
	if arcp.Unmarshal(params, &p) != nil {
		return
	}
	if !t.log(p.token(), notice{level: level(p.Level), text: logText(p.Logger, p.Data), attrs: logAttributes(p.Logger, p.Data)}) {
		t.stray(level(p.Level), p.Logger, p.Data)
	}
}

func (t *connWrapper) log(token string, n notice) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[token]
	if token == "" {
		c = t.onlyLocked()
	}
	if c == nil || c.job.IsZero() {
		return false
	}
	t.enqueueLocked(c, n)
	return true
}

// enqueueLocked leaves out what a slow job has no room for: what follows says
// more than progress that was left out, and the log messages are counted.
func (t *connWrapper) enqueueLocked(c *call, n notice) {
	if c.queue == nil {
		return
	}
	select {
	case c.queue <- n:
	default:
		if n.progress == nil {
			c.lost++
		}
	}
}

// levels are the log levels of MCP, which are those of syslog.
var levels = map[string]string{
	"debug": arcp.LevelDebug, "info": arcp.LevelInfo, "notice": arcp.LevelInfo, "warning": arcp.LevelWarn,
	"error": arcp.LevelError, "critical": arcp.LevelCritical, "alert": arcp.LevelCritical, "emergency": arcp.LevelCritical,
}

func level(mcp string) string {
	if l, ok := levels[mcp]; ok {
		return l
	}
	return arcp.LevelInfo
}

// logText is what of a log message a person reads: its text, or its data as JSON.
func logText(logger string, data arcp.Raw) string {
	s := text(data)
	if s == "" {
		s = string(data)
	}
	if logger != "" {
		s = logger + ": " + s
	}
	return clip.Ellipsis(s, maxDescription)
}

// logAttributes keeps data that is no text as it came.
func logAttributes(logger string, data arcp.Raw) arcp.Raw {
	members := map[string]arcp.Raw{}
	if logger != "" {
		members["logger"] = arcp.AppendString(nil, clip.Ellipsis(logger, maxDescription))
	}
	if len(data) > 0 && data.Kind() != '"' && len(data) <= maxErrorBody {
		members["data"] = data
	}
	if len(members) == 0 {
		return nil
	}
	raw, err := arcp.Marshal(members)
	if err != nil {
		return nil
	}
	return raw
}
