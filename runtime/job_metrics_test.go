package runtime_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime"
)

// Every job that has ended is counted and leaves one line, whether it ran, was one
// of the runtime's own tools, or was ended by a restart; so does its error, once.
func TestEveryFinishedJobIsLogged(t *testing.T) {
	var log bytes.Buffer
	logged := func(c *runtime.Config) { c.Log = zerolog.New(zerolog.SyncWriter(&log)) }
	inBubble(t, logged, func(b *fixture) {
		told := func(why, tool, outcome, code string) {
			t.Helper()
			synctest.Wait()
			lines := 0
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, `"message":"job finished"`) {
					lines++
					if !strings.Contains(line, `"tool":"`+tool+`@1.0.0","outcome":"`+outcome+`","code":"`+code+`"`) {
						t.Errorf("%s: %s", why, line)
					}
				}
			}
			if n := b.sum("arcp_jobs_finished_total", `"`+tool+`"`); n != 1 || lines != 1 {
				t.Errorf("%s: %v jobs counted and %d told, want 1", why, n, lines)
			}
			if n := b.sum("arcp_errors_total", ""); code != "" && (n != 1 || b.sum("arcp_errors_total", `"`+code+`"`) != 1) {
				t.Errorf("%s: %v errors counted, want one, %s", why, n, code)
			}
			log.Reset()
		}
		alice, other := b.dial("alice"), b.dial("alice")
		alice.must("tools.describe", `{"name":"demo.echo"}`)
		told("a tool of the runtime", "tools.describe", "completed", "")
		other.subscribe(`{}`)
		alice.submit("demo.fail", `{"code":"OUT_OF_RANGE","message":"no"}`)
		alice.until("job.failed")
		other.until("subscribe.event")
		told("a tool that fails", "demo.fail", "failed", "OUT_OF_RANGE")
		alice.submit("demo.stall", `{"ms":3600000}`)
		alice.until("job.started")
		b.shutdown(0)
		b.serve.Wait()
		log.Reset()
		b.boot(logged)
		told("one that a restart has ended", "demo.stall", "failed", "ABORTED")
		again := b.dial("alice")
		again.send("cancel", `{"target":"job","target_id":"job_nowhere"}`)
		again.expect("cancel.refused")
		synctest.Wait()
		if n := b.sum("arcp_errors_total", `"JOB_NOT_FOUND"`); n != 1 {
			t.Errorf("a refused cancel is counted %v times, want once", n)
		}
	})
}
