package machine

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

var update = flag.Bool("update", false, "rewrite testdata from what the machine does")

// t0 is when the tests play.
var t0 = time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)

// testConfig offers few features, so that scripts stay readable.
func testConfig() *Config {
	return &Config{
		Handshake: 10 * time.Second, ChallengeTTL: time.Minute, Lease: time.Hour, Idle: 24 * time.Hour, ResumeWindow: 10 * time.Minute,
		Heartbeat: 30 * time.Second, Runtime: arcp.RuntimeInfo{Kind: "arcp-go", Version: "test"},
		Offer: arcp.Capabilities{
			Flags: map[arcp.Feature]bool{arcp.FeatureDurableJobs: true, arcp.FeatureAnonymous: true,
				arcp.FeatureRefresh: true, arcp.FeatureHumanInput: true},
			Extensions: []string{"arcpx.test.v1"}, Features: []string{"ack", "list_jobs"}, Encodings: []string{"json"},
		},
	}
}

const ownID = arcp.SessionID("sess_own")

// A script is a conversation with a machine. A line is an input:
//
//	C ID TYPE [MEMBER=VALUE …] [PAYLOAD]   a frame of the client
//	bad REASON [ID]                        a frame that is no envelope
//	authenticated NAME [observer] [until=DURATION]
//	                                       the credentials are valid, without end or for a duration
//	authenticated challenge NONCE          the credentials need an answer to a challenge
//	authenticated refuse [final] [challenge=NONCE] MESSAGE
//	established [refused CODE MESSAGE]     the session is durable, or over a limit
//	established attached                   an older session is taken over
//	resumed [refused CODE MESSAGE]         the session is resumed by its token, or not
//	resumed [until=DURATION] [refresh]     with a credential that expires
//	refresh_prepared [NONCE]               session.refresh has a challenge, or none
//	reauthenticated …                      like authenticated, for a new credential
//	renewed [refused CODE MESSAGE]         the session uses the new credential, or not
//	ended [refused CODE MESSAGE]           the end of the session is durable, or not
//	activity received|worked               activity other than a frame
//	wait DURATION                          time passes
//	alive DURATION                         time passes, and the client sends a pong
//	evict CODE REASON
//	position_requested                     the caller handles resume
//	accept [FEATURE …] [until=DURATION]    all of the above up to session.accepted
//	N times LINE                           repeats a line; only the last output is shown
//
// The indented lines below an input are the machine's outputs, in order, and its phase if that
// has changed. # begins a comment; --- a new connection.
type script struct {
	m     *Machine
	now   time.Time
	phase Phase
	n     int // pongs
}

func newScript() *script {
	return &script{m: New(t0, testConfig(), ownID), now: t0, phase: Opening}
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := play(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := strings.Split(string(text), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("%s:%d: the machine does\n%s\nwant\n%s", file, i+1, line, strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""))
		}
	}
	if got != string(text) {
		t.Errorf("%s: the machine does less than the script says", file)
	}
}

// play runs a script and returns it with the present outputs of the machine.
func play(text string) (string, error) {
	var out strings.Builder
	s := newScript()
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "\t"):
			continue
		case line == "---":
			s = newScript()
		case line != "" && line[0] != '#':
			if err := s.step(line); err != nil {
				return "", fmt.Errorf("line %d: %s: %w", n+1, line, err)
			}
		}
		out.WriteString(line + "\n")
		for _, l := range s.effects() {
			out.WriteString("\t" + l + "\n")
		}
	}
	return out.String(), nil
}

func (s *script) step(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	if n, err := strconv.Atoi(verb); err == nil {
		return s.times(n, strings.TrimPrefix(rest, "times "))
	}
	switch verb {
	case "C":
		return s.client(rest)
	case "bad":
		reason, id, _ := strings.Cut(rest, " ")
		s.m.Malformed(&arcp.EncodingError{Reason: reason, Message: "the frame is bad", ID: arcp.MessageID(id)})
	case "authenticated":
		s.m.Authenticated(s.now, s.decision(rest))
	case "reauthenticated":
		s.m.Reauthenticated(s.now, s.decision(rest))
	case "refresh_prepared":
		s.m.RefreshPrepared(s.now, rest)
	case "renewed":
		s.m.Renewed(s.now, established(rest))
	case "position_requested":
		s.m.PositionRequested()
	case "ended":
		s.m.Ended(established(rest).Refused)
	case "activity":
		s.m.RecordActivity(map[string]Activity{"received": {Received: s.now}, "worked": {Worked: s.now}}[rest])
	case "established":
		s.m.Established(s.now, established(rest))
	case "resumed":
		s.m.Resumed(s.now, s.resumed(rest))
	case "evict":
		code, reason, _ := strings.Cut(rest, " ")
		s.m.Evict(arcp.Code(code), reason)
	case "wait":
		d, err := time.ParseDuration(rest)
		s.now = s.now.Add(d)
		s.m.Advance(s.now)
		return err
	case "alive":
		s.n++
		return errors.Join(s.step("wait "+rest), s.client(fmt.Sprintf(`msg_alive%d pong {}`, s.n)))
	case "accept":
		return s.accept(strings.Fields(rest))
	default:
		return errors.New("no such step")
	}
	return nil
}

func (s *script) times(n int, line string) error {
	for i := range n {
		if i > 0 {
			s.m.TakeOutput()
		}
		if err := s.step(strings.ReplaceAll(line, "$n", strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) accept(words []string) error {
	credentials, features := "authenticated alice", []string{}
	for _, w := range words {
		if strings.HasPrefix(w, "until=") {
			credentials += " " + w
		} else {
			features = append(features, fmt.Sprintf("%q:true", w))
		}
	}
	for _, line := range []string{
		`C msg_open session.open {"auth":{"scheme":"bearer","token":"t"},"client":{"kind":"k","version":"1"},"capabilities":{` + strings.Join(features, ",") + `}}`,
		credentials, "established"} {
		if err := s.step(line); err != nil {
			return err
		}
		s.m.TakeOutput()
	}
	s.phase = s.m.Phase()
	return nil
}

// client decodes a frame made of a line and hands it to the machine.
func (s *script) client(line string) error {
	env, err := envelope(line)
	if err == nil {
		s.m.Receive(s.now, env)
	}
	return err
}

func envelope(line string) (*arcp.Envelope, error) {
	head, payload := line, "{}"
	if i := strings.IndexByte(line, '{'); i >= 0 {
		head, payload = line[:i], line[i:]
	}
	fields := strings.Fields(head)
	if len(fields) < 2 {
		return nil, errors.New("a frame needs an id and a type")
	}
	version, members := "1.1", ""
	for _, f := range fields[2:] {
		name, value, _ := strings.Cut(f, "=")
		switch name {
		case "v":
			version = value
		case "optional":
			members += `,"extensions":{"optional":true}`
		case "session", "job", "stream", "subscription":
			members += fmt.Sprintf(`,"%s_id":%q`, name, value)
		default:
			members += fmt.Sprintf(`,%q:%q`, name, value)
		}
	}
	env, err := arcp.Decode(fmt.Appendf(nil, `{"arcp":%q,"id":%q,"type":%q,"timestamp":"2030-01-01T00:00:00Z"%s,"payload":%s}`,
		version, fields[0], fields[1], members, payload))
	return &env, err
}

func (s *script) decision(line string) CredentialDecision {
	words := strings.Fields(line)
	switch words[0] {
	case "challenge":
		return CredentialDecision{Challenge: words[1]}
	case "refuse":
		j := CredentialDecision{Refused: &Refusal{}}
		words = words[1:]
		if words[0] == "final" {
			j.Refused.Final, words = true, words[1:]
		}
		if nonce, ok := strings.CutPrefix(words[0], "challenge="); ok {
			j.Challenge, words = nonce, words[1:]
		}
		j.Refused.Message = strings.Join(words, " ")
		return j
	}
	id := &Identity{Principal: words[0], Trust: "trusted", Commands: !slices.Contains(words, "observer")}
	for _, w := range words {
		if until, ok := strings.CutPrefix(w, "until="); ok {
			d, _ := time.ParseDuration(until)
			id.Expires = s.now.Add(d)
		}
	}
	return CredentialDecision{Identity: id}
}

func established(line string) SessionResult {
	if rest, ok := strings.CutPrefix(line, "refused "); ok {
		code, message, _ := strings.Cut(rest, " ")
		return SessionResult{Refused: arcp.Errorf(arcp.Code(code), "%s", message)}
	}
	if line == "attached" {
		return SessionResult{ResumeToken: "rt_x", Attached: &Attached{Session: "sess_old", Negotiated: []arcp.Feature{arcp.FeatureAck}}}
	}
	return SessionResult{ResumeToken: "rt_x", Agents: []arcp.Agent{{Name: "echo", Versions: []string{"1.0.0"}, Default: "1.0.0"}}}
}

func (s *script) resumed(line string) ResumeResult {
	if rest, ok := strings.CutPrefix(line, "refused "); ok {
		code, message, _ := strings.Cut(rest, " ")
		return ResumeResult{Refused: arcp.Errorf(arcp.Code(code), "%s", message)}
	}
	r := ResumeResult{Attached: Attached{Session: "sess_old", Negotiated: []arcp.Feature{arcp.FeatureAck}},
		Identity: *s.decision("alice " + line).Identity, ResumeToken: "rt_y", After: 7, Replayed: true}
	if strings.Contains(line, "refresh") {
		r.Negotiated = append(r.Negotiated, arcp.FeatureRefresh)
	}
	return r
}

// effects returns the outputs of the machine, a line each.
func (s *script) effects() (lines []string) {
	out := s.m.TakeOutput()
	for _, n := range out.Incidents {
		lines = append(lines, strings.TrimRight("incident "+n.Reason+" "+string(n.Type), " "))
		if n.Rejected {
			lines = append(lines, "rejected: "+n.Detail)
		}
	}
	for i := range out.Send {
		lines = append(lines, "send "+sent(&out.Send[i]))
	}
	if out.SendEvents {
		lines = append(lines, "send events")
	}
	if a := out.Admitted; a.Envelope != nil {
		line := "handle " + string(a.Envelope.ID) + " " + string(a.Envelope.Type)
		if a.Worker {
			line += " of a worker"
		}
		lines = append(lines, line)
	}
	if out.CancelJobs {
		lines = append(lines, "cancel jobs")
	}
	if out.Request != nil {
		lines = append(lines, "ask "+asked(out.Request))
	}
	if out.Close != nil {
		lines = append(lines, fmt.Sprintf("close %d %s", out.Close.Code, out.Close.Reason))
		if out.Close.Evicted != "" {
			lines = append(lines, "because "+string(out.Close.Evicted))
		}
	}
	if p := s.m.Phase(); p != s.phase {
		s.phase = p
		lines = append(lines, "phase "+p.String())
	}
	return lines
}

func sent(env *arcp.Envelope) string {
	line := string(env.Type)
	if env.CorrelationID != "" {
		line += " corr=" + string(env.CorrelationID)
	}
	if env.SessionID != ownID {
		line += " session=" + strconv.Quote(string(env.SessionID))
	}
	if env.ID != "" || env.EventSeq != 0 || !env.Timestamp.IsZero() {
		line += " (stamped)"
	}
	payload := string(env.Payload)
	for _, f := range arcp.Features { // features that are not offered are left out
		payload = strings.ReplaceAll(payload, fmt.Sprintf("%q:false,", f), "")
	}
	return line + " " + payload
}

func asked(q Request) string {
	switch q := q.(type) {
	case AuthenticateRequest:
		return "authenticate " + credentialsText(q.Credentials)
	case VerifyRequest:
		return fmt.Sprintf("verify %s challenge=%s response=%s", credentialsText(q.Credentials), q.Challenge, q.Response)
	case EstablishRequest:
		line := fmt.Sprintf("establish %s commands=%t arcp=%s client=%s features=%v", q.Identity.Principal,
			q.Identity.Commands, q.Version, q.Client.Kind, q.Negotiated)
		if q.Attach != "" {
			line += " attach=" + string(q.Attach)
		}
		if q.After != nil {
			line += fmt.Sprintf(" after=%d", *q.After)
		}
		return line
	case PrepareRefreshRequest:
		return "prepare_refresh"
	case ReauthenticateRequest:
		return fmt.Sprintf("reauthenticate %s challenge=%s response=%s", credentialsText(q.Credentials), q.Challenge, q.Response)
	case RenewRequest:
		return "renew " + q.Identity.Principal
	case EndRequest:
		return "end"
	case ResumeRequest:
		return fmt.Sprintf("resume token=%s after=%d arcp=%s", q.Token, q.After, q.Version)
	}
	return fmt.Sprintf("%T", q)
}

func credentialsText(a Credentials) string {
	return fmt.Sprintf("%s token=%s principal=%s anonymous=%t", a.Scheme, a.Token, a.Principal, a.Anonymous)
}

// A script in which the machine does something else must fail, or the scripts
// prove nothing.
func TestScriptsCanFail(t *testing.T) {
	text := "C msg_1 ping\n\tsend pong\n"
	got, err := play(text)
	if err != nil || got == text || !bytes.Contains([]byte(got), []byte("incident before_accepted ping")) {
		t.Errorf("play = %q, %v; want what really happens", got, err)
	}
}
