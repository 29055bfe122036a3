package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Mapping describes a server that is not arcpd: the names of its tools, and the checks that it is
// known to fail. A nil *Mapping changes nothing.
type Mapping struct {
	// Tools has the name on the server for a name in the checks, for example demo.echo. The name
	// replaces the other one in every frame that is sent, and back in every frame that is
	// received, in the members of toolMembers. A key with a version, demo.echo@1.0.0, has a
	// value with a version.
	Tools map[string]string

	// Known are the checks that the server is known to fail.
	Known []Deviation

	URL       string // URL of the server; empty: not in the file
	Principal string // principal of Token; empty: unknown

	Token         string // bearer tokens; empty: not in the file
	OtherToken    string
	ObserverToken string

	Start   []string // command that serves until it is ended; nil: the server runs already
	Restart []string // command that ends the server and starts it again; nil: not in the file
	Rerun   bool     // a restart kills the process of Start and runs Start again

	FrameLimit int64 // as Target.FrameLimit
	AckWindow  int   // as Target.AckWindow

	Dir string // directory of the file, in which the commands run
}

// Deviation is a check that a server is known to fail.
type Deviation struct {
	Check  string // ID of the check
	Reason string
}

// toolMembers are the members that have the name of a tool, or a list with names.
var toolMembers = []string{"tool", "tools", "agent", "agents", "name"}

// sent returns a frame of the client with the server's names of the tools.
func (m *Mapping) sent(frame []byte) []byte {
	if m == nil {
		return frame
	}
	return renameTools(frame, m.Tools)
}

// received returns a frame of the server with the names in the checks.
func (m *Mapping) received(frame []byte) []byte {
	if m == nil {
		return frame
	}
	names := make(map[string]string, len(m.Tools))
	for name, theirs := range m.Tools {
		names[theirs] = name
	}
	return renameTools(frame, names)
}

// tool returns the name of a tool on the server.
func (m *Mapping) tool(name string) string {
	if m == nil {
		return name
	}
	renamed, _ := renamedTool(name, m.Tools)
	return renamed
}

// renamedTool returns the new name of a tool. The name of a tool without an entry for its version
// keeps the version.
func renamedTool(name string, names map[string]string) (string, bool) {
	if renamed, ok := names[name]; ok {
		return renamed, true
	}
	base, version, versioned := strings.Cut(name, "@")
	renamed, ok := names[base]
	if !versioned || !ok {
		return name, false
	}
	return renamed + "@" + version, true
}

// renameTools replaces the names of tools in the text of a frame. All other bytes, and a frame that
// is not JSON from its first mistake on, remain as they are.
func renameTools(frame []byte, names map[string]string) []byte {
	if !mentions(frame, names) {
		return frame
	}
	var out []byte
	copied := 0
	walkStrings(frame, func(member, value string, start, end int) {
		if !slices.Contains(toolMembers, member) {
			return
		}
		if renamed, ok := renamedTool(value, names); ok {
			quoted, _ := json.Marshal(renamed) // a string always encodes
			out = append(append(out, frame[copied:start]...), quoted...)
			copied = end
		}
	})
	return append(out, frame[copied:]...)
}

// mentions reports whether a frame may have one of the names.
func mentions(frame []byte, names map[string]string) bool {
	if bytes.IndexByte(frame, '\\') >= 0 {
		return true // a name may have an escape sequence
	}
	for name := range names {
		if bytes.Contains(frame, []byte(name)) {
			return true
		}
	}
	return false
}

// walkStrings calls visit with each string in a JSON text that is a value: the member that has it
// or a list with it, and its first byte and the byte after it.
func walkStrings(text []byte, visit func(member, value string, start, end int)) {
	type container struct {
		object bool
		member string // that the next value belongs to
		value  bool   // in an object: a value comes next, not a name
	}
	var open []container
	top := func() *container { return &open[len(open)-1] }
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		start := dec.InputOffset()
		token, err := dec.Token()
		if err != nil {
			return // the end, or a mistake: the server judges it
		}
		member := ""
		if len(open) > 0 {
			member = top().member
		}
		s, isString := token.(string)
		switch delim, _ := token.(json.Delim); {
		case delim == '{' || delim == '[':
			open = append(open, container{object: delim == '{', member: member})
			continue
		case delim == '}' || delim == ']':
			open = open[:len(open)-1]
		case isString && len(open) > 0 && top().object && !top().value:
			top().member, top().value = s, true
			continue
		case isString:
			from := int(start) + bytes.IndexByte(text[start:], '"')
			visit(member, s, from, int(dec.InputOffset()))
		}
		if len(open) > 0 {
			top().value = false
		}
	}
}

// judge changes a failed check that is known to fail, and a passed one.
func (m *Mapping) judge(res *Result) {
	if m == nil {
		return
	}
	for _, d := range m.Known {
		switch {
		case d.Check != res.ID:
		case res.Status == Failed:
			res.Status = KnownDeviation
			res.Reason = "known: " + d.Reason + "\n" + res.Reason
		case res.Status == Passed:
			res.Status = Stale
			res.Reason = "the check passes: remove it from `known` in the mapping file"
		}
	}
}

// missingTool says which tool to name in the mapping file.
func (m *Mapping) missingTool(name string) string {
	if theirs := m.tool(name); theirs != name {
		return "the server has no tool " + theirs + ", which the mapping file names for " + name
	}
	var help []string
	if strings.HasPrefix(name, checkTools) {
		help = append(help, sourcesHint)
	}
	if does := toolUses[name]; does != "" {
		help = append(help, "name in `tools` of the mapping file one that "+does)
	}
	reason := "the server has no tool " + name
	if len(help) > 0 {
		reason += ": " + strings.Join(help, ", or ")
	}
	return reason
}

// toolUses says what the tools do that the checks call.
var toolUses = map[string]string{
	"demo.access":   "asks whether the lease of its job allows {namespace, target}, and returns {allowed}",
	"demo.artifact": "stores {bytes} bytes of {media_type} as an artifact, and returns the reference",
	"demo.ask":      "asks a person {prompt, response_schema, expires_in_ms}, and returns {value, responded_by}",
	"demo.choose":   "asks a person to choose from {options}, and returns {choice_id, responded_by}",
	"demo.collect":  "reads a stream, and returns {chunks, bytes, sha256}",
	"demo.count":    "counts to {to} with {interval_ms} between two steps and a checkpoint at each, and returns {count}",
	"demo.delegate": "calls the tool {tool} with {arguments} as a child, and returns its result",
	"demo.echo":     "returns its arguments",
	"demo.emit":     "emits {count} log events of {bytes} bytes, {interval_ms} apart, and returns {emitted}",
	"demo.fail":     "fails with {code, message, retryable, details}",
	"demo.model":    "asks whether the lease of its job allows {model}, and returns {allowed}",
	"demo.panic":    "crashes",
	"demo.permit":   "requests a permission, and waits for the answer",
	"demo.progress": "reports {steps} steps of progress, {interval_ms} apart",
	"demo.report":   "returns lines of {bytes} bytes in chunks of {chunk_bytes} with {encoding}",
	"demo.sleep":    "runs for {ms} milliseconds and stops when it is cancelled, and returns {slept_ms}",
	"demo.spend":    "asks whether the lease of its job allows one call, and reports a cost of {amount} in {currency}, {times} times",
	"demo.stream":   "writes a stream",
	"demo.stubborn": "runs for {ms} milliseconds and ignores a cancel",

	"check.credentials":       "gets credentials of its job, and runs until it is cancelled",
	"jobs.delete":             "deletes the job {job_id}, which has ended, and its events",
	"jobs.rotate_credentials": "replaces the credentials of the job {job_id}",
}

// deviations returns the number of known deviations and of stale ones, for the totals; "" if there
// are none.
func (r *Report) deviations() (text string) {
	if n := r.Count(KnownDeviation); n > 0 {
		text += fmt.Sprintf(", %d known to fail", n)
	}
	if n := r.Count(Stale); n > 0 {
		text += fmt.Sprintf(", %d pass that were known to fail", n)
	}
	return text
}

// Configure fills the empty members of a target from the mapping.
func (m *Mapping) Configure(tg *Target) {
	tg.Mapping = m
	tg.Principal = cmp.Or(tg.Principal, m.Principal)
	tg.Token = cmp.Or(tg.Token, m.Token)
	tg.OtherToken = cmp.Or(tg.OtherToken, m.OtherToken)
	tg.ObserverToken = cmp.Or(tg.ObserverToken, m.ObserverToken)
	tg.FrameLimit = cmp.Or(tg.FrameLimit, m.FrameLimit)
	tg.AckWindow = cmp.Or(tg.AckWindow, m.AckWindow)
}
