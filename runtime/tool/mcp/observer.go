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

// observer receives every message of a session. The SDK decodes results, which loses the precision of
// numbers and the order of members, and delivers results before earlier notifications. The
// observer holds the result of a call in the bytes of the server, and queues the notifications of
// the call in their order.
//
// Many goroutines may call the methods, which never block.
type observer struct {
	onStray func(level, logger string, data arcp.Raw) // receives log messages that cannot be assigned to a call

	mu       sync.Mutex
	next     uint64
	calls    map[string]*call     // by progress token
	requests map[jsonrpc.ID]*call // requests without an answer

	// unanswered has the requests of ended calls without an answer. The server may still run
	// their tools, so a message without a progress token may belong to such a call.
	unanswered map[jsonrpc.ID]struct{}
	overflowed bool // unanswered was full

	// principal owns every job of the tool calls so far, unless shared. A server may send messages
	// without a progress token at any time after its answer, so a message for a job of one principal may
	// belong to an earlier call of another.
	principal string // "": no tool call yet
	shared    bool   // the tool calls were of several principals, or of an unknown one
}

// maxUnanswered bounds observer.unanswered. Correct servers stay far below it.
const maxUnanswered = 1024

// call is a tool call or a list under way.
type call struct {
	token  string
	job    tool.Job    // zero: a list
	queue  chan notice // of a job; closed by end
	lost   uint64      // log messages that found the queue full; guarded by observer.mu
	id     jsonrpc.ID  // of the request without an answer; not valid: no such request; guarded by observer.mu
	result arcp.Raw    // guarded by observer.mu
}

// notice is a notification of a call: progress or a log message.
type notice struct {
	progress *arcp.JobProgressPayload // nil: a log message
	level    string
	text     string
	attrs    arcp.Raw
}

func newObserver(onStray func(level, logger string, data arcp.Raw)) *observer {
	return &observer{
		onStray:    onStray,
		calls:      make(map[string]*call),
		requests:   make(map[jsonrpc.ID]*call),
		unanswered: make(map[jsonrpc.ID]struct{}),
	}
}

// begin returns a new call. Requests belong to the call if their context has it under callKey.
func (ob *observer) begin(job tool.Job) *call {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	ob.next++
	c := &call{token: "arcp-" + strconv.FormatUint(ob.next, 10), job: job}
	if !job.IsZero() {
		c.queue = make(chan notice, maxQueued)
		ob.addPrincipalLocked(principalOf(job))
	}
	ob.calls[c.token] = c
	return c
}

// addPrincipalLocked records the principal of a tool call; "" is an unknown one.
func (ob *observer) addPrincipalLocked(principal string) {
	if ob.principal == "" {
		ob.principal = principal
	}
	ob.shared = ob.shared || principal == "" || principal != ob.principal
}

// principalOf returns the owner of a job, or "" if its host does not report the owner.
func principalOf(job tool.Job) string {
	a, ok := job.Host().(tool.Attempt)
	if !ok {
		return ""
	}
	return a.Info().Principal
}

// end removes a call and closes its queue. It returns the number of log messages that found the
// queue full.
func (ob *observer) end(c *call) (lost uint64) {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	delete(ob.calls, c.token)
	delete(ob.requests, c.id)
	if !c.job.IsZero() && c.id.IsValid() {
		ob.addUnansweredLocked(c.id)
	}
	if c.queue != nil {
		close(c.queue)
	}
	return c.lost
}

func (ob *observer) addUnansweredLocked(id jsonrpc.ID) {
	if len(ob.unanswered) == maxUnanswered {
		ob.overflowed = true
		return
	}
	ob.unanswered[id] = struct{}{}
}

// takeResult removes and returns the last result of a call, or nil.
func (ob *observer) takeResult(c *call) arcp.Raw {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	raw := c.result
	c.result = nil
	return raw
}

// busy reports whether a tool call is under way.
func (ob *observer) busy() bool {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	for _, c := range ob.calls {
		if !c.job.IsZero() {
			return true
		}
	}
	return false
}

// soleCall returns the only tool call under way. It returns nil for no call, for several calls,
// while a request of an ended call has no answer, and once the calls were of several principals.
func (ob *observer) soleCall() *call {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	return ob.soleCallLocked()
}

func (ob *observer) soleCallLocked() (sole *call) {
	if len(ob.unanswered) > 0 || ob.overflowed || ob.shared {
		return nil
	}
	for _, c := range ob.calls {
		if c.job.IsZero() {
			continue
		}
		if sole != nil {
			return nil
		}
		sole = c
	}
	return sole
}

// meta is the member _meta with a progress token.
type meta struct {
	Meta struct {
		ProgressToken arcp.Raw `json:"progressToken"`
	} `json:"_meta"`
}

func (m *meta) token() string { return text(m.Meta.ProgressToken) }

// text returns the string that raw encodes, or "" if raw is no string.
func text(raw arcp.Raw) (s string) {
	if raw.Kind() != '"' || arcp.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// sent assigns a request to the call of its context.
func (ob *observer) sent(ctx context.Context, msg jsonrpc.Message) {
	req, ok := msg.(*jsonrpc.Request)
	if !ok || !req.IsCall() {
		return
	}
	c, _ := ctx.Value(callKey{}).(*call)
	ob.mu.Lock()
	defer ob.mu.Unlock()
	switch {
	case c != nil && ob.calls[c.token] == c:
		delete(ob.requests, c.id)
		c.id = req.ID
		ob.requests[c.id] = c
	case req.Method == "tools/call": // the call ended during the write
		ob.addUnansweredLocked(req.ID)
	}
}

// received records an answer, and queues progress and log messages for their calls.
func (ob *observer) received(msg jsonrpc.Message) {
	switch m := msg.(type) {
	case *jsonrpc.Response:
		ob.answered(m.ID, arcp.Raw(m.Result))
	case *jsonrpc.Request:
		switch m.Method {
		case "notifications/progress":
			ob.progress(arcp.Raw(m.Params))
		case "notifications/message":
			ob.message(arcp.Raw(m.Params))
		}
	}
}

// answered records the answer to a request; result is nil for an error.
func (ob *observer) answered(id jsonrpc.ID, result arcp.Raw) {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	delete(ob.unanswered, id)
	if c := ob.requests[id]; c != nil {
		delete(ob.requests, id)
		c.id, c.result = jsonrpc.ID{}, result
	}
}

func (ob *observer) progress(params arcp.Raw) {
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
	ob.mu.Lock()
	defer ob.mu.Unlock()
	if c := ob.calls[text(p.Token)]; c != nil {
		ob.enqueueLocked(c, notice{progress: n})
	}
}

// message queues a log message for the call of its progress token or, without a token, for the call
// of soleCall.
func (ob *observer) message(params arcp.Raw) {
	var p struct {
		meta
		Level  string   `json:"level"`
		Logger string   `json:"logger"`
		Data   arcp.Raw `json:"data"`
	}
	if arcp.Unmarshal(params, &p) != nil {
		return
	}
	if !ob.log(p.token(), notice{level: level(p.Level), text: logText(p.Logger, p.Data), attrs: logAttributes(p.Logger, p.Data)}) {
		ob.onStray(level(p.Level), p.Logger, p.Data)
	}
}

func (ob *observer) log(token string, n notice) bool {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	c := ob.calls[token]
	if token == "" {
		c = ob.soleCallLocked()
	}
	if c == nil || c.job.IsZero() {
		return false
	}
	ob.enqueueLocked(c, n)
	return true
}

// enqueueLocked drops a notice if the queue is full. It counts dropped log messages, but not dropped
// progress, which later progress replaces.
func (ob *observer) enqueueLocked(c *call, n notice) {
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

// logText returns the text of a log message, or its data as JSON.
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

// logAttributes returns the logger of a log message, and its data in the bytes of the server unless it is
// a string.
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
