package conn

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/pool"
)

// blockedContent is storage whose requests end with an error when the channel is closed.
type blockedContent struct {
	artifact.Memory
	ended chan struct{}
}

func (b *blockedContent) Create(string, arcp.ArtifactID) (artifact.Writer, error) {
	<-b.ended
	return nil, errors.New("no answer")
}

// A session waits a bounded time for the artifact of a result. Close waits for the request.
func TestStorageThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := &blockedContent{ended: make(chan struct{})}
		p := pool.New()
		defer p.Close()
		artifacts := artifact.NewStore(artifact.Options{Content: content, Full: func() bool { return false }}, artifact.Limits{})
		s := NewServer(Options{Pool: p, Artifacts: Artifacts{Store: artifacts}})
		began := time.Now()
		stored := s.storeResult(t.Context(), artifact.Spec{Principal: "alice", MediaType: "text/plain", Result: "job_1"}, &resultReader{})
		if e, _ := arcp.AsError(stored.err); e == nil || e.Code != arcp.CodeUnavailable || time.Since(began) != artifactTimeout {
			t.Errorf("after %v: %v, want UNAVAILABLE after %v", time.Since(began), stored.err, artifactTimeout)
		}
		closed := make(chan struct{})
		go func() { defer close(closed); s.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("the server is closed while a request uses the store")
		default:
		}
		close(content.ended)
		<-closed
	})
}
