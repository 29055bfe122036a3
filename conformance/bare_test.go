package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/conformance/proxy"
	"github.com/arcpd/arcpd/internal/race"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
	"github.com/arcpd/arcpd/transport"
)

const ownAckWindow = 1500

// bareQuiet is the time without frames of a server in this process that answers no ping.
const bareQuiet = 200 * time.Millisecond

// bareTimeout bounds a check of a server in this process. With the race detector, on a busy machine, a check
// may take ten seconds.
const bareTimeout = 2 * time.Minute

// ownTarget is a runtime in this process with the demo tools. A client that is busy with a large frame for twice its
// heartbeat interval loses its session.
func ownTarget(t *testing.T) Target {
	t.Helper()
	tools := tool.NewRegistry()
	if err := demo.Register(tools); err != nil {
		t.Fatal(err)
	}
	var config auth.Config
	for _, token := range []auth.Token{
		{Principal: "alice", Secret: "token-of-alice-0123456789", Roles: auth.LocalRoles()},
		{Principal: "bob", Secret: "token-of-bob-0123456789", Roles: auth.LocalRoles()},
		{Principal: "olga", Secret: "token-of-olga-0123456789", Roles: []auth.Role{auth.RoleObserver}},
	} {
		if err := config.AddToken(token); err != nil {
			t.Fatal(err)
		}
	}
	rt, err := runtime.New(t.Context(), runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(&config), Tools: tools, MinFree: -1,
		AckWindow: ownAckWindow, Heartbeat: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(rt.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = rt.Shutdown(ctx) // jobs of checks that have ended may be running
		web.CloseClientConnections()
		web.Close()
	})
	return Target{URL: "ws" + strings.TrimPrefix(web.URL, "http"), Token: "token-of-alice-0123456789", Principal: "alice",
		OtherToken: "token-of-bob-0123456789", AckWindow: ownAckWindow, FrameLimit: runtime.DefaultMaxFrame}
}

// bare changes the frames of a connection to a runtime into those of a server that we know nothing
// about: it has no habit that the RFC does not demand.
type bare struct {
	transport.Conn
	only *regexp.Regexp // matches the types that the server does not know; nil: it knows all
	pong pongs
	sent *sync.Map // ids of messages that clients sent
}

// pongs is how a bare server answers a ping.
type pongs int

const (
	correlatedPongs pongs = iota
	plainPongs            // in order, without a correlation_id
	noPongs
)

// minted are the identifiers that a runtime makes. Others, which scripts write, end in zeros.
var minted = regexp.MustCompile(`"(msg|sess|job|str|sub|lease|art|chk|res)_([0-9A-Z]{25}[1-9A-Z]|[0-9A-Z]{22}[1-9A-Z][0-9A-Z]{3})"`)

// foreignIDs are the forms of the identifiers that the client sees.
var foreignIDs = regexp.MustCompile(`(msg|sess|job|str|sub|lease|art|chk|res)-x-([0-9A-Z]{26})`)

func (b *bare) Write(frame []byte) error {
	text := foreignIDs.ReplaceAllString(string(frame), "${1}_$2")
	for _, id := range minted.FindAllString(string(frame), -1) {
		b.sent.Store(id, true)
	}
	return b.Conn.Write([]byte(text))
}

// WriteBinary implements proxy.BinaryWriter.
func (b *bare) WriteBinary(data []byte) error { return b.Conn.(proxy.BinaryWriter).WriteBinary(data) }

// Binary implements proxy.BinaryReader.
func (b *bare) Binary() bool {
	r, ok := b.Conn.(proxy.BinaryReader)
	return ok && r.Binary()
}

func (b *bare) Read() ([]byte, error) {
	for {
		frame, err := b.Conn.Read()
		if err != nil || b.Binary() {
			return frame, err
		}
		var env map[string]any
		dec := json.NewDecoder(strings.NewReader(string(frame)))
		dec.UseNumber()
		if err := dec.Decode(&env); err != nil {
			return nil, fmt.Errorf("the frame of the runtime: %w", err)
		}
		if !b.strip(env) {
			continue
		}
		changed, err := json.Marshal(env)
		if err != nil {
			return nil, err
		}
		return b.rename(changed), nil
	}
}

// rename changes the identifiers that the runtime made.
func (b *bare) rename(frame []byte) []byte {
	return minted.ReplaceAllFunc(frame, func(id []byte) []byte {
		if _, own := b.sent.Load(string(id)); own && strings.HasPrefix(string(id), `"msg_`) {
			return id
		}
		return []byte(strings.Replace(string(id), "_", "-x-", 1))
	})
}

// unknownType is the code with which a bare server refuses types that it does not know. The checks of those types
// are skipped whatever the code is.
const unknownType = "INVALID_ARGUMENT"

// strip takes away habits, and reports whether anything is left.
func (b *bare) strip(env map[string]any) bool {
	payload, _ := env["payload"].(map[string]any)
	typ, _ := env["type"].(string)
	delete(env, "trace_id")
	delete(env, "causation_id")
	delete(env, "priority")
	delete(payload, "approval_id")
	if typ == "cancel.refused" {
		payload["reason"] = "no"
	}
	if typ == "pong" {
		delete(payload, "nonce")
		if b.pong != correlatedPongs {
			delete(env, "correlation_id")
		}
		if b.pong == noPongs {
			return false
		}
	}
	if event, ok := payload["event"].(map[string]any); ok && typ == "subscribe.event" {
		b.strip(event)
	}
	details, _ := payload["details"].(map[string]any)
	if b.only != nil && (payload["code"] == "JOB_NOT_FOUND" || details["code"] == "JOB_NOT_FOUND") { // the answer to job.subscribe
		payload["code"] = unknownType
	}
	if payload["code"] != nil {
		delete(payload, "retryable")
		delete(payload, "details")
		if payload["message"] != nil {
			payload["message"] = "it did not work"
		}
	}
	env["timestamp"] = strings.Replace(env["timestamp"].(string), "Z", "+00:00", 1)
	switch typ {
	case "session.accepted":
		delete(payload, "resume_token")
		delete(payload, "lease")
		delete(env, "correlation_id")
		if runtime, _ := payload["runtime"].(map[string]any); runtime != nil {
			delete(runtime, "trust_level")
		}
		if caps, _ := payload["capabilities"].(map[string]any); caps != nil {
			delete(caps, "agents")
			delete(caps, "binary_encoding") // identifiers in binary frames keep their form
			if b.only != nil {
				delete(caps, "features")
			}
		}
	case "session.closed":
		return false
	}
	if b.only != nil {
		delete(env, "event_seq")
		if b.only.MatchString(typ) {
			if env["correlation_id"] == nil {
				return false
			}
			env["type"], env["payload"] = "nack", map[string]any{"code": unknownType, "message": "it did not work"}
		}
	}
	return true
}

// newer are the types that RFC 0001 does not have.
var newer = regexp.MustCompile(`^(session\.(pong|ping|jobs|resumed)|job\.(subscribed|unsubscribed|result_chunk))$`)

// lacking matches why checks of what a bare server does not have are skipped.
var lacking = regexp.MustCompile(`resume token|resume_token|sidecar|no frame with a priority|events have the trace_id`)

// A server that has none of our habits passes each check of the protocol that the runtime passes.
func TestBareServer(t *testing.T) {
	if testing.Short() {
		t.Skip("runs all conformance checks five times: left out with -short")
	}
	passed := map[string]bool{}
	for _, res := range results(t, ownTarget(t)) {
		passed[res.ID] = res.Status == Passed
		if res.Status == Failed {
			t.Errorf("the runtime itself: %s fails: %s", res.ID, res.Reason)
		}
	}
	modes := map[string]bare{
		"all types":            {},
		"types of RFC 0001":    {only: newer},
		"pongs in their order": {pong: plainPongs},
		"no pongs":             {pong: noPongs},
	}
	if race.Enabled { // it watches the checks, which are the same for each mode
		modes = map[string]bare{"all types": {}}
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time is waiting for what must not come
			target, sent := ownTarget(t), new(sync.Map)
			target.plant = func(conn transport.Conn) transport.Conn {
				return &bare{Conn: conn, only: mode.only, pong: mode.pong, sent: sent}
			}
			var groups []string
			if mode.pong == noPongs { // a check of pings would wait up to its limit
				groups = slices.DeleteFunc(Groups(arcp.DialectRFC), func(name string) bool { return name == "control" })
			}
			counts, reasons := map[Status]int{}, map[string]int{}
			for _, res := range results(t, target, groups...) {
				counts[res.Status]++
				if res.Status == Skipped {
					reasons[res.Reason]++
				}
				whole := mode.only == nil && mode.pong == correlatedPongs
				missing := passed[res.ID] && res.Status == Skipped && whole && !lacking.MatchString(res.Reason)
				if res.Status == Failed || missing {
					t.Errorf("%s is %s: %s", res.ID, res.Status, res.Reason)
				}
			}
			t.Logf("%v %v", counts, reasons)
		})
	}
}

// results runs the checks of the groups, or all.
func results(t *testing.T, target Target, groups ...string) []Result {
	t.Helper()
	return report(t, target, groups...).Results
}

func report(t *testing.T, target Target, groups ...string) Report {
	t.Helper()
	parallel := 8
	if race.Enabled { // the large frames of some checks take seconds of work
		parallel = 3
	}
	r, err := Run(t.Context(), target, Options{Groups: groups, Parallel: parallel, Timeout: bareTimeout, Quiet: bareQuiet})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
