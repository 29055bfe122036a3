package strict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxFrame is the largest frame in bytes that every library reads.
const MaxFrame = 1_000_000

// Violation is a frame, or a part of one, that a library does not decode or act on as meant.
type Violation struct {
	Rule Rule
	Type string // message type
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Type, v.Rule, v.Text) }

// Rule names a rule of a Checker.
type Rule string

// The rules.
const (
	RuleSize       Rule = "size"       // the frame is larger than MaxFrame
	RuleJSON       Rule = "json"       // the frame is one JSON object on one line
	RuleEnvelope   Rule = "envelope"   // members of the envelope
	RuleType       Rule = "type"       // the type is known
	RulePayload    Rule = "payload"    // members of the payload
	RuleBody       Rule = "body"       // members of a body, and the kind
	RuleNull       Rule = "null"       // no null for an optional member
	RuleID         Rule = "id"         // form of identifiers
	RuleSession    Rule = "session"    // one session_id in all frames
	RuleHandshake  Rule = "handshake"  // first a welcome or an error, and one welcome
	RuleSeq        Rule = "seq"        // which frames are numbered, without gaps
	RuleAnswer     Rule = "answer"     // an answer has a request; accepts are in order
	RuleJob        Rule = "job"        // events belong to known jobs that have not ended
	RuleResult     Rule = "result"     // the member that the library reads, or result_id alone
	RuleRetryable  Rule = "retryable"  // retryable as the code demands
	RuleChunk      Rule = "chunk"      // chunks of a result are contiguous in one encoding
	RuleError      Rule = "error"      // a session.error destroys no other call or job
	RuleHeartbeat  Rule = "heartbeat"  // the interval comes with the feature
	RuleToolResult Rule = "toolresult" // exactly one of result and error
)

// Rules lists the rules.
var Rules = []Rule{
	RuleSize, RuleJSON, RuleEnvelope, RuleType, RulePayload, RuleBody, RuleNull, RuleID, RuleSession, RuleHandshake,
	RuleSeq, RuleAnswer, RuleJob, RuleResult, RuleRetryable, RuleChunk, RuleError, RuleHeartbeat, RuleToolResult,
}

// Checker judges the frames of one connection. Calls of its methods must not overlap.
type Checker struct {
	lib     *decoder
	found   []Violation
	current string // type of the frame that is being judged

	hello    string // id of the hello; empty: the client has sent none
	open     bool   // welcomed
	failed   bool   // the handshake has failed
	session  string
	resumed  bool
	lastSeq  uint64
	requests []sent          // without an answer, the oldest first
	ids      map[string]bool // of all frames of the client
	cancels  map[string]bool // jobs that the client has cancelled, also without a handle
	jobs     map[string]*job
	children map[string]*job // delegated jobs, of which the client has no handles
}

// sent is a request of the client.
type sent struct {
	kind  string // job.submit, session.list_jobs or job.subscribe
	id    string
	trace string
	job   string
}

// job is a job that the client has a handle of.
type job struct {
	submitted bool // on the connection
	ended     bool
	end       string   // id of the frame that ended the job
	submits   []string // accepted on the connection; each has an outcome
	chunks    uint64   // received chunks of the result
	encoding  string
	resultID  string
}

// New returns a checker for a connection of a library.
func New(lib Library) *Checker {
	return &Checker{
		lib:      decoders[lib],
		jobs:     make(map[string]*job),
		ids:      make(map[string]bool),
		cancels:  make(map[string]bool),
		children: make(map[string]*job),
	}
}

// envelope is a decoded frame.
type envelope map[string]any

func (e envelope) text(name string) string {
	s, _ := e[name].(string)
	return s
}

func (e envelope) payload() envelope {
	p, _ := e["payload"].(map[string]any)
	return p
}

func decode(frame []byte) (envelope, error) {
	dec := json.NewDecoder(bytes.NewReader(frame))
	dec.UseNumber()
	var e envelope
	err := dec.Decode(&e)
	if err == nil && dec.More() {
		err = fmt.Errorf("more than one value")
	}
	return e, err
}

// Sent records a frame of the client.
func (c *Checker) Sent(frame []byte) {
	e, err := decode(frame)
	if err != nil {
		return
	}
	p := e.payload()
	c.ids[e.text("id")] = true
	switch e.text("type") {
	case "session.hello", "session.resume":
		c.hello = e.text("id")
		resume, ok := p["resume"].(map[string]any)
		if !ok && (p["resume_token"] != nil) {
			resume, ok = p, true
		}
		if ok {
			c.resumed = true
			if n, ok := resume["last_event_seq"].(json.Number); ok {
				c.lastSeq = uintOf(n)
			}
		}
	case "job.submit", "session.list_jobs", "job.subscribe":
		c.requests = append(c.requests, sent{e.text("type"), e.text("id"), e.text("trace_id"), jobOf(e, p)})
	case "job.cancel":
		c.cancels[jobOf(e, p)] = true
	}
}

// jobOf returns the job of a request, which the envelope or the payload names.
func jobOf(e, p envelope) string {
	if id := e.text("job_id"); id != "" {
		return id
	}
	return p.text("job_id")
}

// Unanswered lists the types of the requests that the client still waits for.
func (c *Checker) Unanswered() (types []string) {
	for _, r := range c.requests {
		types = append(types, r.kind)
	}
	return types
}

// Abandon records that the runtime never answers a request. An error may then fail the request.
func (c *Checker) Abandon(id string) {
	c.requests = slices.DeleteFunc(c.requests, func(r sent) bool { return r.id == id })
}

// Received judges a frame of the runtime.
func (c *Checker) Received(frame []byte) []Violation {
	c.found, c.current = nil, "frame"
	if len(frame) > MaxFrame {
		c.add(RuleSize, "%d bytes", len(frame))
	}
	e, err := decode(frame)
	if err != nil || bytes.ContainsAny(frame, "\n\r") {
		c.add(RuleJSON, "%v", err)
		return c.found
	}
	c.current = e.text("type")
	if c.fields(RuleEnvelope, c.lib.envelope, e); len(c.found) > 0 {
		return c.found
	}
	if c.hidden(e) {
		return nil
	}
	if c.current == "subscribe.event" && c.lib.messages[c.current] != nil {
		return c.unwrap(e)
	}
	c.checkIDs(e)
	c.checkNulls(e)
	c.checkSession(e)
	c.checkSeq(e)
	if c.failed && c.lib.sessionError != ignored { // the library has given up
		c.checkHandshake(e)
		return c.found
	}
	fields, known := c.lib.messages[c.current]
	if !known {
		c.add(RuleType, "the library does not know the type")
		return c.found
	}
	p := e.payload()
	if c.fields(RulePayload, fields, p); len(c.found) > 0 {
		return c.found
	}
	c.checkRetryable(p)
	c.checkHandshake(e)
	if c.found == nil {
		c.act(e, p)
	}
	return c.found
}

// unwrap judges the event in a subscribe.event. The PHP library finds the subscriber by the job of the
// outer frame.
func (c *Checker) unwrap(e envelope) []Violation {
	p := e.payload()
	if c.fields(RulePayload, c.lib.messages[c.current], p); len(c.found) > 0 {
		return c.found
	}
	inner, err := json.Marshal(p["event"])
	event := envelope(p["event"].(map[string]any))
	switch {
	case err != nil:
		c.add(RuleJSON, "%v", err)
	case e.text("job_id") == "" || e.text("job_id") != event.text("job_id") || e.text("session_id") != event.text("session_id"):
		c.add(RuleEnvelope, "the event is of another job or session")
	case e["event_seq"] != event["event_seq"]:
		c.add(RuleSeq, "the event has the number %v, the frame %v", event["event_seq"], e["event_seq"])
	default:
		return c.Received(inner)
	}
	return c.found
}

func (c *Checker) add(r Rule, format string, args ...any) {
	c.found = append(c.found, Violation{r, c.current, fmt.Sprintf(format, args...)})
}

func (c *Checker) fields(r Rule, fields []field, object map[string]any) {
	for i := range fields {
		if text := fields[i].check(object); text != "" {
			c.add(r, "%s", text)
		}
	}
}

// hidden reports whether the library ignores the frame because it has no session_id.
func (c *Checker) hidden(e envelope) bool {
	if e.text("session_id") != "" || c.current == "session.error" && !c.lib.needsSession {
		return false
	}
	if c.current != "session.error" || !c.open {
		c.add(RuleSession, "session_id is missing")
		return false
	}
	return true
}

var ids = regexp.MustCompile(`^([a-z]+_)?[0-7][0-9A-HJKMNP-TV-Z]{25}$|^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func (c *Checker) checkIDs(e envelope) {
	if !c.lib.ids {
		return
	}
	for _, name := range []string{"id", "session_id", "job_id"} {
		if s := e.text(name); s != "" && !ids.MatchString(s) {
			c.add(RuleID, "%s %q", name, s)
		}
	}
}

func (c *Checker) checkNulls(e envelope) {
	if !c.lib.strictNull {
		return
	}
	if path := nulls(map[string]any(e), ""); path != "" {
		c.add(RuleNull, "%s is null", path)
	}
}

func (c *Checker) checkSession(e envelope) {
	id := e.text("session_id")
	if c.session == "" {
		c.session = id
	}
	if id != "" && id != c.session {
		c.add(RuleSession, "%s after %s", id, c.session)
	}
}

// checkSeq requires numbers without gaps, for every library. A gap is a lost event, also if the
// library does not notice it.
func (c *Checker) checkSeq(e envelope) {
	n, numbered := e["event_seq"].(json.Number)
	if !numbered {
		if c.current == "job.event" || c.current == "job.result" {
			c.add(RuleSeq, "event_seq is missing")
		}
		return
	}
	if !slices.Contains([]string{"job.event", "job.result", "job.error"}, c.current) {
		c.add(RuleSeq, "the type is never numbered")
		return
	}
	seq := uintOf(n)
	if seq != c.lastSeq+1 {
		c.add(RuleSeq, "%d after %d", seq, c.lastSeq)
	}
	c.lastSeq = seq
}

// uintOf returns an unsigned integer; 0 for any other number.
func uintOf(n json.Number) uint64 {
	u, err := strconv.ParseUint(n.String(), 10, 64)
	if err != nil {
		return 0
	}
	return u
}

func (c *Checker) checkRetryable(p envelope) {
	want, fixed := fixedRetryable[p.text("code")]
	if got, ok := p["retryable"].(bool); ok && fixed && got != want {
		c.add(RuleRetryable, "%s with retryable %v", p.text("code"), got)
	}
}

// checkHandshake requires that the first frame decides the handshake, and that there is one welcome.
func (c *Checker) checkHandshake(e envelope) {
	welcome := c.current == "session.welcome"
	switch {
	case c.open && welcome:
		c.add(RuleHandshake, "a second welcome")
	case c.open:
	case c.failed:
		if c.current != "job.error" {
			c.add(RuleHandshake, "a frame after the failure")
		}
	case !welcome && c.current != "session.error":
		c.add(RuleHandshake, "the first frame decides the handshake")
	case (c.lib.echoWelcome || c.current == "session.error" && c.lib.sessionErrors == byID) && c.hello != "" && e.text("id") != c.hello:
		c.add(RuleHandshake, "the id differs from the id of session.hello")
	}
}

// act applies a valid frame to the state of the library.
func (c *Checker) act(e, p envelope) {
	id := e.text("job_id")
	switch c.current {
	case "session.welcome":
		c.open = true
		c.checkHeartbeat(p)
	case "session.error":
		c.sessionError(e, p)
	case "session.jobs":
		c.answer(c.lib.replies, "session.list_jobs", e, p)
	case "job.subscribed":
		if id != p.text("job_id") {
			c.add(RuleJob, "the envelope and the payload name different jobs")
		}
		if c.answer(c.lib.replies, "job.subscribe", e, p) && (c.jobs[id] == nil || c.jobs[id].ended) { // a repeated subscription has a new handle
			c.jobs[id] = c.jobs[id].renewed()
		}
	case "job.accepted":
		if id != p.text("job_id") {
			c.add(RuleJob, "the envelope and the payload name different jobs")
		}
		if c.answer(c.lib.accepted, "job.submit", e, p) {
			if c.jobs[id] == nil || c.jobs[id].ended { // a retry has a new handle
				c.jobs[id] = c.jobs[id].renewed()
			}
			c.jobs[id].submitted = true
			c.jobs[id].submits = append(c.jobs[id].submits, p.text("request_id"))
		}
		if c.lib.correlatesEnd && e.text("correlation_id") != "" {
			c.add(RuleAnswer, "the library takes it for the end of the job")
		}
	case "job.cancelled":
		if c.jobs[id] == nil && !c.resumed && !c.cancels[id] {
			c.add(RuleJob, "the job %q is not known", id)
		}
	case "job.event":
		if j := c.live(id); j != nil {
			c.event(j, p)
		}
	case "job.result":
		if j := c.outcome(id, e); j != nil {
			c.result(j, p)
		}
	case "job.error":
		c.jobError(e, p)
	case "nack":
		if i := c.find(c.lib.nacks, "", e, p); i >= 0 {
			c.requests = slices.Delete(c.requests, i, i+1)
		} else if !c.ids[e.text("correlation_id")] {
			c.add(RuleAnswer, "there is no request")
		}
	}
}

func (c *Checker) checkHeartbeat(p envelope) {
	capabilities, _ := p["capabilities"].(map[string]any)
	features, _ := capabilities["features"].([]any)
	interval, has := p["heartbeat_interval_sec"].(json.Number)
	if has && interval == "0" || has != slices.Contains(features, any("heartbeat")) {
		c.add(RuleHeartbeat, "heartbeat_interval_sec %q, features %v", interval, features)
	}
}

// find returns the index of the request that a frame answers; kind is empty for any kind.
func (c *Checker) find(m match, kind string, e, p envelope) int {
	key := ""
	switch m {
	case byOrder, byTrace:
	case byRequestID:
		key = p.text("request_id")
	case byReplyTo:
		key = p.text("reply_to")
	case byID:
		key = e.text("id")
	case byCorrelation:
		key = e.text("correlation_id")
	case never:
		return -1
	}
	oldest := slices.IndexFunc(c.requests, func(r sent) bool { return kind == "" || r.kind == kind })
	exact := slices.IndexFunc(c.requests, func(r sent) bool {
		return (kind == "" || r.kind == kind) && (key != "" && r.id == key || m == byTrace && r.trace != "" && r.trace == e.text("trace_id"))
	})
	switch {
	case m == byOrder, m == byTrace && exact < 0:
		return oldest
	}
	return exact
}

// answer removes the request that a frame answers. It must be the request that the runtime
// names, which is payload.request_id.
func (c *Checker) answer(m match, kind string, e, p envelope) bool {
	i := c.find(m, kind, e, p)
	if i < 0 {
		c.add(RuleAnswer, "there is no request")
		return false
	}
	if meant := p.text("request_id"); meant != "" && meant != c.requests[i].id {
		c.add(RuleAnswer, "the library takes the answer to %s for one to %s", meant, c.requests[i].id)
		return false
	}
	c.requests = slices.Delete(c.requests, i, i+1)
	return true
}

// live returns a job that has not ended. A resumed connection repeats the events of a followed job for
// each subscription once, also of earlier connections.
func (c *Checker) live(id string) *job {
	j := c.jobs[id]
	if j == nil {
		j = c.children[id]
	}
	switch {
	case j == nil && c.resumed && id != "":
		j = new(job)
		c.jobs[id] = j
	case j == nil:
		c.add(RuleJob, "the job %q is not known", id)
		return nil
	case j.ended && c.resumed && !j.submitted:
		j = j.renewed()
		c.jobs[id] = j
	case j.ended:
		c.add(RuleJob, "the job %q has ended", id)
		return nil
	}
	return j
}

// renewed returns the handle of a job that is accepted or subscribed to again.
func (j *job) renewed() *job {
	if j == nil {
		return new(job)
	}
	return &job{submitted: j.submitted, end: j.end, submits: j.submits}
}

// outcome ends a job. If the library finds the outcome by its submit, each accepted submit has one.
// The library ignores it if the job has ended: this repetition returns nil.
func (c *Checker) outcome(id string, e envelope) *job {
	if j := c.jobs[id]; j != nil && j.ended && j.end == e.text("id") && (c.resumed || c.lib.correlatesEnd && len(j.submits) > 0) {
		c.endOfSubmit(j, e)
		return nil
	}
	j := c.live(id)
	if j != nil {
		j.ended, j.end = true, e.text("id")
		c.endOfSubmit(j, e)
	}
	return j
}

// endOfSubmit checks that an outcome answers a submit of the job, each submit once, if the library
// finds the outcome by its submit.
func (c *Checker) endOfSubmit(j *job, e envelope) {
	if !c.lib.correlatesEnd {
		return
	}
	i := slices.Index(j.submits, e.text("correlation_id"))
	switch {
	case len(j.submits) == 0 || i < 0 && c.resumed: // of another connection
	case i < 0:
		c.add(RuleAnswer, "the correlation_id is of no submit in %q", j.submits)
	default:
		j.submits = slices.Delete(slices.Clone(j.submits), i, i+1)
	}
}

func (c *Checker) sessionError(e, p envelope) {
	if !c.open {
		c.failed = true
		return
	}
	i := c.find(c.lib.sessionErrors, "", e, p)
	if i >= 0 {
		c.requests = slices.Delete(c.requests, i, i+1)
	}
	fatal := slices.Contains([]string{"UNAUTHENTICATED", "HEARTBEAT_LOST"}, p.text("code")) && i < 0
	if c.lib.sessionError != failsAll || fatal {
		return
	}
	if len(c.requests) > 0 || c.running() > 0 {
		c.add(RuleError, "%d other calls and %d jobs fail", len(c.requests), c.running())
	}
}

func (c *Checker) running() (n int) {
	for _, j := range c.jobs {
		if !j.ended {
			n++
		}
	}
	return n
}

// jobError ends a job, or answers a submit or a subscription.
func (c *Checker) jobError(e, p envelope) {
	id := e.text("job_id")
	if _, numbered := e["event_seq"]; numbered {
		c.outcome(id, e)
		return
	}
	if c.failed {
		return
	}
	if j := c.jobs[id]; j != nil { // of a submit that was accepted only to fail
		if j.ended {
			c.add(RuleJob, "the job %q has ended", id)
		}
		j.ended = true
		return
	}
	if c.lib.foreignErrors && id != "" {
		if i := slices.IndexFunc(c.requests, func(r sent) bool { return r.kind == "job.subscribe" && r.job == id }); i >= 0 {
			c.requests = slices.Delete(c.requests, i, i+1)
			return
		}
	}
	if i := c.find(c.lib.submitErrors, "job.submit", e, p); i >= 0 && !(c.lib.submitErrors == byTrace && id == "") {
		c.requests = slices.Delete(c.requests, i, i+1)
	}
}

func (c *Checker) event(j *job, p envelope) {
	kind := p.text("kind")
	fields, known := c.lib.bodies[kind]
	if !known && !strings.HasPrefix(kind, "x-vendor.") {
		c.add(RuleBody, "unknown kind %q", kind)
		return
	}
	body, _ := p["body"].(map[string]any)
	c.fields(RuleBody, fields, body)
	if len(c.found) > 0 {
		return
	}
	b := envelope(body)
	switch kind {
	case "delegate": // the events of the child come with its own id
		c.children[b.text("child_job_id")] = new(job)
	case "tool_result":
		if _, failed := b["error"]; failed == (b["result"] != nil) {
			c.add(RuleToolResult, "exactly one of result and error is required")
		}
	case "progress":
		c.progress(b)
	case "result_chunk":
		c.chunk(j, b)
	}
}

func (c *Checker) progress(b envelope) {
	current, _ := b["current"].(json.Number)
	total, ok := b["total"].(json.Number)
	x, _ := current.Float64()
	if y, _ := total.Float64(); ok && x > y {
		c.add(RuleBody, "current %s is above total %s", current, total)
	}
}

func (c *Checker) chunk(j *job, b envelope) {
	seq, _ := b["chunk_seq"].(json.Number)
	if c.resumed && j.chunks == 0 { // an earlier connection may have received the chunks before
		j.chunks, j.resultID, j.encoding = uintOf(seq), b.text("result_id"), b.text("encoding")
	}
	switch {
	case seq.String() != fmt.Sprint(j.chunks):
		c.add(RuleChunk, "chunk_seq %s after %d chunks", seq, j.chunks)
	case j.chunks > 0 && (j.resultID != b.text("result_id") || j.encoding != b.text("encoding")):
		c.add(RuleChunk, "result_id and encoding change")
	}
	j.chunks++
	j.resultID, j.encoding = b.text("result_id"), b.text("encoding")
}

func (c *Checker) result(j *job, p envelope) {
	read, other := "result", "output"
	if c.lib.resultInOutput {
		read, other = other, read
	}
	value, inline := p[read]
	copied, both := p[other]
	id := p.text("result_id")
	switch {
	case both && (!inline || fmt.Sprint(value) != fmt.Sprint(copied)):
		c.add(RuleResult, "result and output differ")
	case inline && id != "":
		c.add(RuleResult, "a value and result_id")
	case j.chunks > 0 && id != j.resultID:
		c.add(RuleResult, "result_id %q after chunks of %q", id, j.resultID)
	}
}
