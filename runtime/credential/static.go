package credential

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// poolRetry is the number of seconds after which a client may retry when a pool is exhausted.
const poolRetry = 5

// StaticPool assigns each value of a file to at most one job at a time. Revoke only makes a value
// free: it stays valid upstream. A StaticPool is for endpoints that cannot create credentials.
type StaticPool struct {
	endpoint, profile string
	values            []Secret
	handles           []string // of the values

	mu   sync.Mutex
	used map[string]holder // by handle
	next int               // index behind the value that was assigned last
}

// holder is the job and generation that use a value. During a rotation a job uses two values.
type holder struct {
	job        arcp.JobID
	generation int
}

// OpenStaticPool reads the values, one a line, from a file that only its owner has
// access to. The file is read once.
func OpenStaticPool(file, endpoint, profile string) (*StaticPool, error) {
	data, err := readPrivate(file)
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	p := &StaticPool{endpoint: endpoint, profile: profile, used: make(map[string]holder)}
	seen := make(map[string]bool)
	for n, line := range lines(data) {
		value := string(line)
		h := handle(value)
		c := Credential{Value: Secret(value), Endpoint: endpoint, Profile: profile, Upstream: h}
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("file: line %d: %w", n, err)
		}
		if seen[h] {
			return nil, fmt.Errorf("file: line %d: duplicate value: remove one, or two jobs share it", n)
		}
		seen[h] = true
		p.values, p.handles = append(p.values, Secret(value)), append(p.handles, h)
	}
	if len(p.values) == 0 {
		return nil, errors.New("file: no value: write one on each line")
	}
	return p, nil
}

// handle returns a name of a value that does not reveal it.
func handle(value string) string {
	hash := sha256.Sum256([]byte("arcp pool\x00" + value))
	return "sha256:" + hex.EncodeToString(hash[:12])
}

// Issue assigns a free value to a job and generation. It returns RESOURCE_EXHAUSTED if no
// value is free.
func (p *StaticPool) Issue(_ context.Context, r Request) ([]Credential, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := holder{r.Job, max(1, r.Generation)}
	free := -1
	for k := range p.values {
		i := (p.next + k) % len(p.values)
		switch h, used := p.used[p.handles[i]]; {
		case used && h == own:
			return p.credentialsOf(i), nil
		case !used && free < 0:
			free = i
		}
	}
	if free < 0 {
		return nil, refuse(arcp.Errorf(arcp.CodeResourceExhausted, "all credentials for this tool are in use").RetryAfter(poolRetry))
	}
	p.used[p.handles[free]] = own
	p.next = free + 1
	return p.credentialsOf(free), nil
}

func (p *StaticPool) credentialsOf(i int) []Credential {
	return []Credential{{Value: p.values[i], Endpoint: p.endpoint, Profile: p.profile, Upstream: p.handles[i]}}
}

// Revoke returns a job's credentials to the pool.
func (p *StaticPool) Revoke(_ context.Context, ref Ref) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for h, holder := range p.used {
		if holder.job == ref.Job && (ref.Upstream == "" || ref.Upstream == h) {
			delete(p.used, h)
		}
	}
	return nil
}

// Restore marks the credentials of an earlier process's jobs as used.
func (p *StaticPool) Restore(refs []Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ref := range refs {
		if ref.Upstream != "" {
			p.used[ref.Upstream] = holder{ref.Job, max(1, ref.Generation)}
		}
	}
}
