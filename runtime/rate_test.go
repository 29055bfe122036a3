package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
)

// authFile is a configuration in which alice has a rate and bob has none.
func authFile(t *testing.T, perMin int) *auth.Config {
	t.Helper()
	name := filepath.Join(t.TempDir(), "auth.yaml")
	text := fmt.Sprintf("principals:\n  - {name: alice, tokens: [%q], limits: {rate_per_min: %d}}\n  - {name: bob, tokens: [%q]}\n",
		auth.FileHash("alice-"+token), perMin, auth.FileHash("bob-"+token))
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := auth.Load(name, auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// served sends n requests and counts those that are not refused; a refusal names limit.
func (p *peer) served(n, limit int) (served int) {
	p.Helper()
	for range n {
		p.send("session.list_jobs", "{}")
		env := p.read()
		if env.Type == arcp.SessionJobs {
			served++
			continue
		}
		e := refusal(p.T, env)
		if want := fmt.Sprintf("more than %d messages", limit); e.Code != arcp.CodeResourceExhausted || !strings.HasPrefix(e.Message, want) {
			p.Errorf("refused with %+v, want RESOURCE_EXHAUSTED and %q", e, want)
		}
	}
	return served
}

// The rate of a principal in the auth file counts for all its connections together, also after
// a resume, and for no other principal.
func TestRateOfAPrincipal(t *testing.T) {
	const burst = 3 // of 120 a minute
	var set *auth.Set
	inBubble(t, func(c *runtime.Config) {
		set = auth.NewSet(authFile(t, 120))
		c.Auth = set
	}, func(b *fixture) {
		p, resume := b.dialToken("alice")
		q, other := b.dial("alice"), b.dial("bob")
		if n := p.served(burst, 120); n != burst {
			t.Errorf("%d of the first %d were served", n, burst)
		}
		if n := q.served(1, 120); n != 0 {
			t.Error("each connection has a rate of its own")
		}
		if n := other.served(100, 0); n != 100 {
			t.Errorf("%d of 100 were served to somebody without a rate", n)
		}
		q.send("ping", "{}")
		q.expect("pong")
		_ = p.conn.Abort()
		synctest.Wait()
		p = b.resume(resume, 0)
		p.expect("session.resumed")
		began := time.Now()
		n := p.served(10, 120) + q.served(10, 120)
		if most := burst + 1 + 2*int(time.Since(began)/time.Second+1); n > most || n == 0 {
			t.Errorf("%d were served in %v at two a second", n, time.Since(began))
		}

		set.Reload(authFile(t, 60_000))
		time.Sleep(2 * time.Second)
		third := b.dial("alice")
		time.Sleep(time.Second)
		if n := third.served(400, 0) + p.served(400, 0); n != 800 {
			t.Errorf("%d of 800 were served after the rate was raised", n)
		}
	})
}

// Of the rate of every connection and the principal's the smaller one counts.
func TestTheSmallerRate(t *testing.T) {
	for _, rates := range []struct{ connection, principal int }{{60, 600}, {600, 60}} {
		inBubble(t, func(c *runtime.Config) {
			c.Rate, c.Auth = rates.connection, auth.NewSet(authFile(t, rates.principal))
		}, func(b *fixture) {
			if n := b.dial("alice").served(3, 60); n != 2 {
				t.Errorf("%+v: %d of 3 at once were served, want 2", rates, n)
			}
		})
	}
}
