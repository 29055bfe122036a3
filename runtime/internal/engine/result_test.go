package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// writeResult writes a result of two chunks.
func writeResult(j tool.Job, o tool.ResultOptions, content string) error {
	r, err := j.Result(o)
	if err != nil {
		return err
	}
	if _, err := r.Write([]byte(content)); err != nil {
		return err
	}
	if err := r.Flush(); err != nil {
		return err
	}
	if _, err := r.Write([]byte("end")); err != nil {
		return err
	}
	return r.CloseWithSummary("a summary")
}

// A caller gets the text of a result in chunks, or its bytes as base64, wherever other events are
// between the chunks.
func TestCallOfToolWithResultInChunks(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("text", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			r, err := j.Result(tool.ResultOptions{ContentType: "text/csv"})
			if err != nil {
				return nil, err
			}
			for range 3 {
				_, writeErr := r.Write([]byte("a,\"é\"\n"))
				if err := errors.Join(writeErr, r.Flush(), j.Log(arcp.LevelInfo, "line", nil)); err != nil {
					return nil, err
				}
			}
			return nil, r.Close()
		})
		f.tool("bytes", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			return nil, writeResult(j, tool.ResultOptions{Binary: true}, "\x00\xff")
		})
		f.tool("parent", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			return j.Call(ctx, tool.Call{Tool: strings.Trim(string(args), `"`)})
		})
		for name, want := range map[string]string{"text": `"a,\"é\"\na,\"é\"\na,\"é\"\n"`, "bytes": `"AP9lbmQ="`} {
			q := f.request("sess_1", "parent", `"`+name+`"`)
			q.payload.LeaseRequest = arcp.Raw(`{"tool.call":["*"]}`)
			f.send(q)
			frames := f.frames("sess_1")
			p, err := arcp.DecodePayload[arcp.JobCompletedPayload](&frames[len(frames)-1].Envelope)
			if err != nil || string(p.Value) != want {
				t.Errorf("%s: %s, %v, want %s", name, p.Value, err, want)
			}
		}
	})
}

// A job whose tool does not end its result, or returns a value as well, fails. A later attempt has a
// result of its own.
func TestResultInChunksThatIsNotWhole(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("unfinished", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			r, err := j.Result(tool.ResultOptions{})
			if err != nil {
				return nil, err
			}
			_, err = r.Write([]byte("x"))
			return nil, err
		})
		f.tool("both", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			return arcp.Raw(`1`), writeResult(j, tool.ResultOptions{}, "x")
		})
		for _, name := range []string{"unfinished", "both"} {
			f.submit(name, `{}`)
			frames := f.frames("sess_1")
			last := frames[len(frames)-1]
			if e, err := arcp.DecodePayload[arcp.Error](&last.Envelope); err != nil || last.Type != arcp.JobFailed || e.Code != arcp.CodeFailedPrecondition {
				t.Errorf("%s: %s %s", name, last.Type, last.Payload)
			}
		}
	})
}

func TestResultInChunksOfSecondAttempt(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { c.Retry = tool.Retry{MaxAttempts: 2} }, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if err := writeResult(j, tool.ResultOptions{}, "x"); err != nil {
				return nil, err
			}
			if j.Attempt() == 1 {
				return nil, arcp.Errorf(arcp.CodeUnavailable, "once more")
			}
			return nil, nil
		})
		f.submit("t", `{}`)
		time.Sleep(time.Minute) // the delay of the second attempt
		var ids []string
		var end arcp.JobCompletedPayload
		for _, fr := range f.frames("sess_1") {
			switch fr.Type {
			case arcp.JobResultChunk:
				p, err := arcp.DecodePayload[arcp.JobResultChunkPayload](&fr.Envelope)
				if err != nil || p.ChunkSeq != uint64(len(ids)%2) {
					t.Errorf("chunk %s, %v", fr.Payload, err)
				}
				ids = append(ids, p.ResultID)
			case arcp.JobCompleted:
				end, _ = arcp.DecodePayload[arcp.JobCompletedPayload](&fr.Envelope)
			}
		}
		if len(ids) != 4 || ids[0] != ids[1] || ids[0] == ids[2] || end.ResultID != ids[2] {
			t.Errorf("the chunks have the ids %q, the end %+v", ids, end)
		}
	})
}
