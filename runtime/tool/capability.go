package tool

import (
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
	c.Version = or(c.Version, DefaultVersion)
	c.SideEffect = or(c.SideEffect, DefaultSideEffect)
	c.Recovery = or(c.Recovery, DefaultRecovery)
	c.Source = or(c.Source, DefaultSource)
	c.Limits = c.Limits.withDefaults()
	if c.Idempotent == nil {
		c.Idempotent = new(true)
	}
	return c
}

func (l Limits) withDefaults() Limits {
	l.Timeout = or(l.Timeout, DefaultTimeout)
	l.MaxRequestBytes = or(l.MaxRequestBytes, DefaultMaxRequestBytes)
	l.MaxResponseBytes = or(l.MaxResponseBytes, DefaultMaxResponseBytes)
	l.Concurrency = or(l.Concurrency, DefaultConcurrency)
	return l
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// check refuses a capability that breaks the grammar of names or says a word
// that is not in the lists above. Defaults are filled in already.
func (c *Capability) check() error {
	ref, err := arcp.ParseAgentRef(c.Ref())
	switch {
	case err != nil:
		return err
	case ref.Name != c.Name:
		return fmt.Errorf("the name %q contains an @", c.Name)
	}
	return errorsFirst(
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

func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
