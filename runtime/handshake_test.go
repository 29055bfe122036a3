package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime"
)

// Every handshake is counted and logged in one line, whichever side ended it.
func TestEveryHandshakeIsLogged(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(c *runtime.Config) { c.Log = zerolog.New(zerolog.SyncWriter(&log)) }, func(b *fixture) {
		told := func(why, result, text string) {
			t.Helper()
			synctest.Wait()
			lines := 0
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, `"message":"handshake"`) {
					lines++
					if !strings.Contains(line, `"result":"`+result+`"`) || !strings.Contains(line, text) {
						t.Errorf("%s: %s", why, line)
					}
				}
			}
			if n := b.sum("arcp_handshakes_total", `"`+result+`"`); n != 1 || lines != 1 {
				t.Errorf("%s: %v handshakes counted and %d told as %s, want 1", why, n, lines, result)
			}
			log.Reset()
		}
		open := func(more string) {
			b.connect(nil).send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"}%s}`, token, more))
		}
		open("")
		told("a good one", "accepted", `"principal":"alice"`)
		b.connect(nil).open("nobody")
		told("a wrong token", "refused", "unknown bearer token")
		open(`,"capabilities":{"required":["teleport"]}`)
		told("a capability that is not there", "rejected", "teleport")
		b.st.set(func() { b.st.fail = errors.New("the disk is full") })
		open("")
		told("a store that cannot be written", "failed", "the disk is full")
	})
}
