package access

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// lease is a fake authority: the covered trees by namespace.
type lease map[string][]string

func (l lease) check(namespace, target string) error {
	for _, p := range l[namespace] {
		if target == p || strings.HasPrefix(target, strings.TrimSuffix(p, "/")+"/") {
			return nil
		}
	}
	return arcp.Errorf(arcp.CodePermissionDenied, "%s does not cover %s", namespace, target)
}

// asked records the questions that reach an authority.
type asked struct {
	lease
	mu  sync.Mutex
	log []string
}

func (a *asked) check(namespace, target string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = append(a.log, namespace+" "+target)
	return a.lease.check(namespace, target)
}

// outcome is an error in one word.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	if wire, ok := errors.AsType[*arcp.Error](err); ok {
		return map[arcp.Code]string{
			arcp.CodePermissionDenied:   "denied",
			arcp.CodeInvalidArgument:    "malformed",
			arcp.CodeResourceExhausted:  "toolarge",
			arcp.CodeFailedPrecondition: "precondition",
			arcp.CodeLeaseExpired:       "expired",
			arcp.CodeUnimplemented:      "unimplemented",
		}[wire.Code]
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "missing"
		case errors.Is(err, fs.ErrExist):
			return "exists"
		}
		return p.Err.Error()
	}
	return err.Error()
}

func want(t *testing.T, err error, result, why string) {
	t.Helper()
	if got := outcome(err); got != result {
		t.Errorf("%s: got %s (%v), want %s", why, got, err, result)
	}
}
