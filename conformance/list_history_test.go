package conformance

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// pageCounter counts the pages of job lists that a connection reads.
type pageCounter struct {
	transport.Conn
	pages *atomic.Int32
}

func (p *pageCounter) Read() ([]byte, error) {
	frame, err := p.Conn.Read()
	if bytes.Contains(frame, []byte(`"type":"session.jobs"`)) {
		p.pages.Add(1)
	}
	return frame, err
}

// The checks of lists read about as many pages of a server with many jobs as of an empty one. Otherwise they exceed their
// timeout on a server that has run for a while.
func TestListChecksWithHistory(t *testing.T) {
	const jobs, maxPages = 1500, 100
	target := ownTarget(t)
	for range 3 {
		for _, res := range runChecks(t, target, testCheck("x.submits", func(t *checkRun) {
			c := t.Open()
			for range jobs / 3 {
				id := c.Send(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "demo.echo", Arguments: arcp.Raw(`{}`)})
				for !c.Answer("a job ends", id).Type.Terminal() {
				}
			}
		})) {
			if res.Status != Passed {
				t.Fatalf("submit jobs: %s", res.Reason)
			}
		}
	}
	for _, dialect := range []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft} {
		var pages atomic.Int32
		target.Dialect = dialect
		target.plant = func(conn transport.Conn) transport.Conn { return &pageCounter{conn, &pages} }
		report, err := Run(t.Context(), target, Options{Groups: []string{"list"}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range report.Results {
			if res.Status != Passed {
				t.Errorf("%s is %s: %s", res.ID, res.Status, res.Reason)
			}
		}
		if n := pages.Load(); n > maxPages {
			t.Errorf("the checks of the dialect %s read %d pages of jobs, want at most %d", dialect, n, maxPages)
		}
	}
}
