package resourceservice

import (
	"bytes"
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/resources"
)

// Bounds of the arguments and details of a principal that one scan searches for the names of
// leases. The search takes about 0.1 s. If a principal has more, all its leases count as named.
const (
	maxNamedBytes = 16 << 20
	unescapeBytes = 200 // counted in addition for a string with escapes

	// maxNameText is the length of the longest name with each byte as \u00xx.
	maxNameText = 6*max(resources.MaxExternalID, arcp.MaxIDLen) + 2
)

// namedLeases returns the leases that are named. A lease is named if the job that acquired it lives. It
// is also named if its lease_id or external_id is a string in the arguments of a live job, or in
// the details of a pending question, of its principal.
func (s *Service) namedLeases(ctx context.Context, due []resources.Lease) (map[arcp.LeaseID]bool, error) {
	n := newNameSearch(due)
	s.engine.EachLive(func(principal string, id arcp.JobID, args arcp.Raw) bool {
		n.add(n.byJob[id])
		n.search(principal, args)
		return ctx.Err() == nil
	})
	s.opts.Questions.EachPending(n.search)
	return n.found, context.Cause(ctx)
}

// nameSearch searches JSON values for the names of leases.
type nameSearch struct {
	byName map[string]map[string][]arcp.LeaseID // by principal and name
	byJob  map[arcp.JobID][]arcp.LeaseID        // by the job that acquired the lease
	bytes  map[string]int                       // searched so far, by principal
	found  map[arcp.LeaseID]bool
}

func newNameSearch(due []resources.Lease) *nameSearch {
	n := &nameSearch{byName: make(map[string]map[string][]arcp.LeaseID), byJob: make(map[arcp.JobID][]arcp.LeaseID),
		bytes: make(map[string]int), found: make(map[arcp.LeaseID]bool)}
	for i := range due {
		l := &due[i]
		if l.Job != "" {
			n.byJob[l.Job] = append(n.byJob[l.Job], l.ID)
		}
		own := n.byName[l.Principal]
		if own == nil {
			own = make(map[string][]arcp.LeaseID)
			n.byName[l.Principal] = own
		}
		own[string(l.ID)] = append(own[string(l.ID)], l.ID)
		own[l.ExternalID] = append(own[l.ExternalID], l.ID)
	}
	return n
}

// search searches a value of a principal.
func (n *nameSearch) search(principal string, raw arcp.Raw) {
	if n.byName[principal] == nil {
		return
	}
	if n.count(principal, len(raw)) {
		eachString(raw, func(text []byte, plain bool) bool { return n.searchString(principal, text, plain) })
	}
}

// searchString compares a string of a principal with the names. It returns false at the bound of
// the search.
func (n *nameSearch) searchString(principal string, text []byte, plain bool) bool {
	own := n.byName[principal]
	switch {
	case len(text) > maxNameText:
		return true
	case plain:
		n.add(own[string(text[1:len(text)-1])])
		return true
	case !n.count(principal, unescapeBytes):
		return false
	}
	var s string
	if arcp.Unmarshal(text, &s) == nil { // the runtime has validated it before
		n.add(own[s])
	}
	return true
}

// count counts bytes of a principal. If there are too many, it adds all leases of the principal and
// returns false.
func (n *nameSearch) count(principal string, bytes int) bool {
	if n.bytes[principal] += bytes; n.bytes[principal] <= maxNamedBytes {
		return true
	}
	for _, ids := range n.byName[principal] {
		n.add(ids)
	}
	return false
}

// add adds named leases.
func (n *nameSearch) add(ids []arcp.LeaseID) {
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
		if end == 0 || !fn(rest[:end], plain) { // 0: the runtime has validated it before
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
