package audit

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
)

// Records are written at any level, and have the session only if there is one.
func TestDecision(t *testing.T) {
	for _, want := range []struct {
		session arcp.SessionID
		refused *arcp.Error
		line    string
	}{
		{"sess_1", nil, `{"level":"info","logger":"audit","action":"evict","actor":"alice","session_id":"sess_1","target":"sess_2","decision":"allowed","message":"audit"}`},
		{"", arcp.Errorf(arcp.CodePermissionDenied, "no"),
			`{"level":"info","logger":"audit","action":"evict","actor":"alice","target":"sess_2","decision":"denied","reason":"no","message":"audit"}`},
	} {
		var out bytes.Buffer
		New(zerolog.New(&out).Level(zerolog.Disabled-1)).Decision("evict", "alice", want.session, "sess_2", want.refused)
		if got := out.String(); got != want.line+"\n" {
			t.Errorf("%s\nwant\n%s", got, want.line)
		}
	}
}
