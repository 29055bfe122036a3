package toolworker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
)

// A tool puts and opens artifacts in a worker as in the runtime, for the principal of its job.
func TestArtifactsOfTools(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcde\n"), 5<<20/16+3)[:5<<20+41] // several chunks
	type input struct {
		Artifact arcp.ArtifactID `json:"artifact"`
		Other    arcp.ArtifactID `json:"other"`
	}
	use := func(ctx context.Context, job tool.Job, in input) ([]string, error) {
		put, err := job.Artifacts().Put(ctx, tool.NewArtifact{MediaType: "text/plain", Content: bytes.NewReader(content)})
		if err != nil {
			return nil, err
		}
		seen := []string{fmt.Sprint(put.Size)}
		for _, id := range []arcp.ArtifactID{put.ArtifactID, in.Artifact} {
			object, r, err := job.Artifacts().Open(ctx, id)
			if err != nil {
				return nil, err
			}
			got, err := io.ReadAll(r)
			if err != nil {
				return nil, err
			}
			var end [2]byte
			if _, err := r.Seek(-2, io.SeekEnd); err != nil {
				return nil, err
			}
			if _, err := io.ReadFull(r, end[:]); err != nil || !bytes.HasSuffix(got, end[:]) {
				return nil, fmt.Errorf("the end is %q, %v", end, err)
			}
			seen = append(seen, fmt.Sprintf("%s %d %d %s", object.MediaType, object.Size, len(got), got[:4]))
		}
		_, _, err = job.Artifacts().Open(ctx, arcp.ArtifactID("art_"+strings.TrimPrefix(string(in.Other), "x")))
		seen = append(seen, codeOf(err))
		_, err = job.Artifacts().Put(ctx, tool.NewArtifact{MediaType: "no media type", Content: strings.NewReader("x")})
		return append(seen, codeOf(err)), nil
	}
	for _, inWorker := range []bool{false, true} {
		t.Run(fmt.Sprintf("worker %t", inWorker), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				defer f.close()
				defer f.offer(inWorker, nil, tool.MustNew(tool.Capability{Name: "t"}, use))()
				user := f.connect(client.Handlers{})
				defer user.Abort()
				var put []arcp.ArtifactObject
				for _, text := range []string{"named", "not named"} {
					o, err := user.Artifacts().Put(t.Context(), client.PutArtifactParams{MediaType: "text/csv", Content: strings.NewReader(text)})
					if err != nil {
						t.Fatal(err)
					}
					put = append(put, o)
				}
				// The arguments name the second artifact without its prefix: the job may not read it.
				job, err := user.Invoke(t.Context(), client.InvokeParams{Tool: "t", Arguments: input{put[0].ArtifactID,
					"x" + arcp.ArtifactID(strings.TrimPrefix(string(put[1].ArtifactID), "art_"))}})
				if err != nil {
					t.Fatal(err)
				}
				res, err := job.Wait(t.Context())
				want := `["5242921","text/plain 5242921 5242921 0123","text/csv 5 5 name","NOT_FOUND","INVALID_ARGUMENT"]`
				if err != nil || string(res.Value) != want {
					t.Fatalf("%s, %v, want %s", res.Value, err, want)
				}
				announced := 0
				for ev, err := range job.Events(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					if ev.Type != arcp.ArtifactRef {
						continue
					}
					announced++
					ref, err := arcp.DecodePayload[arcp.ArtifactRefPayload](&arcp.Envelope{Payload: ev.Payload})
					if err != nil {
						t.Fatal(err)
					}
					r, err := user.Artifacts().Get(t.Context(), ref.Artifact.ArtifactID)
					if err != nil {
						t.Fatal(err)
					}
					if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
						t.Errorf("the artifact of the job has %d bytes, %v", len(got), err)
					}
				}
				if announced != 1 {
					t.Errorf("%d artifacts are announced, want 1", announced)
				}
			})
		})
	}
}

// A large artifact whose content cannot be read, or whose put is cancelled, is not stored, and leaves the worker
// able to put others. The bounds of artifacts apply.
func TestLargeArtifactFails(t *testing.T) {
	broken := errors.New("the disk is gone")
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		defer f.offer(true, nil, tool.MustNew(tool.Capability{Name: "t"}, func(ctx context.Context, job tool.Job, _ struct{}) ([]string, error) {
			put := func(ctx context.Context, media string, content io.Reader) error {
				_, err := job.Artifacts().Put(ctx, tool.NewArtifact{MediaType: media, Content: content})
				return err
			}
			large := func(end error) io.Reader {
				return io.MultiReader(bytes.NewReader(make([]byte, 5<<20)), iotest.ErrReader(end))
			}
			cancelled, cancel := context.WithCancel(ctx)
			seen := []string{
				fmt.Sprint(errors.Is(put(ctx, "text/plain", large(broken)), broken)),
				codeOf(put(cancelled, "text/plain", io.MultiReader(large(io.EOF), iotest.ErrReader(stopping(cancel))))),
				codeOf(put(ctx, "no media type", large(io.EOF))),
			}
			return append(seen, codeOf(put(ctx, "text/plain", large(io.EOF)))), nil
		}))()
		user := f.connect(client.Handlers{})
		defer user.Abort()
		job, err := user.Invoke(t.Context(), client.InvokeParams{Tool: "t"})
		if err != nil {
			t.Fatal(err)
		}
		res, err := job.Wait(t.Context())
		if err != nil || string(res.Value) != `["true","CANCELLED","INVALID_ARGUMENT","no error"]` {
			t.Errorf("%s, %v", res.Value, err)
		}
	})
}

// An upload without a chunk for ten minutes ends.
func TestIdleUploadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		defer f.offer(true, nil, tool.MustNew(tool.Capability{Name: "t", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) ([]string, error) {
			var seen []string
			for _, idle := range []time.Duration{10*time.Minute - time.Second, 10*time.Minute + time.Second} {
				chunk := func() io.Reader { return bytes.NewReader(make([]byte, 5<<20)) }
				_, err := job.Artifacts().Put(ctx, tool.NewArtifact{MediaType: "text/plain",
					Content: io.MultiReader(chunk(), pause(idle), chunk(), pause(idle), chunk())})
				seen = append(seen, codeOf(err))
			}
			return seen, nil
		}))()
		user := f.connect(client.Handlers{})
		defer user.Abort()
		job, err := user.Invoke(t.Context(), client.InvokeParams{Tool: "t"})
		if err != nil {
			t.Fatal(err)
		}
		res, err := job.Wait(t.Context())
		if err != nil || string(res.Value) != `["no error","DEADLINE_EXCEEDED"]` {
			t.Errorf("%s, %v", res.Value, err)
		}
	})
}

// pause is a reader that ends after a time.
type pause time.Duration

func (p pause) Read([]byte) (int, error) {
	time.Sleep(time.Duration(p))
	return 0, io.EOF
}

// stopping calls cancel and returns an error.
func stopping(cancel context.CancelFunc) error {
	cancel()
	return context.Canceled
}

func codeOf(err error) string {
	if err == nil {
		return "no error"
	}
	e, _ := arcp.AsError(err)
	return string(e.Code)
}
