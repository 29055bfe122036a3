package lease

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of one lease.
const (
	MaxKeys     = 100
	MaxPatterns = 1000 // of all keys together
	MaxAmounts  = 32
)

// Request has the lease members of a submit as received. An absent member requests nothing.
type Request struct {
	Lease       arcp.Raw               // lease_request
	Constraints *arcp.LeaseConstraints // lease_constraints
	CostBudget  []string               // cost_budget of the payload, an alternative to cost.budget in the lease
}

// Parse decodes a request. It accepts every spelling of a namespace; the values of two spellings
// must be equal. The earlier of two expiries counts, truncated to microseconds.
//
// The error is INVALID_REQUEST and names the key: the lease is malformed or above a bound, or its
// expiry is not after now or not in UTC.
func Parse(now time.Time, r Request) (*Lease, *arcp.Error) {
	if len(r.Lease) > MaxRequest {
		return nil, arcp.Errorf(arcp.CodeInvalidRequest, "lease: it may have at most %d bytes, not %d", MaxRequest, len(r.Lease))
	}
	l, err := decode(r.Lease, r.CostBudget)
	if err != nil {
		return nil, arcp.Errorf(arcp.CodeInvalidRequest, "%v", err)
	}
	if r.Constraints != nil {
		if err := CheckZone(r.Constraints); err != nil {
			return nil, err
		}
		l.expires = earlier(l.expires, toMicroseconds(r.Constraints.ExpiresAt))
	}
	if !l.expires.IsZero() && !l.expires.After(now) {
		return nil, arcp.Errorf(arcp.CodeInvalidRequest, "lease: expires_at %s is not in the future",
			l.expires.Format(time.RFC3339Nano))
	}
	return l, nil
}

// Decode decodes the result of Encode, or the lease of a principal. The expiry may have passed.
func Decode(raw arcp.Raw) (*Lease, error) { return decode(raw, nil) }

var errZone = errors.New("the time must be in UTC, as 2026-01-02T15:04:05Z is")

// CheckZone returns INVALID_REQUEST if the expiry was not received in UTC.
func CheckZone(c *arcp.LeaseConstraints) *arcp.Error {
	if c == nil || isUTC(c.ExpiresAt) {
		return nil
	}
	return arcp.Errorf(arcp.CodeInvalidRequest, "lease_constraints: expires_at: %v", errZone)
}

// isUTC reports whether a time is in UTC; the zero time is.
func isUTC(t time.Time) bool {
	_, offset := t.Zone()
	return offset == 0
}

// earlier returns the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// toMicroseconds returns t in UTC, truncated to microseconds.
func toMicroseconds(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

func decode(raw arcp.Raw, costBudget []string) (*Lease, error) {
	var members map[string]arcp.Raw
	if len(raw) > 0 {
		if err := arcp.Unmarshal(raw, &members); err != nil {
			return nil, fmt.Errorf("lease: an object of arrays is required")
		}
	}
	if len(members) > MaxKeys {
		return nil, fmt.Errorf("lease: more than %d keys", MaxKeys)
	}
	r := leaseReader{lists: map[string][]string{}, spelling: map[string]string{}}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if err := r.member(key, members[key]); err != nil {
			return nil, fmt.Errorf("lease: %s: %w", quote(key), err)
		}
	}
	if costBudget != nil {
		if err := r.list(arcp.NamespaceCostBudget, "cost_budget beside the lease", costBudget); err != nil {
			return nil, fmt.Errorf("lease: cost_budget: %w", err)
		}
	}
	return r.lease()
}

var errPatterns = fmt.Errorf("more than %d patterns in all", MaxPatterns)

// leaseReader collects the members of a lease.
type leaseReader struct {
	lists    map[string][]string // by dotted key
	spelling map[string]string   // received spelling of each key of lists
	expires  time.Time
	patterns int
}

func (r *leaseReader) member(key string, raw arcp.Raw) error {
	switch {
	case key == keyCapabilities:
		return nil
	case key == keyExpires:
		return r.expiry(raw)
	case !arcp.ValidID(key):
		return fmt.Errorf("a key is 1 to %d visible ASCII characters", arcp.MaxIDLen)
	}
	var list []string
	if raw.Kind() != '[' || arcp.Unmarshal(raw, &list) != nil {
		return fmt.Errorf("an array of strings is required")
	}
	return r.list(canonicalNamespace(key), key, list)
}

func (r *leaseReader) expiry(raw arcp.Raw) error {
	if raw.Kind() == 'n' {
		return nil
	}
	var t time.Time
	if raw.Kind() != '"' || arcp.Unmarshal(raw, &t) != nil || t.IsZero() {
		return fmt.Errorf("a time as in 2026-01-02T15:04:05Z is required")
	}
	if !isUTC(t) {
		return errZone
	}
	r.expires = toMicroseconds(t)
	return nil
}

// list adds the patterns or amounts of a namespace in one spelling.
func (r *leaseReader) list(namespace, spelling string, list []string) error {
	if len(list) > MaxPatterns {
		return errPatterns
	}
	if before, twice := r.lists[namespace]; twice {
		if !sameValues(namespace, before, list) {
			return fmt.Errorf("it differs from %s, which means the same key", quote(r.spelling[namespace]))
		}
		return nil
	}
	switch {
	case namespace != arcp.NamespaceCostBudget:
		if r.patterns += len(list); r.patterns > MaxPatterns {
			return errPatterns
		}
	case len(list) > MaxAmounts:
		return fmt.Errorf("more than %d amounts", MaxAmounts)
	}
	r.lists[namespace], r.spelling[namespace] = list, spelling
	return nil
}

// sameValues reports whether two lists have the same values in any order.
func sameValues(namespace string, a, b []string) bool {
	return maps.Equal(canonicalList(namespace, a), canonicalList(namespace, b))
}

// canonicalList returns the canonical patterns of a list, or the sum for each currency. It keeps
// malformed entries, which are refused later.
func canonicalList(namespace string, list []string) map[string]string {
	m := map[string]string{}
	if namespace == arcp.NamespaceCostBudget {
		if sums, err := sum(list); err == nil {
			for _, a := range sums {
				m[strings.ToLower(a.currency)] = a.reduced()
			}
			return m
		}
	}
	for _, s := range list {
		if p, err := compile(namespace, s); err == nil {
			s = p.text
		}
		m[s] = ""
	}
	return m
}

// lease returns the lease of the collected members.
func (r *leaseReader) lease() (*Lease, error) {
	l := &Lease{expires: r.expires}
	for _, ns := range slices.Sorted(maps.Keys(r.lists)) {
		err := error(nil)
		if ns == arcp.NamespaceCostBudget {
			l.budget, err = sum(r.lists[ns])
		} else {
			var p permission
			p, err = compileAll(ns, r.lists[ns])
			l.permissions = append(l.permissions, p)
		}
		if err != nil {
			return nil, fmt.Errorf("lease: %s: %w", quote(r.spelling[ns]), err)
		}
	}
	return l, nil
}

// compileAll compiles the patterns of a namespace without duplicates.
func compileAll(namespace string, list []string) (permission, error) {
	p := permission{namespace: namespace}
	seen := make(map[string]bool, len(list))
	for _, s := range list {
		if len(s) > MaxPattern {
			return p, errLong
		}
		pat, err := compile(namespace, s)
		if err != nil {
			return p, fmt.Errorf("%s cannot be a pattern: %w", quote(s), err)
		}
		if !seen[pat.text] {
			seen[pat.text] = true
			p.patterns = append(p.patterns, pat)
		}
	}
	return p, nil
}
