package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance"
	"github.com/arcpd/arcpd/conformance/interop"
	"github.com/arcpd/arcpd/transport"
)

// rustKind is how the crate calls its clients.
const rustKind = "arcp-rs"

// TestRustInterop drives a server with the published Rust client: all that it offers,
// and a server that is killed under it.
func TestRustInterop(t *testing.T) {
	ofOtherPrograms(t)
	t.Parallel()
	programs := interop.Rust(t)
	bin, data := binary(t), t.TempDir()
	options := []string{"--max-frame", "32MiB"}
	p := startServer(t, bin, data, options...)
	defer func() { p.kill(t) }()

	codes := map[arcp.Code]arcp.Code{}
	for _, info := range arcp.Codes {
		if info.Code != arcp.CodeOK && info.Code != arcp.CodeCancelled { // the end of a cancelled job has no code there
			codes[info.Code] = info.Code.Canonical()
		}
	}
	sent, err := arcp.Marshal(codes)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, programs.Drive, p.url, crashToken, string(sent))
	if killed := runSteps(t, cmd, func() {
		p.kill(t)
		p = startServer(t, bin, data, append(options, "--listen", p.address)...)
	}); killed != 2 {
		t.Errorf("the client had the server killed %d times, want twice", killed)
	}
}

// undecodable states when a type that the crate cannot decode is sent to its clients: to
// sessions with a feature, or as the answer to a type. With neither it is never sent. A client
// of the crate alone cannot cause either.
type undecodable struct {
	feature arcp.Feature
	answers arcp.Type
	because string
}

// rustCannot lists the types that version 2.0.0 of the crate cannot decode. A frame of
// one of them ends its client.
var rustCannot = map[arcp.Type]undecodable{
	arcp.SessionClosed:       {answers: arcp.SessionClose, because: "the client drops its connection and never closes a session"},
	arcp.SessionResumed:      {answers: arcp.SessionResume, because: "the crate has no session.resume"},
	arcp.HumanInputRequest:   {feature: arcp.FeatureHumanInput, because: "the crate has no capability human_input"},
	arcp.HumanChoiceRequest:  {feature: arcp.FeatureHumanInput, because: "the crate has no capability human_input"},
	arcp.HumanInputCancelled: {feature: arcp.FeatureHumanInput, because: "the crate has no capability human_input"},
	arcp.HumanInputResponse:  {feature: arcp.FeatureExecutes, because: "it answers workers, which the crate does not have"},
	arcp.HumanChoiceResponse: {because: "it answers workers, which the crate does not have"},
	arcp.JobCheckpoint:       {because: "the crate has the capability checkpoints and not the message, so that no client of its kind is sent one"},
	arcp.WorkflowComplete: {feature: arcp.FeatureScheduledJobs, answers: arcp.WorkflowStart,
		because: "the crate has neither workflow.start nor job.schedule, which schedules one"},
	arcp.AgentHandoff: {because: "no session is handed over"},
}

// TestRustDecodeInterop decodes each type of frame that the runtime can send with the types of
// the published Rust crate. The frames are those that the conformance checks are sent
// when they call themselves clients of the crate, and one of each type that is sent in
// no check.
func TestRustDecodeInterop(t *testing.T) {
	ofOtherPrograms(t)
	t.Parallel()
	programs := interop.Rust(t)
	sent := rustFrames(t)
	for typ, frame := range unchecked {
		if len(sent.frames[typ]) > 0 {
			t.Errorf("%s is sent in a check: it need not be made by hand", typ)
		}
		frame.Type = typ
		sent.add(typ, rustFrame(t, frame))
	}
	for i := range arcp.Catalog {
		if spec := &arcp.Catalog[i]; spec.From&arcp.FromRuntime != 0 && len(sent.frames[spec.Type]) == 0 {
			t.Errorf("there is no frame of %s to decode", spec.Type)
		}
	}
	for _, odd := range sent.unasked {
		t.Error(odd)
	}
	for typ, why := range rustCannot {
		_, made := unchecked[typ]
		switch conditional := why.feature != "" || why.answers != ""; {
		case conditional && made:
			t.Errorf("%s is never sent to a client of the crate: its condition in rustCannot need not be there", typ)
		case len(sent.frames[typ]) == 0:
			t.Errorf("%s need not be in rustCannot: it is never sent", typ)
		}
	}
	huge := sent.frames[""]
	delete(sent.frames, "")
	for typ, outcomes := range decodeRust(t, programs.Decode, sent.frames) {
		_, cannot := rustCannot[typ]
		for i, outcome := range outcomes {
			if decoded := outcome == "ok "+string(typ); decoded == cannot {
				t.Errorf("%s: the crate says %q, in rustCannot: %t\n%.600s", typ, outcome, cannot, sent.frames[typ][i])
				break
			}
		}
	}
	if len(huge) == 0 {
		t.Error("no check has a tool return a number that no float64 holds: hugeNumber excludes nothing")
	}
	for i, outcome := range decodeRust(t, programs.Decode, map[arcp.Type][][]byte{"": huge})[""] {
		if !strings.HasPrefix(outcome, "error number out of range") {
			t.Errorf("a number that no float64 holds: the crate says %q; hugeNumber need not exclude it\n%.600s", outcome, huge[i])
		}
	}
}

// hugeNumber is a number that no float64 holds. A check has a tool return it, and
// results arrive as tools return them; the crate reads no such numbers. Frames with it
// are recorded under the empty type.
var hugeNumber = []byte("1E400")

// decodeRust returns the crate's result for each frame.
func decodeRust(t *testing.T, program string, frames map[arcp.Type][][]byte) map[arcp.Type][]string {
	t.Helper()
	types := slices.Sorted(maps.Keys(frames))
	var in bytes.Buffer
	for _, typ := range types {
		for _, frame := range frames[typ] {
			in.Write(bytes.ReplaceAll(frame, []byte("\n"), []byte(" ")))
			in.WriteByte('\n')
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Stdin, cmd.Stderr = &in, captureStderr(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(out)))
	outcomes := make(map[arcp.Type][]string)
	for _, typ := range types {
		for range frames[typ] {
			if len(lines) == 0 {
				t.Fatal("the program has not decoded all frames")
			}
			outcomes[typ] = append(outcomes[typ], strings.TrimSpace(lines[0]))
			lines = lines[1:]
		}
	}
	return outcomes
}

// received collects the frames that clients of one kind are sent.
type received struct {
	mu       sync.Mutex
	frames   map[arcp.Type][][]byte
	features map[arcp.SessionID]arcp.Capabilities // that a session negotiated
	unasked  []string                             // frames of rustCannot that nothing had asked for
}

// maxOfType bounds the recorded frames of a type: checks of limits cause thousands of events
// that differ in numbers only.
const maxOfType = 2000

func (r *received) add(typ arcp.Type, frame []byte) {
	if len(r.frames[typ]) < maxOfType {
		r.frames[typ] = append(r.frames[typ], frame)
	}
}

// rustFrames runs the conformance checks as clients of the crate and returns the received
// frames. Checks fail if they need frames that clients of the crate do not get.
func rustFrames(t *testing.T) *received {
	t.Helper()
	flags := append([]string{"--config", checkTools(t), "--auth-file", authFile(t)}, served...)
	p := startServer(t, binary(t), ":memory:", flags...)
	defer p.kill(t)
	tg := target(t, p)
	all := &received{frames: map[arcp.Type][][]byte{}, features: map[arcp.SessionID]arcp.Capabilities{}}
	tg.Dial = func(ctx context.Context) (transport.Conn, error) {
		conn, err := transport.Dial(ctx, p.url, transport.DialOptions{})
		return &rustConn{Conn: conn, all: all, asked: map[arcp.Type]bool{}}, err
	}
	report, err := conformance.Run(t.Context(), tg, conformance.Options{Levels: conformance.Levels, Parallel: 8, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Status == conformance.Failed {
			t.Logf("%s fails for a client of the crate: %s", r.ID, r.Reason)
		}
	}
	return all
}

// rustConn is the connection of a check. It opens sessions as a client of the crate and
// records the received frames.
type rustConn struct {
	transport.Conn
	all   *received
	asked map[arcp.Type]bool // types that were sent
}

// Write implements transport.Conn.
func (c *rustConn) Write(text []byte) error {
	env, err := arcp.Decode(text)
	if err != nil { // some checks send invalid envelopes
		return c.Conn.Write(text)
	}
	c.asked[env.Type] = true
	if env.Type == arcp.SessionOpen {
		text = asRust(text)
	}
	return c.Conn.Write(text)
}

// asRust changes client.kind. A frame without it stays unchanged: it is invalid on purpose.
func asRust(text []byte) []byte {
	var open struct {
		Members map[string]arcp.Raw
		Payload map[string]arcp.Raw
		Client  map[string]arcp.Raw
	}
	if arcp.Unmarshal(text, &open.Members) != nil || arcp.Unmarshal(open.Members["payload"], &open.Payload) != nil ||
		arcp.Unmarshal(open.Payload["client"], &open.Client) != nil || open.Client["kind"] == nil {
		return text
	}
	open.Client["kind"] = arcp.AppendString(nil, rustKind)
	for _, level := range []struct {
		of   map[string]arcp.Raw
		name string
		set  map[string]arcp.Raw
	}{{open.Payload, "client", open.Client}, {open.Members, "payload", open.Payload}} {
		raw, err := arcp.Marshal(level.set)
		if err != nil {
			return text
		}
		level.of[level.name] = raw
	}
	changed, err := arcp.Marshal(open.Members)
	if err != nil {
		return text
	}
	return changed
}

// Read implements transport.Conn.
func (c *rustConn) Read() ([]byte, error) {
	text, err := c.Conn.Read()
	if err != nil {
		return nil, err
	}
	env, bad := arcp.Decode(text)
	if bad != nil {
		return text, nil // the check says so
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if env.Type == arcp.SessionAccepted {
		if p, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&env); err == nil {
			c.all.features[p.SessionID] = p.Capabilities
		}
	}
	if why, cannot := rustCannot[env.Type]; cannot {
		negotiated := c.all.features[env.SessionID]
		if !c.asked[why.answers] && (why.feature == "" || !negotiated.Has(why.feature)) {
			c.all.unasked = append(c.all.unasked, fmt.Sprintf("%s is sent to a client that has not asked for it; the crate cannot decode it, and %s:\n%.600s", env.Type, why.because, text))
		}
	}
	switch {
	case env.CorrelationID != "" && (!strings.HasPrefix(string(env.CorrelationID), arcp.MessagePrefix) || env.CorrelationID == arcp.MessagePrefix):
		// It answers an id that no client of the crate makes.
	case bytes.Contains(text, hugeNumber):
		c.all.add("", bytes.Clone(text))
	default:
		c.all.add(env.Type, bytes.Clone(text))
	}
	return text, nil
}

// unchecked are frames of the types that are sent in no check, with all their members.
var unchecked = func() map[arcp.Type]arcp.Envelope {
	at := time.Date(2026, 5, 9, 13, 0, 0, 0, time.UTC)
	artifact := arcp.ArtifactObject{ArtifactID: "art_1", URI: "arcp://artifact/art_1", MediaType: "text/plain", Size: 5, SHA256: "00", ExpiresAt: at}
	failure := arcp.Errorf(arcp.CodeJobNotFound, "no such job").WithDetails(map[string]int{"n": 1})
	failure.Cause, failure.TraceID = &arcp.Cause{Code: arcp.CodeTimeout, Message: "slow"}, "trace_1"
	return map[arcp.Type]arcp.Envelope{
		arcp.SessionClose:        arcp.Frame(arcp.SessionClose, arcp.SessionClosePayload{Reason: "shutdown"}),
		arcp.Ping:                arcp.Frame(arcp.Ping, arcp.PingPayload{Nonce: "n"}),
		arcp.JobCheckpoint:       arcp.Frame(arcp.JobCheckpoint, arcp.JobCheckpointPayload{CheckpointID: "chk_1", Data: arcp.Raw(`{}`), Label: "l"}),
		arcp.ToolResult:          arcp.Frame(arcp.ToolResult, arcp.ToolResultPayload{Value: arcp.Raw(`[1]`), ResultRef: &artifact}),
		arcp.ToolError:           arcp.Frame(arcp.ToolError, failure),
		arcp.AgentHandoff:        arcp.Frame(arcp.AgentHandoff, arcp.AgentHandoffPayload{Runtime: arcp.RuntimeInfo{Kind: "k", Version: "1"}, SessionID: "sess_1", Reason: "r"}),
		arcp.HumanChoiceResponse: arcp.Frame(arcp.HumanChoiceResponse, arcp.HumanChoiceResponsePayload{ChoiceID: "c", RespondedBy: "p", RespondedAt: at}),
		arcp.PermissionGrant:     arcp.Frame(arcp.PermissionGrant, arcp.PermissionGrantPayload{Permission: "p", Resource: "r", Operation: "o", LeaseSeconds: 1}),
		arcp.Unsubscribe:         arcp.Frame(arcp.Unsubscribe, arcp.UnsubscribePayload{SubscriptionID: "sub_1"}),
		arcp.SubscribeClosed:     arcp.Frame(arcp.SubscribeClosed, arcp.SubscribeClosedPayload{SubscriptionID: "sub_1", Code: arcp.CodeBackpressureOverflow, Reason: "r"}),
	}
}()

// rustFrame encodes a frame with the envelope members that its type may have.
func rustFrame(t *testing.T, env arcp.Envelope) []byte {
	t.Helper()
	spec := arcp.Lookup(env.Type)
	env.ARCP, env.ID, env.Timestamp, env.SessionID = "1.1", arcp.NewMessageID(), time.Now().UTC(), "sess_1"
	for _, name := range spec.Scope.Members() {
		switch name {
		case "job_id":
			env.JobID = "job_1"
		case "stream_id":
			env.StreamID = "str_1"
		case "subscription_id":
			env.SubscriptionID = "sub_1"
		case "correlation_id":
			env.CorrelationID = "msg_1"
		}
	}
	if spec.Delivery == arcp.Sequenced {
		env.EventSeq = 1
	}
	return env.Append(nil)
}
