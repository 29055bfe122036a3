package tool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// The defaults of a Capability (SPEC.md §7.1).
const (
	DefaultVersion          = "1.0.0"
	DefaultSideEffect       = SideEffectExternal // the worst case
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

// AllowsTrust reports whether principals of a trust level may call the tool.
func (c *Capability) AllowsTrust(level arcp.TrustLevel) bool {
	return level.Rank() >= c.MinTrust.Rank()
}

// SourceKind is the kind of program that runs a tool.
type SourceKind string

// The kinds of sources.
const (
	SourceGo      SourceKind = "go"      // a Go function
	SourceExec    SourceKind = "exec"    // a command
	SourceMCP     SourceKind = "mcp"     // an MCP server
	SourceWorker  SourceKind = "worker"  // a connected agent
	SourceBuiltin SourceKind = "builtin" // the runtime
)

// sourceKinds lists the kinds in the order of SPEC.md §7.1.
var sourceKinds = []SourceKind{SourceGo, SourceExec, SourceMCP, SourceWorker, SourceBuiltin}

// ReadOnly reports whether the side effect changes nothing outside of the result. A tool that only
// reads may start before its job is durable.
func (s SideEffect) ReadOnly() bool { return s == SideEffectNone || s == SideEffectRead }

// Ref returns the reference name@version.
func (c *Capability) Ref() string { return c.Name + "@" + c.Version }

// withDefaults returns c with its default for every zero member.
func (c Capability) withDefaults() Capability {
	c.Version = cmp.Or(c.Version, DefaultVersion)
	c.SideEffect = cmp.Or(c.SideEffect, DefaultSideEffect)
	c.Recovery = cmp.Or(c.Recovery, DefaultRecovery)
	c.Source = cmp.Or(c.Source, DefaultSource)
	c.Approval = c.Approval.orNone()
	c.Limits = c.Limits.withDefaults()
	c.Retry = c.Retry.withDefaults()
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

// check returns an error for a malformed name or version, and for a value outside of the lists
// above. c has its defaults.
func (c *Capability) check() error {
	_, err := arcp.ParseAgentRef(c.Ref()) // a name with an @ makes the version invalid
	return cmp.Or(err,
		oneOf("side effect", c.SideEffect, SideEffects),
		oneOf("recovery", c.Recovery, Recoveries),
		oneOf("source", c.Source, sourceKinds),
		c.checkTrust(),
		c.Approval.check(),
		c.checkRetry())
}

func (c *Capability) checkTrust() error {
	if c.MinTrust == "" {
		return nil
	}
	return oneOf("min trust", c.MinTrust, arcp.TrustLevels)
}

// checkRetry returns an error for retries of a tool that is not idempotent.
func (c *Capability) checkRetry() error {
	if c.Retry.MaxAttempts > 1 && !*c.Idempotent {
		return errors.New("retry: the tool is not idempotent")
	}
	return c.Retry.check()
}

func oneOf[T ~string](property string, v T, list []T) error {
	if slices.Contains(list, v) {
		return nil
	}
	var names []string
	for _, s := range list {
		names = append(names, string(s))
	}
	return fmt.Errorf("%s %q: it must be one of %s", property, string(v), strings.Join(names, ", "))
}
