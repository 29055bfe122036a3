package lease

import (
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

const (
	FSRead        = arcp.NamespaceFSRead
	FSWrite       = arcp.NamespaceFSWrite
	NetFetch      = arcp.NamespaceNetFetch
	ToolCall      = arcp.NamespaceToolCall
	AgentDelegate = arcp.NamespaceAgentDelegate
	ModelUse      = arcp.NamespaceModelUse
)

var t0 = time.Date(2026, 5, 9, 13, 0, 0, 0, time.UTC)

// lease makes a lease of namespaces and patterns.
func lease(t testing.TB, members map[string][]string) *Lease {
	t.Helper()
	raw, err := arcp.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(raw))
}

func parse(t testing.TB, raw string) *Lease {
	t.Helper()
	l, err := Parse(t0, Request{Lease: arcp.Raw(raw)})
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return l
}

// wantCode fails unless err has the code; empty: unless it is nil.
func wantCode(t testing.TB, why string, err *arcp.Error, code arcp.Code) {
	t.Helper()
	switch {
	case err == nil && code != "":
		t.Errorf("%s: no error, want %s", why, code)
	case err != nil && err.Code != code:
		t.Errorf("%s: %v, want %q", why, err, code)
	}
}

// canonical returns the canonical form of a target.
func canonical(namespace, s string) (string, error) {
	t, err := parseTarget(formOf(canonicalNamespace(namespace)), s, false)
	return t.text, err
}
