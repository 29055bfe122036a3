package conformance

import (
	"context"
	"embed"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/arcpd/arcpd/conformance/script"
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

// Check tests one rule.
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

// Needs of checks other than tools and capabilities.
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
func Groups() []string { return slices.Clone(groups) }

// Checks returns every check in the order of its group.
func Checks() []Check { return slices.Clone(registry()) }

// made are the functions that make checks of a group from the catalogue of types.
var made = map[string]func() []Check{"unimplemented": unimplementedChecks, "catalogue": catalogueChecks}

//go:embed scripts/*.txt
var scripts embed.FS

// registry reads the scripts.
var registry = sync.OnceValue(func() []Check {
	dir, err := fs.Sub(scripts, "scripts")
	if err != nil {
		panic(err)
	}
	files, err := script.ParseDir(dir, func(name string) bool { return hostVerbs[name] != nil })
	if err != nil {
		panic(err) // the files are part of the program
	}
	var all []Check
	for _, name := range groups {
		if more := made[name]; more != nil {
			for _, c := range more() {
				c.ID = name + "." + c.ID
				all = append(all, c)
			}
		}
		for _, s := range files[name].Checks {
			all = append(all, scripted(s))
		}
	}
	for i := range all {
		all[i].Dialect = DialectRFC
	}
	return all
})

// scripted returns the check of a header. Its steps are in the script or in inGo.
func scripted(s *script.Check) Check {
	c := Check{ID: s.ID, Title: s.Title, Section: s.Section, Level: Level(s.Level), Run: inGo[s.ID]}
	for _, need := range s.Needs {
		c.Needs = append(c.Needs, needOf(need))
	}
	if s.Scripted() {
		c.Run = func(_ context.Context, t *T) { t.perform(s) }
	}
	return c
}

// needOf returns the need behind a word of a script: the names of tools have a dot,
// and other words that are no Need constant are capabilities.
func needOf(word string) string {
	switch {
	case strings.Contains(word, "."):
		return Tool(word)
	case slices.Contains(needs, word):
		return word
	}
	return Capability(word)
}

// needs are the Need constants.
var needs = []string{NeedWebSocket, NeedOther, NeedObserver, NeedPrincipal, NeedFrameLimit, NeedJWT, NeedAckWindow, NeedRestart}

// groups are the names of the groups in the order in which they are run. The checks
// of a group are in scripts/GROUP.txt.
var groups = []string{"handshake", "auth", "jwt", "envelope", "limits", "control", "jobs", "errors", "cancel", "checkpoints", "ordering",
	"list", "subscribe", "resume", "takeover", "flow", "feeds", "dedup", "liveness", "recovery", "retry", "sessions", "leases", "budgets",
	"permissions", "questions", "interrupts", "approvals", "observers", "workers", "resources", "tools", "host", "exec", "mcp", "extensions",
	"unimplemented", "catalogue", "close"}

// selects reports whether the options ask for the check.
func (o *Options) selects(c *Check) bool {
	in := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	return in(o.Groups, c.Group()) && in(o.IDs, c.ID) &&
		(len(o.Levels) == 0 || slices.Contains(o.Levels, c.Level))
}
