package runtime_test

import (
	"errors"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
)

// doubtfulStore commits the write of an artifact and reports a failure, like a disk that fails after a sync.
type doubtfulStore struct{ *recordingStore }

func (s doubtfulStore) Commit(writes []*store.Write, results []store.Result) error {
	err := s.recordingStore.Commit(writes, results)
	for _, w := range writes {
		if log := store.Find[*store.AppendEvents](w); log != nil {
			for _, e := range log.Events {
				if e.Type == arcp.ArtifactRef {
					return errors.New("the sync has failed")
				}
			}
		}
	}
	return err
}

// The row of an artifact may be durable although its commit has failed. Its content then stays for the
// next process, also for an artifact that a tool has put.
func TestContentOfADoubtfulArtifactStays(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(c *runtime.Config) {
		c.Store, c.Artifacts.Dir = doubtfulStore{c.Store.(*recordingStore)}, dir
	}, func(f *fixture) {
		p := f.dial("alice")
		p.send("tool.invoke", `{"tool":"demo.artifact","arguments":{"bytes":5,"media_type":"text/plain"}}`)
		p.expect("job.accepted")
		time.Sleep(10 * time.Minute) // housekeeping removes garbage
		f.shutdown(0)
		f.serve.Wait()
		f.boot(func(c *runtime.Config) { c.Artifacts.Dir = dir })
		q := f.dial("alice")
		list := q.must("artifact.list", `{}`)
		items, _ := list["items"].([]any)
		if len(items) != 1 {
			t.Fatalf("artifact.list = %v, want the artifact of the durable row", list)
		}
	})
}
