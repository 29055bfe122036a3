package client_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp/client"
)

// A result in parts is joined, whatever comes in between, and each violation is an error.
func TestReadResult(t *testing.T) {
	chunk := func(id string, seq int, data, encoding string, more bool) string {
		return fmt.Sprintf(`S: job.result_chunk job=job_1 {"result_id":%q,"chunk_seq":%d,"data":%q,"encoding":%q,"more":%t}`, id, seq, data, encoding, more)
	}
	text := chunk("res_1", 0, "hel", "utf8", true)
	const progress = `S: job.progress job=job_1 {"current":1}`
	for name, c := range map[string]struct {
		events []string
		end    string // payload of job.completed; empty: res_1 of 5 bytes
		limit  int
		want   string
		err    string
	}{
		"text":         {events: []string{text, progress, chunk("res_1", 1, "lo", "utf8", false)}, want: "hello"},
		"bytes":        {events: []string{chunk("res_1", 0, "aGVs", "base64", true), chunk("res_1", 1, "bG8=", "base64", false)}, want: "hello"},
		"value":        {end: `{"value":"hello"}`, want: `"hello"`},
		"second begin": {events: []string{chunk("res_0", 0, "bad", "utf8", true), text, chunk("res_1", 1, "lo", "utf8", false)}, want: "hello"},
		"limit":        {events: []string{text, chunk("res_1", 1, "lo", "utf8", false)}, limit: 4, err: "the result is too large: more than 4 bytes"},
		"gap":          {events: []string{text, chunk("res_1", 2, "lo", "utf8", false)}, err: "job.result_chunk: result res_1: part 2 comes instead of part 1"},
		"encoding":     {events: []string{text, chunk("res_1", 1, "bG8=", "base64", false)}, err: `job.result_chunk: result res_1: part 1 has the encoding "base64", and the first one "utf8"`},
		"not base64":   {events: []string{chunk("res_1", 0, "?", "base64", false)}, err: "job.result_chunk: result res_1: part 0: illegal base64 data at input byte 0"},
		"no last part": {events: []string{chunk("res_1", 0, "hello", "utf8", true)}, err: "job.completed: parts of the result res_1 are missing"},
		"after the last": {events: []string{chunk("res_1", 0, "hello", "utf8", false), chunk("res_1", 1, "", "utf8", false)},
			err: "job.result_chunk: result res_1: a part follows the last one"},
		"wrong size": {events: []string{chunk("res_1", 0, "hell", "utf8", false)}, err: "job.completed: parts of the result res_1 are missing"},
		"another id": {events: []string{chunk("res_2", 0, "hello", "utf8", false)}, err: "job.completed: parts of the result res_1 are missing"},
	} {
		t.Run(name, func(t *testing.T) {
			end := c.end
			if end == "" {
				end = `{"result_id":"res_1","result_size":5}`
			}
			for i, ev := range c.events {
				c.events[i] = strings.Replace(ev, "job=job_1", fmt.Sprintf("job=job_1 seq=%d", i+2), 1)
			}
			script := jobWith(strings.Join(c.events, "\n") + fmt.Sprintf("\nS: job.completed corr=invoke job=job_1 seq=%d %s\n", len(c.events)+2, end))
			scripted(t, bearer, script, func(t *testing.T, cl *client.Client, _ *fake) {
				j, err := cl.Invoke(t.Context(), echo)
				if err != nil {
					t.Fatal(err)
				}
				_, content, err := j.ReadResult(t.Context(), c.limit)
				want(t, "content", string(content), c.want)
				if err == nil {
					want(t, "error", "", c.err)
				} else {
					want(t, "error", err.Error(), c.err)
				}
			})
		})
	}
}
