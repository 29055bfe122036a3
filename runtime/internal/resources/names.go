package resources

import (
	"bytes"
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/registry"
)

// Bounds of the arguments and details of a principal that are looked through in one
// go for the names of leases: about a tenth of a second's work. Of a principal that
// has more, every lease is named.
const (
	maxNamedBytes = 16 << 20
	unescapeBytes = 200 // what a string with escapes counts more: it takes as long as these

	// No name of a lease is longer when it is written as JSON, each byte as \u00xx.
	maxNameText = 6*max(registry.MaxExternalID, arcp.MaxIDLen) + 2
)

// named says which leases are named by somebody: the job that has taken it lives,
// or a string in the arguments of a job that lives, or in the details of a pending
// question, of the lease's principal is its lease_id or external_id.
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

// names looks for the names of leases.
type names struct {
	of    map[string]map[string][]arcp.LeaseID // by principal and name
	by    map[arcp.JobID][]arcp.LeaseID        // by the job that has taken them
	bytes map[string]int                       // looked through, of each, as they count
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

// read looks through what a principal has written.
func (n *names) read(principal string, raw arcp.Raw) {
	if n.of[principal] == nil {
		return
	}
	if n.spend(principal, len(raw)) {
		eachString(raw, func(text []byte, plain bool) bool { return n.readString(principal, text, plain) })
	}
}

// readString looks at a string of a principal; false ends the look through.
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

// spend counts bytes of a principal. When there are too many it names all leases
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

// eachString calls fn for every string of a JSON value as it is written, names of
// members too, until it returns false; plain says that nothing in it is escaped.
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

// stringEnd is where a JSON string that text begins with ends, 0 if it does not;
// plain says that it is written as it is.
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
