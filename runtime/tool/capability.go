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

// TrustLevels lists how much a principal may be trusted, the lowest first; "" is
// no demand.
var TrustLevels = []string{"", "untrusted", "constrained", "trusted", "privileged"}

// Trusts reports whether a level of trust is enough for the tool.
func (c *Capability) Trusts(level string) bool {
	return trustRank(level) >= c.rank()
}

// rank is the trust rank that is enough to call the tool.
func (c *Capability) rank() int { return trustRank(c.MinTrust) }

func trustRank(level string) int { return slices.Index(TrustLevels, level) }

// Where tools come from.
const (
	SourceGo      = "go"      // a Go function
	SourceExec    = "exec"    // a command
	SourceMCP     = "mcp"     // an MCP server
	SourceWorker  = "worker"  // a connected agent
	SourceAgent   = "agent"   // a program of the runtime's own that speaks ARCP
	SourceBuiltin = "builtin" // the runtime itself, about itself
)

// Sources lists where tools come from in the order of SPEC.md §7.1.
var Sources = []string{SourceGo, SourceExec, SourceMCP, SourceWorker, SourceAgent, SourceBuiltin}

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

// check refuses a capability that breaks the grammar of names or says a word
// that is not in the lists above. Defaults are filled in already.
func (c *Capability) check() error {
	_, err := arcp.ParseAgentRef(c.Ref()) // no version has an @, so no name has
	return cmp.Or(err,
		oneOf("side effect", c.SideEffect, SideEffects),
		oneOf("recovery", c.Recovery, Recoveries),
		oneOf("source", c.Source, Sources),
		oneOf("min trust", c.MinTrust, TrustLevels),
		c.Approval.check(),
		c.checkRetry())
}

// checkRetry sees to it that nothing is done twice that may be done only once.
func (c *Capability) checkRetry() error {
	if c.Retry.MaxAttempts > 1 && !*c.Idempotent {
		return errors.New("retry: the tool is not idempotent")
	}
	return c.Retry.check()
}

func oneOf[T ~string](what string, v T, list []T) error {
	if slices.Contains(list, v) {
		return nil
	}
	var names []string
	for _, s := range list {
		if s != "" {
			names = append(names, string(s))
		}
	}
	return fmt.Errorf("%s %q: it must be one of %s", what, string(v), strings.Join(names, ", "))
}
