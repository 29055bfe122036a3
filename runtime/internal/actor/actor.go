// Package actor derives the approval.Actor of a session from its identity: its rights to
// request, answer, observe and execute.
package actor

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/store"
)

// Of returns the actor of a session with an identity. humanInput says that the session takes
// part in human input.
func Of(id *auth.Identity, session arcp.SessionID, humanInput bool) approval.Actor {
	a := approval.Actor{Principal: id.Principal, Session: session, HumanInput: humanInput, Observer: !MayCommand(id),
		Approver: id.HasRole(auth.RoleApprover), Worker: id.HasRole(auth.RoleWorker), Admin: id.HasRole(auth.RoleAdmin),
		Sees: matcher(id.Sees), Serves: matcher(id.Serves), Lease: id.Lease}
	if p := id.Program; p != nil {
		a.Serves = func(string) bool { return true }
		a.Executes = func(tool string) bool { return matchesAny(p.Tools, tool) }
	}
	return a
}

// matcher returns a function that reports whether one of the globs matches a name. Without globs it
// is nil.
func matcher(globs []string) func(name string) bool {
	if len(globs) == 0 {
		return nil
	}
	return func(name string) bool { return matchesAny(globs, name) }
}

// matchesAny reports whether one of the globs matches a name. A malformed glob matches nothing.
func matchesAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, name)
		return ok && err == nil
	})
}

// MayCommand reports whether a principal may do more than observe.
func MayCommand(id *auth.Identity) bool {
	return id.HasRole(auth.RoleClient) || id.HasRole(auth.RoleWorker) || id.HasRole(auth.RoleAdmin)
}

// Stored returns the actor of a session without a connection. It checks the stored identity
// against the present configuration. The error is that the identity is not valid any more, or that
// the row cannot be read.
func Stored(ctx context.Context, st store.Store, set *auth.Set, id arcp.SessionID) (approval.Actor, error) {
	row, err := st.Session(ctx, id)
	if err != nil {
		return approval.Actor{}, err
	}
	identity, err := decode(row.Identity)
	if err == nil {
		identity, err = Revalidate(set, identity)
	}
	if err != nil {
		return approval.Actor{}, err
	}
	return Of(&identity, id, slices.Contains(row.Negotiated, arcp.FeatureHumanInput)), nil
}

// Principal returns the identity of a principal that had a stored identity, as it is configured now. The
// credential may have expired since, and its issuer may have new keys, but its principal, its token or its issuer
// must still be configured.
func Principal(set *auth.Set, stored arcp.Raw) (auth.Identity, error) {
	identity, err := decode(stored)
	if err != nil {
		return identity, err
	}
	identity.Expires, identity.KeyFingerprint = time.Time{}, ""
	return Revalidate(set, identity)
}

func decode(stored arcp.Raw) (identity auth.Identity, err error) {
	err = arcp.Unmarshal(stored, &identity)
	return identity, err
}

// Revalidate checks the identity of a peer that is not connected against the present configuration. It
// returns the errors of auth.Set.Revalidate.
func Revalidate(set *auth.Set, identity auth.Identity) (auth.Identity, error) {
	request := auth.Request{Now: time.Now()}
	if identity.Scheme == auth.Program {
		request.Program = &identity
	}
	// The operating system has vouched for the peer.
	if uid, ok := strings.CutPrefix(identity.Principal, "uid:"); ok && identity.Scheme == auth.None {
		var err error
		if request.PeerUID, err = strconv.Atoi(uid); err != nil {
			return auth.Identity{}, err
		}
		request.Local = true
	}
	return set.Revalidate(identity, request)
}
