package bench

import (
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
)

// The dialects of the protocol.
const (
	RFC   = "rfc"
	Draft = "draft"
)

// dialect has the facts of a dialect that the rows need: types of messages, and payloads with verbs of fmt.
type dialect struct {
	name     string
	stamped  bool              // frames of the client have a timestamp
	absent   map[string]string // rows that the dialect cannot express, with the reason
	refusals map[string]bool   // types of a refusal or a failure

	open, opened        string // session
	openPayload         string // of the token as JSON
	submit, accepted    string // job
	submitPayload       string // of the name of a tool and its arguments
	event, kind         string // log event: its type, and its payload's member kind; empty: no such member
	completed           string // end of a successful job
	ack                 string // acknowledgement
	subscribe, followed string // request to follow a job, and its answer
	list, listed        string // request for a page of jobs, and the page
	close, closed       string // end of the connection
}

var dialects = []dialect{
	{
		name: RFC, stamped: true,
		refusals: typeSet(arcp.Nack, arcp.SessionRejected, arcp.SessionUnauthenticated, arcp.SessionEvicted, arcp.JobFailed, arcp.JobCancelled),
		open:     string(arcp.SessionOpen), opened: string(arcp.SessionAccepted),
		openPayload: `{"auth":{"scheme":"bearer","token":%s},"client":{"kind":"arcp-bench","version":"1"},"capabilities":{"ack":true,"streaming":true,"artifacts":true,"binary_encoding":["base64","sidecar"]}}`,
		submit:      string(arcp.ToolInvoke), accepted: string(arcp.JobAccepted),
		submitPayload: `{"tool":%q,"arguments":%s}`,
		event:         string(arcp.Log), completed: string(arcp.JobCompleted),
		ack:       string(arcp.SessionAck),
		subscribe: string(arcp.JobSubscribe), followed: string(arcp.JobSubscribed),
		list: string(arcp.SessionListJobs), listed: string(arcp.SessionJobs),
		close: string(arcp.SessionClose), closed: string(arcp.SessionClosed),
	},
	{
		name: Draft,
		absent: map[string]string{
			"filtered":      "the draft dialect has no subscribe with a filter",
			"streams":       "the draft dialect has no streams of texts",
			"stalled":       "the draft dialect has no streams of texts",
			"artifacts-in":  "the draft dialect has no artifact.put",
			"artifacts-out": "the draft dialect has no artifact.fetch",
		},
		refusals: typeSet(draft.SessionError, draft.JobError, draft.Nack),
		open:     string(draft.SessionHello), opened: string(draft.SessionWelcome),
		openPayload: `{"client":{"name":"arcp-bench","version":"1"},"auth":{"scheme":"bearer","token":%s},` +
			`"capabilities":{"encodings":["json"],"features":["ack","subscribe","list_jobs"]}}`,
		submit: string(draft.JobSubmit), accepted: string(draft.JobAccepted),
		submitPayload: `{"agent":%q,"input":%s}`,
		event:         string(draft.JobEvent), kind: string(draft.KindLog), completed: string(draft.JobResult),
		ack:       string(draft.SessionAck),
		subscribe: string(draft.JobSubscribe), followed: string(draft.JobSubscribed),
		list: string(draft.SessionListJobs), listed: string(draft.SessionJobs),
		close: string(draft.SessionClose), closed: string(draft.SessionClosed),
	},
}

// Dialects lists the names of the dialects.
func Dialects() []string {
	names := make([]string, len(dialects))
	for i := range dialects {
		names[i] = dialects[i].name
	}
	return names
}

func typeSet[T ~string](types ...T) map[string]bool {
	set := make(map[string]bool)
	for _, t := range types {
		set[string(t)] = true
	}
	return set
}

// lookupDialect returns the dialect with a name; empty: RFC.
func lookupDialect(name string) (*dialect, error) {
	if name == "" {
		name = RFC
	}
	for i := range dialects {
		if dialects[i].name == name {
			return &dialects[i], nil
		}
	}
	return nil, fmt.Errorf("unknown dialect %q", name)
}

// isRefusal reports whether a frame of type t is a refusal or a failure.
func (d *dialect) isRefusal(t []byte) bool { return d.refusals[string(t)] }

// isEvent reports whether a frame of type t is a log event.
func (d *dialect) isEvent(t, frame []byte) bool {
	return string(t) == d.event && (d.kind == "" || string(member(frame, kindKey)) == d.kind)
}

// prepare returns a frame of a type.
func (d *dialect) prepare(typ, payload string) *prepared {
	head := `{"arcp":"` + arcp.Version + `","id":"msg_`
	frame := append([]byte(head), "0000000000000000"...)
	frame = append(append(append(frame, `","type":"`...), typ...), '"')
	if d.stamped {
		frame = arcp.AppendTime(append(frame, `,"timestamp":`...), time.Now())
	}
	frame = append(append(append(frame, `,"payload":`...), payload...), '}')
	return &prepared{frame, frame[len(head) : len(head)+idDigits]}
}

func (d *dialect) openFrame(s *Server) []byte {
	token := arcp.AppendString(nil, s.Token.Reveal())
	return d.prepare(d.open, fmt.Sprintf(d.openPayload, token)).next()
}

func (d *dialect) closeFrame() []byte { return d.prepare(d.close, `{"reason":"done"}`).next() }

func (d *dialect) invoke(tool, args string) *prepared {
	return d.prepare(d.submit, fmt.Sprintf(d.submitPayload, tool, args))
}

// emit returns a submit of demo.emit with messages of a size.
func (d *dialect) emit(count, size, intervalMS, delayMS int) *prepared {
	return d.invoke("demo.emit", fmt.Sprintf(`{"count":%d,"bytes":%d,"interval_ms":%d,"delay_ms":%d}`, count, size, intervalMS, delayMS))
}

// page returns a request for the page of jobs at a cursor; empty: the first page.
func (d *dialect) page(limit int, cursor string) *prepared {
	return d.prepare(d.list, fmt.Sprintf(`{"limit":%d,"cursor":%q}`, limit, cursor))
}
