package main

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestSessionsAreListed(t *testing.T) {
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		switch string(env.Payload) {
		case `{"tool":"sessions.list","arguments":{"limit":1}}`, `{"tool":"sessions.list","arguments":{"limit":100}}`,
			`{"tool":"sessions.list","arguments":{"limit":1000}}`:
			c.complete(env, `{"items":[{"session_id":"sess_A","principal":"alice","state":"connected","created_at":"2026-05-09T13:00:00Z",
				"last_event_seq":12,"acked_seq":10,"client_kind":"arcp-cli","transport":"websocket","remote":"192.0.2.1"}],"next_cursor":"c1"}`)
		case `{"tool":"sessions.list","arguments":{"cursor":"c1","limit":99}}`, `{"tool":"sessions.list","arguments":{"cursor":"c1","limit":100}}`,
			`{"tool":"sessions.list","arguments":{"cursor":"c1","limit":1000}}`:
			c.complete(env, `{"items":[{"session_id":"sess_B","principal":"alice","state":"detached","created_at":"2026-05-09T13:00:00Z",
				"detached_at":"2026-05-09T14:00:00Z","last_event_seq":0}]}`)
		default:
			t.Errorf("unexpected %s %s", env.Type, env.Payload)
		}
	})
	o := r.cli("sessions", "ls", "--limit", "1")
	wantOutcome(t, "one row", o, exitOK, "sess_A", "--cursor c1 continues")
	golden(t, "sessions-ls.txt", scrub(r.cli("sessions", "ls", "--all").stdout))
	if got := r.cli("sessions", "ls", "-o", "name"); got.stdout != "sess_A\nsess_B\n" || got.stderr != "" {
		t.Errorf("the rows of two pages are %v", got)
	}
	wantOutcome(t, "JSON", r.cli("sessions", "ls", "-o", "json"), exitOK, `{"items":[{"session_id":"sess_A","principal":"alice"`, "")
	wantOutcome(t, "the next page as JSON", r.cli("sessions", "ls", "--cursor", "c1", "-o", "json"), exitOK, `"last_event_seq":0}]}`+"\n", "")
	o = r.cli("sessions", "ls", "--all", "--cursor", "c1")
	wantOutcome(t, "all that follow", o, exitOK, "sess_B", "")
	if strings.Contains(o.stdout, "sess_A") {
		t.Errorf("what comes before the cursor is listed, too:\n%s", o.stdout)
	}
	wantRefusal(t, r.cli("sessions", "ls", "--limit", "-1"), exitUsage, `--limit: "-1" is not a whole number of 0 or more`)
}

// The shapes equal those of a real runtime.
func TestSessionsOfAServer(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	o := p.cli("sessions", "ls", "-o", "json")
	wantOutcome(t, "its own session", o, exitOK, `"state":"connected"`, "")
	wantOutcome(t, "no such session", p.cli("sessions", "evict", "sess_nope"), exitFailed, "", "NOT_FOUND")
}

func TestSessionsAreEvicted(t *testing.T) {
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		switch string(env.Payload) {
		case `{"tool":"sessions.evict","arguments":{"session_id":"sess_A"}}`,
			`{"tool":"sessions.evict","arguments":{"session_id":"sess_A","forget":true}}`:
			c.complete(env, `{"evicted":true}`)
		default:
			c.event(env.ID, arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: "job_1"})
			c.event(env.ID, arcp.JobFailed, arcp.Errorf(arcp.CodePermissionDenied, "only an admin may"))
		}
	})
	wantOutcome(t, "evict", r.cli("sessions", "evict", "sess_A"), exitOK, "sess_A is evicted\n", "")
	wantOutcome(t, "forget", r.cli("sessions", "evict", "sess_A", "--forget", "-o", "json"), exitOK,
		`{"session_id":"sess_A","evicted":true}`, "")
	wantRefusal(t, r.cli("sessions", "evict", "sess_B"), exitDenied, "only an admin may")
}

var tailArgs = []string{"tail", "--job", "job_1", "--job", "job_2", "--type", "log", "--min-priority", "high", "--since", "msg_0"}

// The wire has two words for a lost connection: the help of each list has the word of the other.
func TestWordsForALostConnection(t *testing.T) {
	wantOutcome(t, "sessions", cli(t, "sessions", "ls", "--help"), exitOK, "disconnected in `arcp agents ls`", "")
	wantOutcome(t, "agents", cli(t, "agents", "ls", "--help"), exitOK, "detached in `arcp sessions ls`", "")
}
