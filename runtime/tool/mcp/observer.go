package mcp

import (
	"context"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// observer sees every message of a session. A call gets its result from the observer as the
// bytes that the server sent, in which numbers are exact and members in order. A call gets its
// notifications in the order in which they came, before the result: the SDK delivers results
// before it has handled earlier notifications.
//
// Its methods may be called by many goroutines, and never block.
type observer struct {
	stray func(level, logger string, data arcp.Raw) // is called with each log message of no call

	mu    sync.Mutex
	next  uint64
	calls map[string]*call // by progress token
	asked map[jsonrpc.ID]*call

	// unanswered are requests of calls that have ended here. The server may still run their
	// tools, so a message without a progress token may be about them.
	unanswered map[jsonrpc.ID]struct{}
	overflowed bool // there were more than maxUnanswered
}

// maxUnanswered bounds the unanswered requests that are remembered. It is far above the number
// that a correct server leaves unanswered.
const maxUnanswered = 1024

// call is a request under way.
type call struct {
	token  string
	job    tool.Job    // zero: a list
	queue  chan notice // of a job; closed by end
	lost   uint64      // log messages that found no room in queue; guarded by observer.mu
	id     jsonrpc.ID  // of the request that waits for its answer; not valid: none; guarded by observer.mu
	result arcp.Raw    // guarded by observer.mu
}

// notice is a notification about a call: progress, or a log message.
type notice struct {
	progress *arcp.JobProgressPayload
	level    string
	text     string
	attrs    arcp.Raw
}

func newObserver(stray func(level, logger string, data arcp.Raw)) *observer {
	return &observer{stray: stray, calls: make(map[string]*call), asked: make(map[jsonrpc.ID]*call), unanswered: make(map[jsonrpc.ID]struct{})}
}

// begin returns a new call. Requests whose context has it under ofCall belong to it.
func (t *observer) begin(job tool.Job) *call {
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

// end removes a call, and closes its queue. It returns the number of log messages that found no
// room in the queue.
func (t *observer) end(c *call) (lost uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.calls, c.token)
	delete(t.asked, c.id)
	if !c.job.IsZero() && c.id.IsValid() {
		t.addUnansweredLocked(c.id)
	}
	if c.queue != nil {
		close(c.queue)
	}
	return c.lost
}

func (t *observer) addUnansweredLocked(id jsonrpc.ID) {
	if len(t.unanswered) == maxUnanswered {
		t.overflowed = true
		return
	}
	t.unanswered[id] = struct{}{}
}

// take removes and returns the last result of a call; nil: there is none.
func (t *observer) take(c *call) arcp.Raw {
	t.mu.Lock()
	defer t.mu.Unlock()
	raw := c.result
	c.result = nil
	return raw
}

// busy reports whether a tool call is under way.
func (t *observer) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.calls {
		if !c.job.IsZero() {
			return true
		}
	}
	return false
}

// only returns the tool call under way if there is exactly one, unanswered requests of ended calls
// included; else nil.
func (t *observer) only() *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.onlyLocked()
}

func (t *observer) onlyLocked() (only *call) {
	if len(t.unanswered) > 0 || t.overflowed {
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

// meta is where a progress token travels.
type meta struct {
	Meta struct {
		ProgressToken arcp.Raw `json:"progressToken"`
	} `json:"_meta"`
}

func (m *meta) token() string { return text(m.Meta.ProgressToken) }

// text returns the string that raw encodes; empty if raw is no string.
func text(raw arcp.Raw) (s string) {
	if raw.Kind() != '"' || arcp.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// sent records to which call a request belongs: the call of its context.
func (t *observer) sent(ctx context.Context, msg jsonrpc.Message) {
	req, ok := msg.(*jsonrpc.Request)
	if !ok || !req.IsCall() {
		return
	}
	c, _ := ctx.Value(ofCall{}).(*call)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case c != nil && t.calls[c.token] == c:
		delete(t.asked, c.id)
		c.id = req.ID
		t.asked[c.id] = c
	case req.Method == "tools/call": // its call ended while it was being written
		t.addUnansweredLocked(req.ID)
	}
}

// received records a message about a call.
func (t *observer) received(msg jsonrpc.Message) {
	switch m := msg.(type) {
	case *jsonrpc.Response:
		t.answered(m.ID, arcp.Raw(m.Result))
	case *jsonrpc.Request:
		switch m.Method {
		case "notifications/progress":
			t.progress(arcp.Raw(m.Params))
		case "notifications/message":
			t.message(arcp.Raw(m.Params))
		}
	}
}

// answered records the end of a request; result is nil if it has failed.
func (t *observer) answered(id jsonrpc.ID, result arcp.Raw) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.unanswered, id)
	if c := t.asked[id]; c != nil {
		delete(t.asked, id)
		c.id, c.result = jsonrpc.ID{}, result
	}
}

func (t *observer) progress(params arcp.Raw) {
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

// message adds a log message to the queue of the call that it names or, if it names none, of the
// only call.
func (t *observer) message(params arcp.Raw) {
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

func (t *observer) log(token string, n notice) bool {
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

// enqueueLocked drops a notice that finds no room. Later progress replaces dropped progress;
// dropped log messages are counted.
func (t *observer) enqueueLocked(c *call, n notice) {
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

// levels maps the log levels of MCP, which are the levels of syslog.
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

// logText returns the text of a log message, or its data as JSON, for people.
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

// logAttributes returns data that is no text as it was received, with the logger.
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
