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

// renewed is session.accepted in answer to the named session.authenticate.
func renewed(name, token string) string {
	return fmt.Sprintf(`S: session.accepted corr=%s {"session_id":"sess_1","runtime":{"kind":"fake","version":"1"},"capabilities":{},"resume_token":%q,"resume_window_sec":60}
	`, name, token)
}

// newTokenSource returns bearer credentials new1, new2 and so on.
func newTokenSource() client.Options {
	opts, n := bearer, 0
	opts.Auth.Refresh = func(context.Context) (client.Secret, error) {
		n++
		return client.Secret(fmt.Sprintf("new%d", n)), nil
	}
	return opts
}

func TestRefreshIsOffered(t *testing.T) {
	for _, c := range []struct {
		why     string
		opts    client.Options
		payload string
	}{
		{"it is answered", bearer, `{"capabilities":{"refresh":true}}`},
		{"there is nothing to refresh", client.Options{}, `{"capabilities":{"anonymous":true}}`},
		{"the caller knows better", client.Options{Auth: bearer.Auth, Capabilities: arcp.Capabilities{
			Flags: map[arcp.Feature]bool{arcp.FeatureRefresh: false}}}, `{"capabilities":{"refresh":false}}`},
	} {
		t.Run(c.why, func(t *testing.T) {
			open(t, c.opts, "C open: session.open "+c.payload+"\nS: session.accepted corr=open "+accepted, func(t *testing.T, _ *client.Client, err error) {
				want(t, c.why, err, nil)
			})
		})
	}
}

// Without a new credential the client sends the current one.
func TestRefreshSendsACredential(t *testing.T) {
	scripted(t, bearer, `
		S: session.refresh {"deadline":"2030-01-01T00:00:00Z","challenge":"n"}
		C auth: session.authenticate {"auth":{"scheme":"bearer","token":"tok"}}
	`+renewed("auth", "rt_9"), func(t *testing.T, c *client.Client, _ *fake) {
		synctest.Wait()
		want(t, "the new token is taken over", c.Session().ResumeToken.Reveal(), "rt_9")
	})
}

// The client obtains a fresh credential for each session.refresh, also for one that arrives
// during a refresh.
func TestRefreshWithAFreshCredential(t *testing.T) {
	scripted(t, newTokenSource(), `
		S: session.refresh {"deadline":"2030-01-01T00:00:00Z"}
		C a: session.authenticate {"auth":{"scheme":"bearer","token":"new1"}}
		S: session.refresh corr=a {"deadline":"2030-01-01T00:00:00Z","challenge":"n1"}
		C b: session.authenticate {"auth":{"scheme":"bearer","token":"new2"}}
		S: session.unauthenticated corr=b {"code":"UNAUTHENTICATED","message":"wrong"}
		S: session.refresh corr=b {"deadline":"2030-01-01T00:00:00Z","challenge":"n2"}
		C c: session.authenticate {"auth":{"scheme":"bearer","token":"new3"}}
	`+renewed("c", "rt_9"), func(t *testing.T, c *client.Client, _ *fake) {
		synctest.Wait()
		want(t, "the new token is taken over", c.Session().ResumeToken.Reveal(), "rt_9")
	})
}

// The client does not send a third wrong answer, which would end the session early.
func TestRefreshRetriesAreLimited(t *testing.T) {
	refused := func(name string) string {
		return "C " + name + ": session.authenticate\n" +
			"S: session.unauthenticated corr=" + name + ` {"code":"UNAUTHENTICATED","message":"wrong"}` + "\n" +
			"S: session.refresh corr=" + name + ` {"deadline":"2030-01-01T00:00:00Z","challenge":"n"}` + "\n"
	}
	scripted(t, newTokenSource(), `
		S: session.refresh {"deadline":"2030-01-01T00:00:00Z","challenge":"n"}
	`+refused("a")+refused("b")+`
		wait 1m
		S: ping id=ping {"nonce":"n"}
		C pong: pong {"nonce":"n"}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		time.Sleep(2 * time.Minute)
		want(t, "the session goes on", c.Err(), nil)
	})
}

// A signed answer to a challenge is a credential itself.
func TestSignedAnswerIsACredential(t *testing.T) {
	opts := client.Options{Auth: client.Auth{Scheme: client.SignedJWT, Token: "old",
		Sign: func(challenge string) (string, error) { return "signed " + challenge, nil }}}
	scripted(t, opts, `
		S: session.refresh {"deadline":"2030-01-01T00:00:00Z","challenge":"n"}
		C a: session.authenticate {"response":"signed n","auth":null}
	`+renewed("a", "rt_9"), func(t *testing.T, c *client.Client, _ *fake) {
		synctest.Wait()
		want(t, "accepted", c.Session().ResumeToken.Reveal(), "rt_9")
	})
}

// After the credential has expired the resume token is invalid. The client opens the session by its id
// with a new credential, at the last position.
func TestReopenWithAFreshCredential(t *testing.T) {
	attempt := `C resume: session.resume {"resume_token":"rt_1","last_event_seq":2}
		S: session.rejected corr=resume {"code":"UNAUTHENTICATED","message":"the credential has expired"}
		close 1000`
	for _, end := range []string{"abort", `S: session.evicted {"code":"UNAUTHENTICATED","reason":"the credential has expired"}` + "\nclose 1008 evicted"} {
		connected(t, newTokenSource(), []string{resumable + invoked + end, attempt, `
			C open: session.open {"auth":{"scheme":"bearer","token":"new1"},"last_event_seq":2}
		` + renewed("open", "rt_2") + `
			S: job.progress job=job_1 corr=invoke seq=3 {"current":1}
			S: job.completed job=job_1 corr=invoke seq=4 {"value":7}
			abort`,
			resumed("rt_2", 4, "rt_3"),
		}, func(t *testing.T, c *client.Client, _ *dialer, seen *changes) {
			j, err := c.Invoke(t.Context(), echo)
			want(t, "invoke", err, nil)
			types, err := collect(t, j)
			want(t, "the iterator notices nothing", err, nil)
			want(t, "events", types, lifecycle)
			time.Sleep(time.Minute)
			want(t, "changes", seen.states(), []string{"reconnecting", "resumed", "reconnecting", "resumed"})
			want(t, "close", c.Close(t.Context(), ""), nil)
		})
	}
}

func TestExpiredCredentialIsNotReopened(t *testing.T) {
	gone := `C resume: session.resume
		S: session.rejected corr=resume {"code":"UNAUTHENTICATED","message":"the credential has expired"}
		close 1000`
	broken := bearer
	broken.Auth.Refresh = func(context.Context) (client.Secret, error) { return "", errors.New("no token today") }
	for _, c := range []struct {
		why     string
		opts    client.Options
		next    string
		dials   int
		message string
	}{
		{"no fresh credential is to be had", bearer, gone, 2, "the credential has expired"},
		{"the session has ended", newTokenSource(), `
			C open: session.open
			S: session.accepted corr=open {"session_id":"sess_2","runtime":{"kind":"fake","version":"1"},"capabilities":{}}
			C close: session.close {"forget":true}`, 3, "the runtime opened another"},
		{"the fresh one is refused", newTokenSource(), `
			C open: session.open
			S: session.rejected corr=open {"code":"UNAUTHENTICATED","message":"still not good"}`, 3, "still not good"},
	} {
		t.Run(c.why, func(t *testing.T) {
			connected(t, c.opts, []string{resumable + "abort", gone, c.next}, func(t *testing.T, cl *client.Client, d *dialer, seen *changes) {
				<-cl.Done()
				synctest.Wait()
				wantIs(t, c.why, cl.Err(), client.ErrSessionLost)
				want(t, "in words: "+cl.Err().Error(), strings.Contains(cl.Err().Error(), c.message), true)
				want(t, "attempts", len(d.times()), c.dials)
			})
		})
	}
	t.Run("as long as there is none it tries again", func(t *testing.T) {
		connected(t, broken, []string{resumable + "abort", gone, gone, gone}, func(t *testing.T, cl *client.Client, d *dialer, _ *changes) {
			<-cl.Done()
			want(t, "in words: "+cl.Err().Error(), strings.Contains(cl.Err().Error(), "nobody listens"), true)
		})
	})
}

// A client evicted for silence reconnects.
func TestResumeAfterTheLease(t *testing.T) {
	connected(t, bearer, []string{
		resumable + `S: session.evicted {"code":"LEASE_EXPIRED","reason":"no frame received"}` + "\nclose 1008 evicted",
		resumed("rt_1", 0, "rt_2"),
	}, func(t *testing.T, c *client.Client, _ *dialer, seen *changes) {
		time.Sleep(time.Minute)
		want(t, "changes", seen.states(), []string{"reconnecting", "resumed"})
	})
}
