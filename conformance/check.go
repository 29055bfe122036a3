package conformance

import (
	"context"
	"slices"
	"strings"
)

// Level says how binding the rule behind a check is.
type Level string

// The levels.
const (
	Must    Level = "must"    // required by the protocol, or fatal to a client that decodes strictly
	Should  Level = "should"  // recommended by the protocol
	Runtime Level = "runtime" // a choice the protocol leaves open, as this project made it
)

// DialectRFC is the dialect that opens with session.open.
const DialectRFC = "rfc"

// Check is one rule and the story that shows whether a server follows it.
type Check struct {
	ID      string // group.name, unique
	Title   string // the rule, as a sentence
	Dialect string
	Section string // of the specification
	Level   Level
	Needs   []string // what the target must have; see Tool, Capability and the Need constants
	Run     func(ctx context.Context, t *T)
}

// Group is the part of the id before the first dot.
func (c *Check) Group() string {
	group, _, _ := strings.Cut(c.ID, ".")
	return group
}

// What a check may need beside tools and capabilities.
const (
	NeedWebSocket  = "websocket"       // the target is reached by a WebSocket URL
	NeedOther      = "other-principal" // Target.OtherToken is set
	NeedObserver   = "observer"        // Target.ObserverToken is set
	NeedPrincipal  = "principal"       // Target.Principal is set
	NeedFrameLimit = "frame-limit"     // Target.FrameLimit is known
	NeedJWT        = "jwt"             // Target.JWT is set
	NeedAckWindow  = "ack-window"      // Target.AckWindow is set
	NeedRestart    = "restart"         // Target.Restart is set; the check is run when no other is
)

const (
	toolPrefix       = "tool:"
	capabilityPrefix = "capability:"
)

// Tool is the need for a tool.
func Tool(name string) string { return toolPrefix + name }

// Capability is the need for a capability in session.accepted.
func Capability(name string) string { return capabilityPrefix + name }

// Groups lists the names of the groups in the order they are run and reported.
func Groups() []string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return names
}

// Checks returns every check in the order of its group.
func Checks() []Check {
	var all []Check
	for _, g := range groups {
		for _, c := range g.checks() {
			c.ID = g.name + "." + c.ID
			c.Dialect = DialectRFC
			all = append(all, c)
		}
	}
	return all
}

// group is a named list of checks. Ids inside it leave out the name.
type group struct {
	name   string
	checks func() []Check
}

var groups = []group{
	{"handshake", handshakeChecks},
	{"auth", authChecks},
	{"jwt", jwtChecks},
	{"envelope", envelopeChecks},
	{"limits", limitChecks},
	{"control", controlChecks},
	{"jobs", jobChecks},
	{"errors", errorChecks},
	{"cancel", cancelChecks},
	{"checkpoints", checkpointChecks},
	{"ordering", orderingChecks},
	{"list", listChecks},
	{"subscribe", subscribeChecks},
	{"resume", resumeChecks},
	{"takeover", takeoverChecks},
	{"flow", flowChecks},
	{"feeds", feedChecks},
	{"dedup", dedupChecks},
	{"liveness", livenessChecks},
	{"recovery", recoveryChecks},
	{"retry", retryChecks},
	{"sessions", sessionChecks},
	{"leases", leaseChecks},
	{"budgets", budgetChecks},
	{"permissions", permissionChecks},
	{"questions", questionChecks},
	{"interrupts", interruptChecks},
	{"approvals", approvalChecks},
	{"observers", observerChecks},
	{"workers", workerChecks},
	{"resources", resourceChecks},
	{"tools", toolsChecks},
	{"host", hostChecks},
	{"exec", execChecks},
	{"mcp", mcpChecks},
	{"extensions", extensionChecks},
	{"unimplemented", unimplementedChecks},
	{"catalogue", catalogueChecks},
	{"close", closeChecks},
}

// selects reports whether the options ask for the check.
func (o *Options) selects(c *Check) bool {
	in := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	return in(o.Groups, c.Group()) && in(o.IDs, c.ID) &&
		(len(o.Levels) == 0 || slices.Contains(o.Levels, c.Level))
}
