package registryservice

import (
	"bytes"
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/registry"
)

// Bounds of the arguments and details of a principal that one scan searches for the names of
// leases: about 0.1 s. If a principal has more, all its leases count as named.
const (
	maxNamedBytes = 16 << 20
	unescapeBytes = 200 // added for a string with escapes, which takes longer

	// maxNameText is the length of the longest name with each byte as \u00xx.
	maxNameText = 6*max(registry.MaxExternalID, arcp.MaxIDLen) + 2
)

// named returns the leases that are named. A lease is named if the job that acquired it lives. It
// is also named if its lease_id or external_id is a string in the arguments of a live job, or in
// the details of a pending question, of its principal.
func (s *Service) named(ctx context.Context, due []registry.Lease) (map[arcp.LeaseID]bool, error) {
	n := newNames(due)
	s.engine.EachLive(func(principal string, id arcp.JobID, args arcp.Raw) bool {
		n.name(n.by[id])
		n.read(principal, args)
		return ctx.Err() == nil
	})
	s.opts.Questions.EachPending(n.read)
	return n.found, context.Cause(ctx)
}

// names searches JSON values for the names of leases.
type names struct {
	of    map[string]map[string][]arcp.LeaseID // by principal and name
	by    map[arcp.JobID][]arcp.LeaseID        // by the job that acquired them
	bytes map[string]int                       // searched, by principal
	found map[arcp.LeaseID]bool
}

func newNames(due []registry.Lease) *names {
	n := &names{of: make(map[string]map[string][]arcp.LeaseID), by: make(map[arcp.JobID][]arcp.LeaseID),
		bytes: make(map[string]int), found: make(map[arcp.LeaseID]bool)}
	for i := range due {
		l := &due[i]
		if l.Job != "" {
			n.by[l.Job] = append(n.by[l.Job], l.ID)
		}
		own := n.of[l.Principal]
		if own == nil {
			own = make(map[string][]arcp.LeaseID)
			n.of[l.Principal] = own
		}
		own[string(l.ID)] = append(own[string(l.ID)], l.ID)
		own[l.ExternalID] = append(own[l.ExternalID], l.ID)
	}
	return n
}

// read searches a value of a principal.
func (n *names) read(principal string, raw arcp.Raw) {
	if n.of[principal] == nil {
		return
	}
	if n.spend(principal, len(raw)) {
		eachString(raw, func(text []byte, plain bool) bool { return n.readString(principal, text, plain) })
	}
}

// readString compares a string of a principal; false ends the search.
func (n *names) readString(principal string, text []byte, plain bool) bool {
	own := n.of[principal]
	switch {
	case len(text) > maxNameText:
		return true
	case plain:
		n.name(own[string(text[1:len(text)-1])])
		return true
	case !n.spend(principal, unescapeBytes):
		return false
	}
	var s string
	if arcp.Unmarshal(text, &s) == nil { // it was valid when it came
		n.name(own[s])
	}
	return true
}

// spend counts bytes of a principal. If there are too many it names all leases of the principal
// and returns false.
func (n *names) spend(principal string, bytes int) bool {
	if n.bytes[principal] += bytes; n.bytes[principal] <= maxNamedBytes {
		return true
	}
	for _, ids := range n.of[principal] {
		n.name(ids)
	}
	return false
}

func (n *names) name(ids []arcp.LeaseID) {
	for _, id := range ids {
		n.found[id] = true
	}
}

// eachString calls fn for every encoded string of a JSON value, also for names of
// members, until it returns false; plain reports that it has no escapes.
func eachString(raw arcp.Raw, fn func(text []byte, plain bool) bool) {
	for rest := []byte(raw); ; {
		begin := bytes.IndexByte(rest, '"')
		if begin < 0 {
			return
		}
		rest = rest[begin:]
		end, plain := stringEnd(rest)
		if end == 0 || !fn(rest[:end], plain) { // 0: it was valid when it came
			return
		}
		rest = rest[end:]
	}
}

// stringEnd returns the length of the JSON string at the start of text, 0 if it has no end. plain
// reports that it has no escapes.
func stringEnd(text []byte) (end int, plain bool) {
	plain = true
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i + 1, plain
		case '\\':
			plain = false
			i++
		}
	}
	return 0, false
}
