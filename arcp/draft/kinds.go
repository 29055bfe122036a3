package draft

import (
	"bytes"
	"math"
	"strconv"

	"github.com/arcpd/arcpd/arcp"
)

// Kind is the kind of a job.event (§8.2).
type Kind string

// The kinds.
const (
	KindLog         Kind = "log"
	KindThought     Kind = "thought"
	KindToolCall    Kind = "tool_call"
	KindToolResult  Kind = "tool_result"
	KindStatus      Kind = "status"
	KindMetric      Kind = "metric"
	KindArtifactRef Kind = "artifact_ref"
	KindDelegate    Kind = "delegate"
	KindProgress    Kind = "progress"
	KindResultChunk Kind = "result_chunk"
)

// kindRow says how an event becomes a job.event.
type kindRow struct {
	from  arcp.Type
	event string // name of an event.emit, or kind of the stream of a chunk; empty: any
	kind  Kind
	phase string // of a status; empty: the name of the event

	// needs are the texts that the payload, or the data of an event.emit, must have; else the
	// next row of the type applies.
	needs   []string
	message string // member that is the message of a status; empty: none
	write   func(o *object, e *encoder)

	varies varies // the body depends on the profile; nil: it does not
}

// kinds lists the rows of a type one after the other; the first that applies decides. The last
// row of a type applies to all events if the catalogue row of the type has Draft. The libraries
// read different members: a body has the members of all.
var kinds = []kindRow{
	{from: arcp.JobStarted, kind: KindStatus, phase: "running", message: "description", write: writeStatus},
	{from: arcp.JobProgress, kind: KindProgress, write: writeProgress, varies: byProgress},
	{from: arcp.JobCheckpoint, kind: KindStatus, phase: "checkpoint", message: "label", write: writeDetails},
	{from: arcp.JobResultChunk, kind: KindResultChunk, write: writeChunk},
	{from: arcp.Log, kind: KindLog, write: writeLog},
	{from: arcp.Metric, kind: KindMetric, write: writeMetric},
	{from: arcp.ArtifactRef, kind: KindArtifactRef, write: writeArtifact},
	{from: arcp.PermissionRequest, kind: KindStatus, phase: "waiting_for_permission", message: "reason", write: writeDetails},
	{from: arcp.HumanInputRequest, kind: KindStatus, phase: "waiting_for_input", message: "prompt", write: writeDetails},
	{from: arcp.HumanChoiceRequest, kind: KindStatus, phase: "waiting_for_input", message: "prompt", write: writeDetails},
	{from: arcp.HumanInputCancelled, kind: KindStatus, phase: "input_closed", message: "reason", write: writeDetails},
	{from: arcp.LeaseGranted, kind: KindStatus, phase: "lease_granted", write: writeDetails},
	{from: arcp.LeaseExtended, kind: KindStatus, phase: "lease_extended", write: writeDetails},
	{from: arcp.LeaseRevoked, kind: KindStatus, phase: "lease_revoked", message: "reason", write: writeDetails},

	{from: arcp.EventEmit, event: "tool_call", kind: KindToolCall, needs: []string{"tool", "call_id"}, write: writeToolCall},
	{from: arcp.EventEmit, event: "tool_result", kind: KindToolResult, needs: []string{"call_id"}, write: writeToolResult},
	{from: arcp.EventEmit, event: "delegate", kind: KindDelegate, needs: []string{"child_job_id", "agent"}, write: writeDelegate},
	{from: arcp.EventEmit, event: "thought", kind: KindThought, needs: []string{"text"}, write: writeThought},
	{from: arcp.EventEmit, event: "credential_rotated", kind: KindStatus, needs: []string{"id"}, write: writeRotated},
	{from: arcp.EventEmit, kind: KindStatus, write: writeDetails},

	{from: arcp.StreamChunk, event: arcp.StreamThought, kind: KindThought, write: writeThoughtChunk},
	{from: arcp.StreamChunk, event: arcp.StreamLog, kind: KindLog, write: writeLog},
	{from: arcp.StreamChunk, event: arcp.StreamMetric, kind: KindMetric, write: writeMetric},
}

var kindIndex = func() map[arcp.Type][]*kindRow {
	m := make(map[arcp.Type][]*kindRow)
	for i := range kinds {
		m[kinds[i].from] = append(m[kinds[i].from], &kinds[i])
	}
	return m
}()

// varies reports whether the libraries of a profile read the second form of a body, not the first.
type varies func(q *quirks) bool

func byProgress(q *quirks) bool { return q.integerProgress }

func byFailure(q *quirks) bool { return q.finalStatusError }

// variesOf has the types whose bodies have two forms.
var variesOf = func() map[arcp.Type]varies {
	m := make(map[arcp.Type]varies)
	for i := range kinds {
		if v := kinds[i].varies; v != nil {
			m[kinds[i].from] = v
		}
	}
	for t, row := range terminals {
		if row.varies != nil {
			m[t] = row.varies
		}
	}
	return m
}()

// Shared reports whether the body of an event of the type is the same for all profiles.
// Progress differs for Go and Universal, the failures of jobs for Python.
func Shared(t arcp.Type) bool { return variesOf[t] == nil }

// Forms is the number of forms that the body of an event may have.
const Forms = 2

// Form returns which form of the body of an event of the type the client reads, below Forms.
// Sessions with the same form can share a Body.
func (s *ServerCodec) Form(t arcp.Type) int {
	if v := variesOf[t]; v != nil && v(s.quirks) {
		return 1
	}
	return 0
}

// find returns the row that applies to the event in e.
func (e *encoder) find() *kindRow {
	for _, row := range kindIndex[e.event.Type] {
		if (row.event == "" || row.event == e.name) && e.hasAll(row.needs) {
			return row
		}
	}
	return nil
}

func (e *encoder) hasAll(needs []string) bool {
	for _, n := range needs {
		if v := e.get(n); !isText(v) || len(v) == len(`""`) {
			return false
		}
	}
	return true
}

// copy appends members of the payload as they are.
func (e *encoder) copy(o *object, names ...string) {
	for _, name := range names {
		o.raw(name, e.get(name))
	}
}

// object appends a member that must be an object.
func (e *encoder) object(o *object, to string, value arcp.Raw) {
	if value.Kind() != '{' {
		value = arcp.Raw("{}")
	}
	o.raw(to, value)
}

// string appends a member that must be a text.
func (e *encoder) string(o *object, to string, value arcp.Raw) {
	if !isText(value) {
		value = arcp.Raw(`""`)
	}
	o.raw(to, value)
}

// status appends the phase and the message of a status.
func (e *encoder) status(o *object) {
	phase := e.row.phase
	if phase == "" {
		phase = e.name
	}
	o.text("phase", phase)
	if e.row.message != "" {
		if m := e.get(e.row.message); isText(m) && len(m) > len(`""`) && len(m) <= maxCopied {
			o.raw("message", m)
		}
	}
}

func writeStatus(o *object, e *encoder) { e.status(o) }

func writeDetails(o *object, e *encoder) {
	e.status(o)
	switch kind := e.data.Kind(); {
	case len(e.data) == 0 || kind == 'n':
	case kind == '{':
		o.raw("details", e.data)
	default:
		o.name("details")
		inner := begin(o.dst)
		inner.raw("value", e.data)
		o.dst = inner.end()
	}
}

// isUint reports whether raw is an integer that every library decodes.
func isUint(raw arcp.Raw) bool {
	n, err := strconv.ParseUint(string(raw), 10, 64)
	return err == nil && n <= maxSafe
}

// isText reports whether raw is a JSON string.
func isText(raw arcp.Raw) bool { return raw.Kind() == '"' }

// maxSafe is the largest integer that every JSON library keeps exactly.
const maxSafe = 1<<53 - 1

// writeProgress keeps current between 0 and total. In whole numbers current is rounded down and
// total up, so that an unfinished job never shows as finished. A percentage alone is progress
// out of 100.
func writeProgress(o *object, e *encoder) {
	current, total := number(e.get("current")), number(e.get("total"))
	units := e.get("units")
	hasTotal := len(e.get("total")) > 0
	if percent := e.get("percent"); !hasTotal && current == 0 && len(percent) > 0 {
		current, total, hasTotal, units = number(percent), 100, true, arcp.Raw(`"percent"`)
	}
	done := hasTotal && current >= total
	if e.quirks.integerProgress {
		current, total = math.Floor(current), math.Ceil(total)
	}
	if done {
		current = total
	}
	o.name("current")
	o.dst = appendNumber(o.dst, current)
	if hasTotal {
		o.name("total")
		o.dst = appendNumber(o.dst, total)
	}
	if isText(units) {
		o.raw("units", units)
	}
	if m := e.get("message"); isText(m) {
		o.raw("message", m)
	}
}

// number returns a number between 0 and maxSafe.
func number(raw arcp.Raw) float64 {
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(f > 0) {
		return 0
	}
	return min(f, maxSafe)
}

func appendNumber(dst []byte, f float64) []byte {
	if f == math.Trunc(f) {
		return strconv.AppendUint(dst, uint64(f), 10)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}

// writeChunk names a result that has no identifier after its job.
func writeChunk(o *object, e *encoder) {
	if e.hasAll([]string{"result_id"}) {
		e.copy(o, "result_id")
	} else {
		o.raw("result_id", e.event.JobID)
	}
	seq := e.get("chunk_seq")
	if !isUint(seq) {
		seq = arcp.Raw("0")
	}
	o.raw("chunk_seq", seq)
	e.string(o, "data", e.get("data"))
	encoding := "utf8"
	if string(e.get("encoding")) == `"base64"` {
		encoding = "base64"
	}
	o.text("encoding", encoding)
	o.name("more")
	o.dst = strconv.AppendBool(o.dst, string(e.get("more")) == "true")
}

// maxCopied bounds values that are written twice, in bytes.
const maxCopied = 256 << 10

// writeLog writes one of four levels, which is all that F# knows.
func writeLog(o *object, e *encoder) {
	o.text("level", logLevel(e.get("level")))
	e.string(o, "message", e.get("message"))
	attributes := e.get("attributes")
	switch {
	case attributes.Kind() != '{':
	case len(attributes) > maxCopied:
		o.raw("attributes", attributes)
	default:
		o.raw("fields", attributes)
		o.raw("attributes", attributes)
	}
}

func logLevel(level arcp.Raw) string {
	switch string(level) {
	case `"trace"`, `"debug"`:
		return arcp.LevelDebug
	case `"warn"`:
		return arcp.LevelWarn
	case `"error"`, `"critical"`:
		return arcp.LevelError
	}
	return arcp.LevelInfo
}

// writeMetric writes dims for TypeScript and dimensions, whose values are texts, for Java.
func writeMetric(o *object, e *encoder) {
	e.string(o, "name", e.get("name"))
	value := e.get("value")
	if value.Kind() != '0' {
		value = arcp.Raw("0")
	}
	o.raw("value", value)
	if unit := e.get("unit"); isText(unit) && len(unit) > len(`""`) {
		o.raw("unit", unit)
	}
	dims := e.get("dims")
	if len(dims) == 0 {
		dims = e.get("dimensions")
	}
	if dims.Kind() != '{' {
		return
	}
	o.raw("dims", dims)
	if len(dims) > maxCopied {
		return
	}
	o.name("dimensions")
	texts := begin(o.dst)
	arcp.EachMember(dims, func(name []byte, value arcp.Raw) bool {
		if value.Kind() == 'n' {
			return true
		}
		texts.comma()
		texts.dst = append(appendText(texts.dst, name), ':')
		if isText(value) {
			texts.dst = append(texts.dst, value...)
		} else {
			texts.dst = appendText(texts.dst, value)
		}
		return true
	})
	o.dst = texts.end()
}

// appendText appends bytes as a JSON string.
func appendText(dst, text []byte) []byte { return arcp.AppendString(dst, string(text)) }

func writeArtifact(o *object, e *encoder) {
	e.string(o, "uri", e.get("uri"))
	mediaType := e.get("media_type")
	if !isText(mediaType) {
		mediaType = arcp.Raw(`"application/octet-stream"`)
	}
	o.raw("content_type", mediaType)
	if size := e.get("size"); isUint(size) {
		o.raw("byte_size", size)
	}
	if digest := e.get("sha256"); isText(digest) {
		o.raw("sha256", digest)
	}
}

func writeToolCall(o *object, e *encoder) {
	e.copy(o, "tool")
	e.object(o, "args", e.get("args"))
	e.copy(o, "call_id")
}

// writeToolResult writes exactly one of error and result.
func writeToolResult(o *object, e *encoder) {
	e.copy(o, "call_id")
	if reported := e.get("error"); len(reported) > 0 {
		o.name("error")
		f := failureOf(reportedError(reported), aboutAny)
		o.dst = appendFailure(o.dst, &f)
		return
	}
	result := e.get("result")
	if len(result) == 0 {
		result = arcp.Raw("{}")
	}
	o.raw("result", result)
}

// reportedError reads an error of any shape that a tool has emitted.
func reportedError(raw arcp.Raw) *arcp.Error {
	err := &arcp.Error{Code: arcp.CodeUnknown, Message: textOf(raw)}
	if raw.Kind() != '{' {
		return err
	}
	arcp.EachMember(raw, func(name []byte, value arcp.Raw) bool {
		switch string(name) {
		case "code":
			if code := textOf(value); code != "" {
				err.Code = arcp.Code(code)
				if known, ok := arcp.ParseCode(code); ok {
					err.Code = known
				}
			}
		case "message":
			err.Message = textOf(value)
		case "retryable":
			err.Retryable = string(value) == "true"
		case "details":
			err.Details = value
		}
		return true
	})
	return err
}

func appendFailure(dst []byte, f *Failure) []byte {
	o := begin(dst)
	o.failure(f)
	return o.end()
}

func (o *object) failure(f *Failure) {
	o.text("code", string(f.Code))
	o.text("message", f.Message)
	o.name("retryable")
	o.dst = strconv.AppendBool(o.dst, f.Retryable)
	o.raw("details", f.Details)
}

func writeDelegate(o *object, e *encoder) {
	id := e.get("delegate_id")
	if !isText(id) {
		id = e.get("child_job_id")
	}
	o.raw("delegate_id", id)
	e.copy(o, "child_job_id", "agent", "input")
	if request := e.get("lease_request"); request.Kind() == '{' {
		o.raw("lease_request", dotted(request))
	}
	o.raw("lease", dotted(e.get("lease")))
	if constraints := e.get("lease_constraints"); constraints.Kind() == '{' {
		o.raw("lease_constraints", constraints)
	}
}

func writeThought(o *object, e *encoder) { e.copy(o, "text") }

// writeThoughtChunk writes the text of a chunk, which a redacted thought may lack.
func writeThoughtChunk(o *object, e *encoder) { e.string(o, "text", e.get("content")) }

// writeRotated writes the identifier and, for the submitter, the value of a credential under the
// names of all libraries (§9.8.2).
func writeRotated(o *object, e *encoder) {
	id, value := e.get("id"), e.get("value")
	text := value
	if !isText(value) { // the libraries read a text
		text = nil
	}
	e.status(o)
	o.raw("message", id)
	for _, m := range [...]struct {
		name  string
		value arcp.Raw
	}{{"id", id}, {"value", text}, {"credential_id", id}, {"credential_value", text}} {
		o.raw(m.name, m.value)
	}
	o.name("details")
	details := begin(o.dst)
	details.raw("id", id)
	details.raw("value", value)
	o.dst = details.end()
}

// isName reports whether raw is the JSON string of a name without escapes.
func isName(raw arcp.Raw) bool { return isText(raw) && bytes.IndexByte(raw, '\\') < 0 }
