package runtime_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/transport"
)

// remote makes a connection one of which the operating system says nothing.
func remote(i *transport.Info) { i.Local = false }

// remoteDial is dial from elsewhere.
func (b *fixture) remoteDial(name string) *peer {
	b.Helper()
	p := b.connect(remote)
	p.open(name)
	p.expect("session.accepted")
	return p
}

// evicted reads up to the eviction and compares its code.
func (p *peer) evicted(why string, code arcp.Code) {
	p.Helper()
	env := p.until("session.evicted")
	e, err := arcp.DecodePayload[arcp.SessionEvictedPayload](&env)
	if err != nil || e.Code != code || e.Reason == "" {
		p.Errorf("%s: evicted with %s, %v, want %s", why, env.Payload, err, code)
	}
	p.closed(why, transport.ClosePolicy)
}

// goesOn checks that the session is open.
func (p *peer) goesOn(why string) {
	p.Helper()
	if _, err := p.try("ping", `{}`); err != nil {
		p.Fatalf("%s: %v", why, err)
	}
	p.expect("pong")
}

func (b *fixture) wantEvictions(why, label string, n float64) {
	b.Helper()
	if got := b.sum("arcp_session_evictions_total", `"`+label+`"`); got != n {
		b.Errorf("%s: %v evictions for %s, want %v", why, got, label, n)
	}
}

// A session without a frame for the time of the lease is evicted, and can be resumed. Any
// frame renews the lease.
func TestLeaseSlides(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.Heartbeat, c.SessionLease = -1, 5*time.Minute }, func(b *fixture) {
		silent, busy, acking := b.connect(remote), b.remoteDial("alice"), b.remoteDial("alice")
		silent.open("alice")
		accepted := silent.expect("session.accepted")
		if want := time.Now().Add(5 * time.Minute).UTC().Format("2006-01-02T15:04:05"); !strings.Contains(string(accepted.Payload), `"expires_at":"`+want) {
			t.Errorf("%s: want the lease to end at %s", accepted.Payload, want)
		}
		began := time.Now()
		go func() {
			for range 6 {
				time.Sleep(4 * time.Minute)
				_, _ = busy.try("pong", `{}`)
				_, _ = acking.try("session.ack", `{"last_processed_seq":0}`) // it passes the machine by
			}
		}()
		silent.evicted("it says nothing", arcp.CodeLeaseExpired)
		if took := time.Since(began); took != 5*time.Minute {
			t.Errorf("evicted after %v, want 5 min", took)
		}
		b.wantEvictions("a silent one", "lease_expired", 1)
		b.resume(resumeToken(t, accepted), 0).expect("session.resumed")
		busy.evicted("it has stopped", arcp.CodeLeaseExpired)
		acking.evicted("so has this one", arcp.CodeLeaseExpired)
		if took := time.Since(began); took != 29*time.Minute {
			t.Errorf("evicted after %v, want 5 min after 24", took)
		}
	})
}

// A client that only listens is alive while it answers the transport's pings,
// which come often enough however heartbeats are set; so is a local one, whose end
// the operating system would tell.
func TestListenersAreAlive(t *testing.T) {
	for _, heartbeat := range []time.Duration{-1, 10 * time.Second, 60 * time.Second, time.Hour} {
		inBubble(t, func(c *runtime.Config) { c.Heartbeat, c.SessionLease = heartbeat, 90*time.Second }, func(b *fixture) {
			local := b.dial("alice")
			pinged := &answering{began: time.Now()}
			near, far := transport.Pipe(transport.Limits{})
			pinged.Conn = far
			b.serve.Go(func() { _ = b.rt.Serve(context.Background(), pinged) })
			b.Cleanup(func() { _ = near.Abort() })
			p := &peer{fixture: b, conn: near}
			p.open("alice")
			p.expect("session.accepted")
			time.Sleep(time.Hour)
			local.goesOn("a local one")
			p.goesOn("one that answers pings")
			pinged.deaf.Store(true)
			p.closed("it answers no more", transport.ClosePolicy)
		})
	}
}

// answering answers each ping of the transport.
type answering struct {
	transport.Conn
	began    time.Time
	requests atomic.Int64
	deaf     atomic.Bool
}

func (a *answering) Info() transport.Info {
	i := a.Conn.Info()
	i.Local, i.Pings = false, true
	return i
}

func (a *answering) Ping() error {
	if !a.deaf.Load() {
		a.requests.Store(int64(time.Since(a.began)))
	}
	return nil
}

func (a *answering) LastSeen() time.Time { return a.began.Add(time.Duration(a.requests.Load())) }

// Sessions that do nothing end after a while, but for those that wait for
// something.
func TestIdleSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many sessions: left out with -short")
	}
	const while, minute = 20 * time.Minute, time.Minute
	inBubble(t, func(c *runtime.Config) { c.Heartbeat, c.SessionIdle = -1, while }, func(b *fixture) {
		idle, job, sub, follow := b.dial("alice"), b.dial("alice"), b.dial("alice"), b.dial("alice")
		began := time.Now()
		id := job.submit("demo.sleep", fmt.Sprintf(`{"ms":%d}`, (50*minute).Milliseconds()))
		job.expect("job.started")
		sub.send("subscribe", `{"filter":{"types":["log"]}}`)
		sub.expect("subscribe.accepted")
		follow.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, id))
		follow.expect("job.subscribed")
		time.Sleep(19 * minute)
		idle.goesOn("it is not time yet, and a ping is no work")
		idle.evicted("nothing but pings", arcp.CodeDeadlineExceeded)
		if took := time.Since(began); took != while {
			t.Errorf("evicted after %v, want %v", took, while)
		}
		b.wantEvictions("one that did nothing", "idle", 1)
		time.Sleep(time.Until(began.Add(49 * minute)))
		job.goesOn("it has a job")
		follow.goesOn("it follows one")
		sub.goesOn("it is subscribed")
		job.until("job.completed")
		follow.until("job.completed")
		for _, p := range []*peer{job, follow} {
			p.evicted("a while after its job", arcp.CodeDeadlineExceeded)
		}
		if took := time.Since(began); took != 50*minute+while {
			t.Errorf("evicted after %v, want %v after 50 minutes", took, while)
		}
		sub.goesOn("it is subscribed")
	})
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		began := time.Now()
		p.evicted("the default", arcp.CodeDeadlineExceeded)
		if took := time.Since(began); took != 24*time.Hour {
			t.Errorf("evicted after %v, want a day", took)
		}
	})
	inBubble(t, func(c *runtime.Config) { c.SessionIdle, c.SessionLease = -1, -1 }, func(b *fixture) {
		p := b.dial("alice")
		time.Sleep(1000 * time.Hour)
		p.goesOn("off is off")
	})
}

// tokens makes credentials that end.
type tokens struct {
	*testing.T
	dir    string
	secret []byte
}

func newTokens(t *testing.T) *tokens {
	t.Helper()
	k := &tokens{t, t.TempDir(), []byte(strings.Repeat("s", 64))}
	if err := os.WriteFile(filepath.Join(k.dir, "secret"), k.secret, 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

// set accepts the tokens of an issuer.
func (k *tokens) load(issuer, more string) *auth.Config {
	k.Helper()
	name := filepath.Join(k.dir, "auth.yaml")
	text := fmt.Sprintf("issuers: [{issuer: %s, key_files: [secret], algorithms: [HS256]}]\n%s", issuer, more)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		k.Fatal(err)
	}
	c, err := auth.Load(name, auth.Options{})
	if err != nil {
		k.Fatal(err)
	}
	return c
}

const leeway = 30 * time.Second // of JWTs

// of signs a token of a principal that lasts for d, the leeway included.
func (k *tokens) of(name string, d time.Duration, nonce string) string {
	k.Helper()
	claims := jwt.MapClaims{"iss": "home", "aud": "arcp", "sub": name, "exp": time.Now().Add(d - leeway).Unix()}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(k.secret)
	if err != nil {
		k.Fatal(err)
	}
	return signed
}

// inJWTBubble runs a test on a runtime that takes JWTs, once they need no
// challenge.
func inJWTBubble(t *testing.T, more string, change func(*runtime.Config), test func(b *fixture, k *tokens)) {
	t.Helper()
	k := newTokens(t)
	inBubble(t, func(c *runtime.Config) {
		c.Auth, c.Heartbeat = auth.NewSet(k.load("home", more)), -1
		if change != nil {
			change(c)
		}
	}, func(b *fixture) { test(b, k) })
}

// openJWT opens a session with a token that lasts for d.
func (b *fixture) openJWT(k *tokens, d time.Duration, features, session string) (*peer, arcp.Envelope) {
	b.Helper()
	p := b.connect(nil)
	id := ""
	if session != "" {
		id = fmt.Sprintf(`"session_id":%q,`, session)
	}
	frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_open","type":"session.open","timestamp":"2030-01-02T15:04:05Z",%s"payload":{"auth":{"scheme":"signed_jwt","token":%q},
		"client":{"kind":"test","version":"1","principal":"alice"},"capabilities":{%s}}}`, id, k.of("alice", d, ""), features)
	if err := p.conn.Write([]byte(frame)); err != nil {
		b.Fatal(err)
	}
	if err := p.conn.Flush(); err != nil {
		b.Fatal(err)
	}
	env := p.read()
	if env.Type == "session.challenge" {
		c, _ := arcp.DecodePayload[arcp.SessionChallengePayload](&env)
		p.send("session.authenticate", fmt.Sprintf(`{"response":%q}`, k.of("alice", d, c.Challenge)))
		env = p.read()
	}
	if env.Type != "session.accepted" {
		b.Fatalf("%s %s, want session.accepted", env.Type, env.Payload)
	}
	return p, env
}

func (p *peer) refresh() (r arcp.SessionRefreshPayload) {
	p.Helper()
	env := p.until("session.refresh")
	r, err := arcp.DecodePayload[arcp.SessionRefreshPayload](&env)
	if err != nil {
		p.Fatal(err)
	}
	return r
}

// show answers session.refresh with a credential.
func (p *peer) show(token, response string) (id string) {
	p.Helper()
	return p.send("session.authenticate", fmt.Sprintf(`{"response":%q,"auth":{"scheme":"signed_jwt","token":%q}}`, response, token))
}

const canRefresh = `"refresh":true`

func expiresAt(t *testing.T, env arcp.Envelope) time.Time {
	t.Helper()
	p, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&env)
	if err != nil || p.Lease == nil {
		t.Fatalf("%s %s: want a lease (%v)", env.Type, env.Payload, err)
	}
	return p.Lease.ExpiresAt
}

// Before a credential ends the client is asked for another, again and again, and
// nothing else in the session notices.
func TestRefresh(t *testing.T) {
	inJWTBubble(t, "", nil, func(b *fixture, k *tokens) {
		began := time.Now()
		p, accepted := b.openJWT(k, 20*time.Minute, canRefresh, "")
		if at := expiresAt(t, accepted); !at.Equal(began.Add(20 * time.Minute)) {
			t.Errorf("the lease ends at %v, want the credential's end", at)
		}
		p.submit("demo.sleep", fmt.Sprintf(`{"ms":%d}`, (50*time.Minute).Milliseconds()))
		first := resumeToken(t, accepted)
		for n := range 3 {
			asked := p.refresh()
			at := began.Add(time.Duration(n+1) * 18 * time.Minute)
			if !time.Now().Equal(at) || asked.Challenge != "" || !asked.Deadline.Equal(at.Add(2*time.Minute)) {
				t.Fatalf("at %v: session.refresh %+v, want it at %v for 2 min", time.Now(), asked, at)
			}
			p.send("ping", `{}`)
			p.expect("pong")
			id := p.show(k.of("alice", 20*time.Minute, ""), "")
			env := p.expect("session.accepted")
			if string(env.CorrelationID) != id || env.SessionID != p.session || env.EventSeq != 0 {
				t.Errorf("session.accepted %+v: want it to answer %s in the session", env, id)
			}
			if end := expiresAt(t, env); !end.Equal(at.Add(20 * time.Minute)) {
				t.Errorf("the lease ends at %v, want the new credential's end", end)
			}
			if token := resumeToken(t, env); token == first {
				t.Error("the resume token is not rotated")
			}
			if n == 1 {
				p.until("job.completed")
			}
		}
		p.evicted("there is no answer", arcp.CodeUnauthenticated)
		if took := time.Since(began); took != 3*18*time.Minute+20*time.Minute {
			t.Errorf("evicted after %v, want the end of the last credential", took)
		}
		b.wantEvictions("no answer", "credential_expired", 1)
	})
}

// An invalid credential does not renew the session; the third ends the connection.
func TestRefreshRefused(t *testing.T) {
	inJWTBubble(t, "", nil, func(b *fixture, k *tokens) {
		p, _ := b.openJWT(k, 10*time.Minute, canRefresh, "")
		p.refresh()
		for _, c := range []struct{ why, token, reason string }{
			{"another principal's", k.of("bob", time.Hour, ""), "principal"},
			{"no longer than the one there is", k.of("alice", time.Minute, ""), "stale"},
		} {
			id := p.show(c.token, "")
			env := p.expect("session.unauthenticated")
			if e := refusal(t, env); e.Code != arcp.CodeUnauthenticated || string(env.CorrelationID) != id {
				t.Errorf("%s: %+v", c.why, e)
			}
			if n := b.sum("arcp_auth_failures_total", `"`+c.reason+`"`); n != 1 {
				t.Errorf("%s: %v failures are counted for %s", c.why, n, c.reason)
			}
		}
		p.goesOn("it may try again")
		p.show("nonsense", "")
		p.expect("session.unauthenticated")
		p.evicted("three times", arcp.CodeUnauthenticated)
		b.wantEvictions("three failures", "credential_refused", 1)
		if n := b.sum("arcp_auth_failures_total", ""); n != 3 {
			t.Errorf("%v failures are counted, want 3", n)
		}
	})
}

// With a policy of challenges a fresh credential is proven.
func TestRefreshWithAChallenge(t *testing.T) {
	inJWTBubble(t, "challenge: {signed_jwt: always}\n", nil, func(b *fixture, k *tokens) {
		p, _ := b.openJWT(k, 10*time.Minute, canRefresh, "")
		asked := p.refresh()
		if asked.Challenge == "" {
			t.Fatal("session.refresh without a challenge")
		}
		fresh := func(nonce string) string { return k.of("alice", time.Hour, nonce) }
		p.show(fresh(""), fresh("another"))
		p.expect("session.unauthenticated")
		second := p.refresh()
		if second.Challenge == "" || second.Challenge == asked.Challenge {
			t.Fatalf("after a wrong answer: %+v, want another challenge", second)
		}
		p.show(fresh(""), fresh(second.Challenge))
		p.expect("session.accepted")
		p.refresh()
		time.Sleep(2 * time.Minute)
		p.send("session.authenticate", `{"response":"too late for this challenge"}`)
		third := p.refresh()
		p.send("session.authenticate", fmt.Sprintf(`{"response":%q}`, fresh(third.Challenge)))
		p.expect("session.accepted")
	})
}

// A session that cannot refresh is evicted at the end of its credential. Its token is then
// invalid, new credentials are accepted, and the job has continued.
func TestCredentialEnds(t *testing.T) {
	inJWTBubble(t, "", nil, func(b *fixture, k *tokens) {
		p, accepted := b.openJWT(k, 10*time.Minute, "", "")
		job := p.submit("demo.sleep", fmt.Sprintf(`{"ms":%d}`, (12*time.Minute).Milliseconds()))
		began := time.Now()
		p.evicted("its credential has ended", arcp.CodeUnauthenticated)
		if took := time.Since(began); took != 10*time.Minute {
			t.Errorf("evicted after %v", took)
		}
		if e := refusal(t, b.resume(resumeToken(t, accepted), 0).expect("session.rejected")); e.Code != arcp.CodeUnauthenticated {
			t.Errorf("with its token: %+v", e)
		}
		again, _ := b.openJWT(k, time.Hour, "", string(p.session))
		if again.session != p.session {
			t.Fatalf("session %s, want the one before", again.session)
		}
		if done := again.until("job.completed"); done.JobID != job {
			t.Errorf("%s, want %s", done.JobID, job)
		}
	})
}

// A refresh rotates the token: the one before is good until a connection made
// with the new one is heard. The session is resumed by the fresh credential.
func TestRefreshRotatesTheToken(t *testing.T) {
	inJWTBubble(t, "", nil, func(b *fixture, k *tokens) {
		p, accepted := b.openJWT(k, 10*time.Minute, canRefresh, "")
		first := resumeToken(t, accepted)
		p.goesOn("its client has the first token")
		p.refresh()
		p.show(k.of("alice", time.Hour, ""), "")
		second := resumeToken(t, p.expect("session.accepted"))
		p.goesOn("it may not have seen session.accepted yet")
		p.send("session.ack", `{"last_processed_seq":0}`) // the row is stored again
		synctest.Wait()
		_ = p.conn.Abort()
		time.Sleep(5 * time.Minute) // the first credential has ended
		lost := b.resume(first, 0)
		lost.expect("session.resumed")
		_ = lost.conn.Abort()
		p = b.resume(second, 0)
		third := resumeToken(t, p.expect("session.resumed"))
		p.goesOn("the new one is heard")
		_ = p.conn.Abort()
		for _, used := range []string{first, second} {
			if e := refusal(t, b.resume(used, 0).expect("session.rejected")); e.Code != arcp.CodeResumeWindowExpired {
				t.Errorf("a token that is used up: %+v", e)
			}
		}
		p = b.resume(third, 0)
		p.expect("session.resumed")
		asked := p.refresh()
		p.show(k.of("alice", 2*time.Hour, ""), "")
		env := p.expect("session.accepted")
		if end := expiresAt(t, env); !end.After(asked.Deadline) {
			t.Errorf("a resumed session: the lease ends at %v, want later than the first credential's %v", end, asked.Deadline)
		}
	})
}

// A session that takes over while a fresh credential is being stored keeps its
// token.
func TestRefreshWhileSuperseded(t *testing.T) {
	inJWTBubble(t, "", nil, func(b *fixture, k *tokens) {
		p, accepted := b.openJWT(k, 10*time.Minute, canRefresh, "")
		p.refresh()
		gate := make(chan struct{})
		b.st.set(func() { b.st.gate = gate })
		next := b.resume(resumeToken(t, accepted), 0)
		synctest.Wait()
		p.show(k.of("alice", time.Hour, ""), "")
		synctest.Wait()
		b.st.set(func() { b.st.gate = nil })
		close(gate)
		token := resumeToken(t, next.expect("session.resumed"))
		p.closed("superseded", transport.ClosePolicy)
		next.goesOn("it has the session")
		_ = next.conn.Abort()
		b.resume(token, 0).expect("session.resumed")
	})
}

// After a reload those whose token is gone are cut off at once, the others not.
func TestReauthenticate(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(c *runtime.Config) { c.Log = zerolog.New(zerolog.SyncWriter(&log)) }, func(b *fixture) {
		alice, resume := b.dialToken("alice")
		bob := b.dial("bob")
		bob.submit("demo.sleep", `{"ms":60000}`)
		opening := b.connect(nil)
		var left auth.Config
		if err := left.AddToken(auth.Token{Principal: "alice", Secret: auth.Secret("alice-" + token), Roles: auth.LocalRoles()}); err != nil {
			t.Fatal(err)
		}
		b.cfg.Auth.Reload(&left)
		b.rt.Reauthenticate()
		bob.evicted("its token is gone", arcp.CodeUnauthenticated)
		alice.goesOn("its is there")
		opening.open("alice")
		opening.expect("session.accepted")
		b.wantEvictions("a reload", "credential_revoked", 1)
		if n := b.sum("arcp_jobs", ""); n != 1 {
			t.Errorf("%v jobs, want the one of the evicted session to go on", n)
		}
		_ = alice.conn.Abort()
		b.resume(resume, 0).expect("session.resumed")
		synctest.Wait()
		if !strings.Contains(log.String(), `"logger":"audit","action":"evict","actor":"runtime","target":"`+string(bob.session)) {
			t.Errorf("no audit record of the eviction in\n%s", log.String())
		}
	})
}

// A reload that takes a role from a principal takes it from its sessions.
func TestReauthenticateRoles(t *testing.T) {
	var log bytes.Buffer
	logged := func(c *runtime.Config) { c.Log = zerolog.New(zerolog.SyncWriter(&log)) }
	inJWTBubble(t, "principals: [{name: alice, roles: [client]}]\n", logged, func(b *fixture, k *tokens) {
		p, _ := b.openJWT(k, time.Hour, "", "")
		p.submit("demo.echo", `{}`)
		p.until("job.completed")
		b.cfg.Auth.Reload(k.load("home", "principals: [{name: alice, roles: [observer]}]\n"))
		b.rt.Reauthenticate()
		synctest.Wait()
		p.send("tool.invoke", `{"tool":"demo.echo"}`)
		if e := refusal(t, p.expect("nack")); e.Code != arcp.CodePermissionDenied {
			t.Errorf("an observer: %+v", e)
		}
		synctest.Wait()
		denied := `"logger":"audit","action":"tool.invoke","actor":"alice","session_id":"` + string(p.session) + `","decision":"denied","reason":"role"`
		if n := strings.Count(log.String(), denied); n != 1 {
			t.Errorf("%d audit records of what an observer may not do, want 1 in\n%s", n, log.String())
		}
	})
}
