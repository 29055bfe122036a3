package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

const accepted = `{"session_id":"sess_1","runtime":{"kind":"fake","version":"1"},"capabilities":{}}`

// open runs New against a script.
func open(t *testing.T, opts client.Options, script string, check func(t *testing.T, c *client.Client, err error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		conn, f := start(t, script)
		defer f.conn.Abort()
		c, err := client.New(t.Context(), conn, opts)
		if c != nil {
			defer c.Abort()
		}
		check(t, c, err)
	})
}

func TestOpenSendsTheOptions(t *testing.T) {
	open(t, bearer, `
		C open: session.open {"auth":{"scheme":"bearer","token":"tok"},"client":{"kind":"arcp-go-client","version":"1.1"}}
		S: session.accepted corr=open {"session_id":"sess_9","runtime":{"kind":"fake","version":"1","trust_level":"trusted"},"capabilities":{"streaming":true},"lease":{"expires_at":"2030-01-01T00:00:00Z"},"resume_token":"rt_1","resume_window_sec":600,"heartbeat_interval_sec":30}
	`, func(t *testing.T, c *client.Client, err error) {
		if err != nil {
			t.Fatal(err)
		}
		s := c.Session()
		want(t, "session id", s.ID, "sess_9")
		want(t, "resume token", s.ResumeToken.Reveal(), "rt_1")
		want(t, "resume window", s.ResumeWindow, 600*time.Second)
		want(t, "heartbeat", s.Heartbeat, 30*time.Second)
		want(t, "negotiated", s.Capabilities.Has(arcp.FeatureStreaming), true)
		want(t, "expires", s.ExpiresAt.Year(), 2030)
		want(t, "a session must not print its token", strings.Contains(fmt.Sprintf("%v %+v %#v", s, s, s), "rt_1"), false)
	})
}

func TestOpenWithoutCredentialsOffersAnonymous(t *testing.T) {
	open(t, client.Options{}, `
		C open: session.open {"auth":{"scheme":"none"},"capabilities":{"anonymous":true}}
		S: session.accepted corr=open `+accepted, func(t *testing.T, _ *client.Client, err error) {
		want(t, "accepted", err, nil)
	})
}

func TestOpenAnswersChallenge(t *testing.T) {
	t.Run("bearer", func(t *testing.T) {
		// hex(HMAC-SHA256(SHA-256("tok"), "nonce-1"))
		open(t, bearer, `
			C open: session.open
			S: session.challenge corr=open session=sess_7 {"challenge":"nonce-1"}
			C auth: session.authenticate {"response":"196a23d63abb51d97214ae0177a01e687a6c60fb41cef6a9b11ac5659ed1ec4e"}
			S: session.accepted corr=auth `+accepted, func(t *testing.T, _ *client.Client, err error) {
			want(t, "accepted", err, nil)
		})
	})
	t.Run("signed_jwt", func(t *testing.T) {
		sign := func(challenge string) (string, error) { return "signed " + challenge, nil }
		open(t, client.Options{Auth: client.Auth{Scheme: client.SignedJWT, Token: "jwt", Sign: sign}}, `
			C open: session.open {"auth":{"scheme":"signed_jwt","token":"jwt"}}
			S: session.challenge corr=open {"challenge":"n"}
			C auth: session.authenticate {"response":"signed n"}
			S: session.accepted corr=auth `+accepted, func(t *testing.T, _ *client.Client, err error) {
			want(t, "accepted", err, nil)
		})
	})
	t.Run("not possible", func(t *testing.T) {
		open(t, client.Options{Auth: client.Auth{Scheme: client.SignedJWT, Token: "jwt"}}, `
			C open: session.open
			S: session.challenge corr=open {"challenge":"n"}
		`, func(t *testing.T, _ *client.Client, err error) {
			want(t, "error", fmt.Sprint(err), "open session: answer challenge: Options.Auth.Sign is not set")
		})
	})
}

func TestRejectedOpenIsARemoteError(t *testing.T) {
	open(t, bearer, `
		C open: session.open
		S: session.rejected corr=open {"code":"UNAUTHENTICATED","message":"unknown bearer token"}
	`, func(t *testing.T, _ *client.Client, err error) {
		e := wantAs[*client.RemoteError](t, "a rejection is the runtime's word", err)
		want(t, "code", e.Code, arcp.CodeUnauthenticated)
		want(t, "text", err.Error(), "open session: session.rejected: UNAUTHENTICATED: unknown bearer token")
	})
}

func TestOpenUnauthenticatedThenAccepted(t *testing.T) {
	attempts := 0
	opts := client.Options{Auth: client.Auth{Token: "old", Retry: func(attempt int, refusal *client.RemoteError) (client.Secret, error) {
		attempts++
		want(t, "attempt", attempt, attempts)
		want(t, "code", refusal.Code, arcp.CodeUnauthenticated)
		return "new", nil
	}}}
	const refusal = `{"code":"UNAUTHENTICATED","message":"no"}`
	open(t, opts, `
		C one: session.open {"auth":{"token":"old"}}
		S: session.unauthenticated corr=one `+refusal+`
		C two: session.open {"auth":{"token":"new"}}
		S: session.challenge corr=two {"challenge":"n"}
		C three: session.authenticate
		S: session.unauthenticated corr=three `+refusal+`
		C four: session.authenticate
		S: session.accepted corr=four `+accepted, func(t *testing.T, _ *client.Client, err error) {
		want(t, "accepted after the second retry", err, nil)
	})
	open(t, bearer, `
		C one: session.open
		S: session.unauthenticated corr=one `+refusal, func(t *testing.T, _ *client.Client, err error) {
		wantAs[*client.RemoteError](t, "without Retry the refusal is final", err)
	})
}

func TestOpenRefusesAnUnexpectedAnswer(t *testing.T) {
	for name, c := range map[string]struct{ script, text string }{
		"something else first": {`
			C open: session.open
			S: log {"level":"info","message":"x"}`, "open session: handshake: unexpected log"},
		"another correlation": {`
			C open: session.open
			S: session.accepted corr=msg_other ` + accepted, "session.accepted is correlated to msg_other"},
		"not an envelope": {`
			C open: session.open
			raw {"arcp":"1.1"}`, `open session: read: envelope member "id" is required`},
		"payload of another type": {`
			C open: session.open
			S: session.accepted corr=open {"session_id":7}`, `session.accepted: payload member "session_id"`},
	} {
		t.Run(name, func(t *testing.T) {
			open(t, bearer, c.script, func(t *testing.T, _ *client.Client, err error) {
				wantAs[*client.ProtocolError](t, "kind", err)
				if !strings.Contains(err.Error(), c.text) {
					t.Errorf("got %q, want %q in it", err, c.text)
				}
			})
		})
	}
}

func TestOpenConnectionLost(t *testing.T) {
	for name, script := range map[string]string{
		"before a word":     `abort`,
		"after the open":    "C open: session.open\nabort",
		"by the challenged": "C open: session.open\nS: session.challenge corr=open {\"challenge\":\"n\"}\nclose 1008",
	} {
		t.Run(name, func(t *testing.T) {
			open(t, bearer, script, func(t *testing.T, _ *client.Client, err error) {
				wantIs(t, "kind", err, client.ErrConnectionLost)
			})
		})
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, f := start(t, "C open: session.open\nhang")
		defer f.conn.Abort()
		reason := errors.New("changed my mind")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, reason)
		defer cancel()
		_, err := client.New(ctx, conn, bearer)
		wantIs(t, "why New returned", err, reason)
		_, err = conn.Read()
		want(t, "New closes its connection", err != nil, true)
	})
}

func TestResumeContinuesJobsAndEvents(t *testing.T) {
	last := uint64(40)
	opts := client.Options{Resume: &client.Resume{SessionID: "sess_1", Token: "rt_1", LastEventSeq: &last, Jobs: []arcp.JobID{"job_1"}}}
	open(t, opts, `
		C resume: session.resume {"resume_token":"rt_1","last_event_seq":40}
		S: session.resumed corr=resume {"session_id":"sess_1","resume_token":"rt_2","replayed_from":40,"replayed":true}
		S: job.progress job=job_1 seq=41 {"current":1}
		S: job.completed job=job_1 seq=42 {"value":7}
	`, func(t *testing.T, c *client.Client, err error) {
		if err != nil {
			t.Fatal(err)
		}
		j, ok := c.Job("job_1")
		if ok { // else the outcome has come already
			got, err := j.Wait(t.Context())
			want(t, "outcome", string(got.Value), "7")
			want(t, "error", err, nil)
		}
		want(t, "rotated token", c.Session().ResumeToken.Reveal(), "rt_2")
		want(t, "resumed", c.Session().Resumed, true)
	})
}

func TestOpenAttachesToASessionWithoutAToken(t *testing.T) {
	opts := bearer
	opts.Resume = &client.Resume{SessionID: "sess_1"}
	open(t, opts, `
		C open: session.open
		S: session.accepted corr=open `+accepted+`
		S: log job=job_9 seq=18 {"level":"info","message":"x"}
		S: log job=job_9 seq=19 {"level":"info","message":"x"}
	`, func(t *testing.T, c *client.Client, err error) {
		want(t, "accepted", err, nil)
		synctest.Wait()
		want(t, "the first number may be any, because the runtime chose it", c.LastEventSeq(), 19)
		want(t, "still connected", c.Err(), nil)
	})
}
