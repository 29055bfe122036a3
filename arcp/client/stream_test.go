package client_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// jobWith is the script of a job with events that are numbered from 2.
func jobWith(events string) string {
	return `
		C invoke: tool.invoke
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1","agent":"t@1.0.0"}
	` + events
}

// A reader has the content of its stream only, whatever comes in between.
func TestReadStream(t *testing.T) {
	scripted(t, bearer, jobWith(`
		S: stream.open job=job_1 stream=str_b seq=2 {"kind":"binary","name":"b"}
		S: stream.open job=job_1 stream=str_a seq=3 {"kind":"text","name":"a"}
		S: stream.chunk job=job_1 stream=str_a seq=4 {"sequence":0,"data":"hel"}
		S: stream.chunk job=job_1 stream=str_b seq=5 {"sequence":0,"data":"AAEC"}
		S: log job=job_1 seq=6 {"level":"info","message":"m"}
		S: stream.chunk job=job_1 stream=str_a seq=7 {"sequence":1,"data":"lo"}
		S: stream.close job=job_1 stream=str_a seq=8 {"final_sequence":1}
		S: job.completed corr=invoke job=job_1 seq=9 {"value":1}
	`), func(t *testing.T, c *client.Client, _ *fake) {
		j, err := c.Invoke(t.Context(), echo)
		if err != nil {
			t.Fatal(err)
		}
		r := j.ReadStream(t.Context(), "a")
		got, err := io.ReadAll(r)
		want(t, "error", err, nil)
		want(t, "content", string(got), "hello")
		want(t, "name", r.Stream().Name, "a")
		_, err = io.ReadAll(j.ReadStream(t.Context(), "b"))
		want(t, "the events were read", err, client.ErrNoStream)
	})
}

// Every end but stream.close is an error, and so is a missing chunk.
func TestReadStreamErrors(t *testing.T) {
	for name, c := range map[string]struct {
		events, content, text string
		err                   error
	}{
		"gap":         {events: `S: stream.chunk job=job_1 stream=str_a seq=4 {"sequence":2,"data":"x"}`, content: "a", text: "stream.chunk: stream str_a: chunk 2 comes instead of chunk 1"},
		"repetition":  {events: `S: stream.chunk job=job_1 stream=str_a seq=4 {"sequence":0,"data":"a"}`, content: "a", text: "stream.chunk: stream str_a: chunk 0 comes instead of chunk 1"},
		"wrong end":   {events: `S: stream.close job=job_1 stream=str_a seq=4 {"final_sequence":4}`, content: "a", text: "stream.close: stream str_a: it ends after 5 chunks, and 1 have come"},
		"no end":      {content: "a", err: io.ErrUnexpectedEOF},
		"error":       {events: `S: stream.error job=job_1 stream=str_a seq=4 {"code":"CANCELLED","message":"enough"}`, content: "a", text: "stream.error: CANCELLED: enough"},
		"not base64":  {events: `S: stream.chunk job=job_1 stream=str_a seq=4 {"sequence":1,"data":"?","encoding":"base64"}`, content: "a", text: "stream.chunk: stream str_a: illegal base64 data at input byte 0"},
		"opens again": {events: "S: stream.open job=job_1 stream=str_a seq=4 {\"kind\":\"text\"}\nS: stream.close job=job_1 stream=str_a seq=5 {\"final_sequence\":0}", content: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, bearer, jobWith(`
				S: stream.open job=job_1 stream=str_a seq=2 {"kind":"text"}
				S: stream.chunk job=job_1 stream=str_a seq=3 {"sequence":0,"data":"a"}
				`+c.events+fmt.Sprintf("\nS: job.completed corr=invoke job=job_1 seq=%d {\"value\":1}\n", 4+strings.Count(c.events, "S: "))), func(t *testing.T, cl *client.Client, _ *fake) {
				j, err := cl.Invoke(t.Context(), echo)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(j.ReadStream(t.Context(), ""))
				want(t, "content", string(got), c.content)
				switch {
				case c.text != "":
					want(t, "error", err.Error(), c.text)
				default:
					want(t, "error", err, c.err)
				}
				_, err = j.Wait(t.Context()) // the script goes on to the end of the job
				want(t, "error of the job", err, nil)
			})
		})
	}
}

// A stream whose beginning was missed is tracked from its first chunk.
func TestPartialStream(t *testing.T) {
	var streams client.Streams
	chunk := func(n string) *client.Event {
		return &client.Event{Type: arcp.StreamChunk, StreamID: "str_1", Payload: arcp.Raw(`{"sequence":` + n + `,"data":{"n":` + n + `}}`)}
	}
	st, content, err := streams.Receive(chunk("7"))
	want(t, "error", err, nil)
	want(t, "content", string(content), `{"n":7}`)
	want(t, "partial", st.Partial, true)
	_, _, err = streams.Receive(chunk("9"))
	if _, ok := errors.AsType[*client.ProtocolError](err); !ok {
		t.Errorf("a gap in a partial stream: %v", err)
	}
}
