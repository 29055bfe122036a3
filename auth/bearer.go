package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
)

// bearer finds tokens by their SHA-256 (SPEC.md §5.1). The time of the lookup reveals nothing, because a
// peer cannot choose the hash of a secret that it does not know.
type bearer struct {
	holders map[[sha256.Size]byte]holder
	byName  map[string]*principal
	rounds  int // HMACs for each answer: the largest number of tokens of a principal
}

// newBearer returns nil if no principal has a token.
func newBearer(c *Config) *bearer {
	if c.holders == nil {
		return nil
	}
	b := &bearer{holders: c.holders.byHash, byName: c.principals}
	for _, p := range c.principals {
		b.rounds = max(b.rounds, len(p.tokens))
	}
	return b
}

func (*bearer) Scheme() string { return Bearer }

func (b *bearer) Authenticate(_ context.Context, r Request) (Identity, error) {
	h, err := b.find(r.Token)
	if err != nil {
		return Identity{}, err
	}
	return h.identity(), nil
}

// Verify takes the same time whether or not the principal exists.
func (b *bearer) Verify(_ context.Context, r Request, p Proof) (Identity, error) {
	if r.Token == "" {
		return b.verifyNamed(r.Principal, p)
	}
	h, err := b.find(r.Token)
	if err != nil {
		return Identity{}, err
	}
	if b.answered(p, h.hash) != 0 {
		return Identity{}, wrongAnswer(nil)
	}
	return h.identity(), nil
}

// verifyNamed verifies a client without a token. Any token of the principal may be the key of the
// answer.
func (b *bearer) verifyNamed(name string, p Proof) (Identity, error) {
	owner := b.byName[name]
	if owner == nil {
		owner = new(principal)
	}
	key := b.answered(p, owner.tokens...)
	if key < 0 {
		return Identity{}, wrongAnswer(nil)
	}
	return holder{owner.tokens[key], owner}.identity(), nil
}

func (b *bearer) find(token Secret) (holder, error) {
	if token == "" {
		return holder{}, missingToken(Bearer)
	}
	hash := HashToken(token)
	h, ok := b.holders[hash]
	if subtle.ConstantTimeCompare(h.hash[:], hash[:]) != 1 || !ok {
		return holder{}, &Error{Reason: ReasonUnknown, Message: "unknown bearer token"}
	}
	return h, nil
}

// identity returns the identity of a session authenticated with the token.
func (h holder) identity() Identity {
	id := h.principal.as(Bearer)
	id.TokenFingerprint = tokenFingerprint(h.hash)
	return id
}

// tokenFingerprint identifies a token in a stored session. The hash of the token itself is the key of its
// challenges and must not be stored there.
func tokenFingerprint(hash [sha256.Size]byte) Secret { return Secret(fingerprint("token", hash[:])) }

func fingerprint(kind string, secret []byte) string {
	sum := sha256.Sum256(append([]byte("arcp "+kind+" of a session\x00"), secret...))
	return hex.EncodeToString(sum[:])
}

// answered returns the index of the key that made the response; -1 for none. It computes b.rounds
// HMACs for any number of keys.
func (b *bearer) answered(p Proof, keys ...[sha256.Size]byte) int {
	var none [sha256.Size]byte
	found := -1
	for i := range b.rounds {
		key, real := none, 0
		if i < len(keys) {
			key, real = keys[i], 1
		}
		want := challengeResponse(key, p.Challenge)
		right := real & subtle.ConstantTimeCompare(want[:], []byte(p.Response))
		found = subtle.ConstantTimeSelect(right, i, found)
	}
	return found
}
