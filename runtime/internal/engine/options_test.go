package engine

import (
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// A job with an unreadable lease has no permissions, not even for namespaces that a missing
// lease leaves to a policy.
func TestUnreadableLease(t *testing.T) {
	for _, options := range []string{`{"lease":{"model.use":7}}`, `{"lease":[]}`, `{"strict_cancel":"perhaps"}`, `[`} {
		o := optionsOf(&store.Job{Options: arcp.Raw(options)})
		l := o.lease()
		if !l.Has(arcp.NamespaceModelUse) || l.Covers(arcp.NamespaceModelUse, "any") == nil || l.Covers(arcp.NamespaceFSRead, "/") == nil {
			t.Errorf("%s: the lease is %s, want one that covers nothing", options, l.Encode())
		}
	}
}
