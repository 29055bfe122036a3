package e2e

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

var (
	storedBy = flag.String("stored.by", "", "an arcp command of another version: have it write the archive -stored.to")
	storedTo = flag.String("stored.to", "", "the archive to write, in internal/e2e/testdata")
)

// storedView is the events that clients had received from a server with a data directory. It
// is stored beside the data in the archive.
type storedView struct {
	Session arcp.SessionID                           `json:"session"`
	Events  []seenEvent                              `json:"events"`  // of the session, in order
	Jobs    map[arcp.JobID]map[arcp.MessageID]string `json:"jobs"`    // event id → type and payload
	Ended   map[arcp.JobID]int                       `json:"ended"`   // terminal events
	Pending string                                   `json:"pending"` // an approval
	Denied  string                                   `json:"denied"`  // another one
}

type seenEvent struct {
	Seq uint64         `json:"seq"`
	ID  arcp.MessageID `json:"id"`
}

// forLong are the options of a server that forgets nothing before its time, so that a data
// directory can be opened years later.
var forLong = []string{"--retention", "0", "--resume-window", "876000h"}

// TestStoredData opens data directories written by earlier versions. Events that their clients
// had seen are there, and jobs that were running end once.
//
// To add the data of a version, build its command and run
//
//	go test -run TestStoredData ./internal/e2e -args -stored.by /path/to/arcp -stored.to version.tar.gz
func TestStoredData(t *testing.T) {
	bin := binary(t)
	dir := filepath.Join("internal", "e2e", "testdata")
	if *storedBy != "" {
		writeStored(t, *storedBy, filepath.Join(dir, *storedTo))
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("archives %v, %v", archives, err)
	}
	for _, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			data := t.TempDir()
			unpack(t, archive, data)
			raw, err := os.ReadFile(filepath.Join(data, "seen.json"))
			var was storedView
			if err == nil {
				err = arcp.Unmarshal(raw, &was)
			}
			if err != nil {
				t.Fatal(err)
			}
			p := startServer(t, bin, filepath.Join(data, "data"), forLong...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			verify(ctx, t, p.url, &eventRecorder{jobs: was.Jobs, ends: was.Ended})
			c := resumed(ctx, t, p.url, &was)
			for id, want := range map[string][]string{was.Pending: {"pending", "expired"}, was.Denied: {"resolved"}} {
				if got := invoked(ctx, t, c, "approval.get", args{"approval_id": id})["status"]; got != want[0] && got != want[len(want)-1] {
					t.Errorf("approval %s is %v, want one of %v", id, got, want)
				}
			}
			if got := invoked(ctx, t, c, "registry.get", args{"resource_id": "vm"})["display_name"]; got != "a machine" {
				t.Errorf("the resource is called %v", got)
			}
			if agents, _ := invoked(ctx, t, c, "host.agents", args{})["items"].([]any); len(agents) != 1 {
				t.Errorf("agents %v", agents)
			}
			p.kill(t)
		})
	}
}

// resumed opens the session of stored data again, from its beginning, and compares its events.
func resumed(ctx context.Context, t *testing.T, url string, was *storedView) *client.Client {
	t.Helper()
	var mu sync.Mutex
	ids, more := make(map[uint64]arcp.MessageID), make(chan struct{}, 1)
	c, err := client.Dial(ctx, url, client.Options{Auth: client.Auth{Scheme: "bearer", Token: crashToken},
		Resume: &client.Resume{SessionID: was.Session, LastEventSeq: new(uint64)},
		OnEnvelope: func(env *arcp.Envelope) bool {
			mu.Lock()
			defer mu.Unlock()
			ids[env.EventSeq] = env.ID
			select {
			case more <- struct{}{}:
			default:
			}
			return false
		}})
	if err != nil {
		t.Fatalf("open the session again: %v", err)
	}
	t.Cleanup(c.Abort)
	last := was.Events[len(was.Events)-1]
	for got := arcp.MessageID(""); got == ""; {
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("event %d does not come", last.Seq)
		}
		mu.Lock()
		got = ids[last.Seq]
		mu.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	for _, ev := range was.Events {
		if ids[ev.Seq] != ev.ID {
			t.Errorf("event %d is %s, was %s", ev.Seq, ids[ev.Seq], ev.ID)
		}
	}
	return c
}

// invoked runs a tool to its result.
func invoked(ctx context.Context, t *testing.T, c *client.Client, tool string, a any) (out map[string]any) {
	t.Helper()
	job, err := c.Invoke(ctx, client.InvokeParams{Tool: tool, Arguments: a, DiscardEvents: true})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	res, err := job.Wait(ctx)
	if err == nil {
		err = arcp.Unmarshal(res.Value, &out)
	}
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return out
}

// writeStored lets a command write a data directory, kills it, and archives the directory with
// the events seen.
func writeStored(t *testing.T, bin, archive string) {
	t.Helper()
	dir := t.TempDir()
	p := startServer(t, bin, filepath.Join(dir, "data"), forLong...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rec := &eventRecorder{jobs: make(map[arcp.JobID]map[arcp.MessageID]string), ends: make(map[arcp.JobID]int)}
	var was storedView
	var mu sync.Mutex
	var last uint64
	checkpoints := newCompletions() // of demo.count
	c, err := client.Dial(ctx, p.url, client.Options{Auth: client.Auth{Scheme: "bearer", Token: crashToken}, OnEnvelope: func(env *arcp.Envelope) bool {
		rec.record(env, &last)
		if env.Type == arcp.JobCheckpoint {
			checkpoints.add()
		}
		if env.EventSeq > 0 {
			mu.Lock()
			defer mu.Unlock()
			was.Events = append(was.Events, seenEvent{env.EventSeq, env.ID})
		}
		return false
	}})
	if err != nil {
		t.Fatal(err)
	}
	was.Session = c.Session().ID
	invoked(ctx, t, c, "registry.register", args{"resource_id": "vm", "kind": "vm", "display_name": "a machine"})
	invoked(ctx, t, c, "host.register_agent", args{"id": "coder", "name": "coder", "kind": "coder"})
	was.Pending, _ = invoked(ctx, t, c, "approval.request", args{"action": "deploy"})["approval_id"].(string)
	was.Denied, _ = invoked(ctx, t, c, "approval.request", args{"action": "wipe"})["approval_id"].(string)
	invoked(ctx, t, c, "approval.resolve", args{"approval_id": was.Denied, "approved": false})
	was.Jobs, was.Ended = make(map[arcp.JobID]map[arcp.MessageID]string), rec.ends
	for tool, a := range map[string]args{"demo.echo": {"x": []any{1, "ü"}}, "demo.emit": {"count": 40, "bytes": 64}, "demo.fail": {"code": "ABORTED", "message": "as asked"}} {
		job, err := c.Invoke(ctx, client.InvokeParams{Tool: tool, Arguments: a, DiscardEvents: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Wait(ctx); err != nil && tool != "demo.fail" {
			t.Fatal(err)
		}
		was.Jobs[job.ID()] = nil
	}
	for tool, a := range map[string]args{"demo.sleep": {"ms": 3000}, "demo.count": {"to": 100, "interval_ms": 10}} { // the kill cuts them off
		job, err := c.Invoke(ctx, client.InvokeParams{Tool: tool, Arguments: a, DiscardEvents: true})
		if err != nil {
			t.Fatal(err)
		}
		was.Jobs[job.ID()] = nil
	}
	checkpoints.await(ctx, 1)
	p.kill(t)
	<-c.Done()
	for id := range was.Jobs {
		was.Jobs[id] = rec.jobs[id]
	}
	raw, err := arcp.Marshal(was)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "seen.json"), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	pack(t, dir, archive)
}

func pack(t *testing.T, dir, archive string) {
	t.Helper()
	out, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	zip := gzip.NewWriter(out)
	files := tar.NewWriter(zip)
	err = files.AddFS(os.DirFS(dir))
	if err := errors.Join(err, files.Close(), zip.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
}

func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	in, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	zip, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for files := tar.NewReader(zip); ; {
		h, err := files.Next()
		if err == io.EOF {
			return
		}
		if err == nil {
			err = unpackFile(root, h, files)
		}
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
	}
}

func unpackFile(root *os.Root, h *tar.Header, in io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if h.FileInfo().IsDir() {
		return root.MkdirAll(name, 0o700)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
