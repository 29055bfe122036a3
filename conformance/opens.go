package conformance

import (
	"slices"
	"strings"
	"sync"
)

// maxRefused is the number of checks in a row whose valid session.open is not accepted, after which
// the other checks are skipped.
const maxRefused = 2

// opens counts checks in a row whose valid session.open or session.hello was not accepted. It is
// safe for concurrent use.
type opens struct {
	mu      sync.Mutex
	refused int
	reason  string // of the last one
	endless bool   // no check is skipped; for tests
}

// add counts the outcome of a check.
func (o *opens) add(t *checkRun) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.refused >= maxRefused:
	case t.opening && t.failure != "":
		o.refused++
		o.reason, _, _ = strings.Cut(t.failure, "\n")
	case slices.ContainsFunc(t.conns, connection.accepted):
		o.refused = 0
	}
}

// refusing returns why checks are skipped, or "".
func (o *opens) refusing() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.endless || o.refused < maxRefused {
		return ""
	}
	return "the server accepted no session in two checks in a row: " + o.reason
}
