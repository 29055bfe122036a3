package tool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// The defaults of a Capability (SPEC.md §7.1).
const (
	DefaultVersion          = "1.0.0"
	DefaultSideEffect       = SideEffectExternal // what is not said is assumed to be the worst
	DefaultRecovery         = RecoveryFail
	DefaultSource           = SourceGo
	DefaultTimeout          = 5 * time.Second
	DefaultMaxRequestBytes  = 1 << 20
	DefaultMaxResponseBytes = 1 << 20
	DefaultConcurrency      = 16
)

// SideEffects lists the side effects in the order of SPEC.md §7.1.
var SideEffects = []SideEffect{SideEffectNone, SideEffectRead, SideEffectWrite, SideEffectNetwork,
	SideEffectDatabase, SideEffectExternal}

// Recoveries lists the dispositions in the order of SPEC.md §7.1.
var Recoveries = []Recovery{RecoveryRerun, RecoveryCheckpoint, RecoveryFail}

// Where tools come from.
const (
	SourceGo      = "go"      // a Go function
	SourceExec    = "exec"    // a command
	SourceMCP     = "mcp"     // an MCP server
	SourceWorker  = "worker"  // a connected agent
	SourceBuiltin = "builtin" // the runtime itself, about itself
)

// Sources lists where tools come from in the order of SPEC.md §7.1.
var Sources = []string{SourceGo, SourceExec, SourceMCP, SourceWorker, SourceBuiltin}

// Early reports whether a tool with this side effect may start before its job
// is durable.
func (s SideEffect) Early() bool { return s == SideEffectNone || s == SideEffectRead }

// Ref is the reference that names exactly this tool: name@version.
func (c *Capability) Ref() string { return c.Name + "@" + c.Version }

// withDefaults returns c with every zero member replaced by its default.
func (c Capability) withDefaults() Capability {
	c.Version = cmp.Or(c.Version, DefaultVersion)
	c.SideEffect = cmp.Or(c.SideEffect, DefaultSideEffect)
	c.Recovery = cmp.Or(c.Recovery, DefaultRecovery)
	c.Source = cmp.Or(c.Source, DefaultSource)
	c.Limits = c.Limits.withDefaults()
	if c.Idempotent == nil {
		c.Idempotent = new(true)
	}
	return c
}

func (l Limits) withDefaults() Limits {
	l.Timeout = cmp.Or(l.Timeout, DefaultTimeout)
	l.MaxRequestBytes = cmp.Or(l.MaxRequestBytes, DefaultMaxRequestBytes)
	l.MaxResponseBytes = cmp.Or(l.MaxResponseBytes, DefaultMaxResponseBytes)
	l.Concurrency = cmp.Or(l.Concurrency, DefaultConcurrency)
	return l
}

// check refuses a capability that breaks the grammar of names or says a word
// that is not in the lists above. Defaults are filled in already.
func (c *Capability) check() error {
	_, err := arcp.ParseAgentRef(c.Ref()) // no version has an @, so no name has
	return cmp.Or(err,
		oneOf("side effect", c.SideEffect, SideEffects),
		oneOf("recovery", c.Recovery, Recoveries),
		oneOf("source", c.Source, Sources))
}

func oneOf[T ~string](what string, v T, list []T) error {
	if slices.Contains(list, v) {
		return nil
	}
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = string(s)
	}
	return fmt.Errorf("%s %q: it must be one of %s", what, string(v), strings.Join(names, ", "))
}
