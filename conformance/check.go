package conformance

import (
	"context"
	"embed"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// Level is the severity of the rule behind a check. Must, Should and May are rules of RFC 0001 or of
// the draft. House is a rule that only SPEC.md has.
type Level string

// The levels.
const (
	Must   Level = "must"   // required by the protocol
	Should Level = "should" // recommended by the protocol
	May    Level = "may"    // optional in the protocol, and judged where a server does it
	House  Level = "house"  // promised by SPEC.md only: for arcpd and for servers that want the same
)

// Levels are all levels, from the strongest.
var Levels = []Level{Must, Should, May, House}

// ProtocolLevels are the levels that judge any server.
var ProtocolLevels = []Level{Must, Should, May}

// draftPrefix begins the id of each check of the draft dialect.
const draftPrefix = "draft."

// Check tests one rule of the protocol.
type Check struct {
	ID      string // group.name, unique; draft.group.name in the draft dialect
	Title   string // the rule, as a sentence
	Dialect arcp.Dialect
	Section string // section of the specification, for example "RFC §10.6"
	Level   Level
	Needs   []string // preconditions: a Need constant, "tool:NAME", "capability:NAME" or "message:TYPE"

	run    func(ctx context.Context, t *checkRun)
	script *script.Check // nil: generated
	frames bool          // a rule of frames: the frames of all checks decide it
}

// result returns a result of the check.
func (c *Check) result(s Status) Result {
	return Result{ID: c.ID, Title: c.Title, Group: c.Group(), Dialect: c.Dialect, Section: c.Section, Level: c.Level, Status: s}
}

// Group returns the name of the group in ID.
func (c *Check) Group() string {
	id := c.ID
	if c.Dialect == arcp.DialectDraft {
		id = strings.TrimPrefix(id, draftPrefix)
	}
	group, _, _ := strings.Cut(id, ".")
	return group
}

// The values of Check.Needs other than tools, capabilities and messages.
const (
	NeedWebSocket  = "websocket"       // the target is reached by a WebSocket URL
	NeedOther      = "other-principal" // Target.OtherToken is set
	NeedObserver   = "observer"        // Target.ObserverToken is set
	NeedPrincipal  = "principal"       // Target.Principal is set
	NeedFrameLimit = "frame-limit"     // Target.FrameLimit is known
	NeedJWT        = "jwt"             // Target.JWT is set
	NeedAckWindow  = "ack-window"      // Target.AckWindow is set
	NeedSidecar    = "sidecar"         // the server offers binary frames in binary_encoding
	NeedNumbers    = "event-numbers"   // events have an event_seq
	NeedPong       = "pong"            // a ping is answered by a pong that has its correlation_id
	NeedUnknown    = "unknown-types"   // the server keeps the connection after a message of a type that it does not know
	NeedResume     = "resume-token"    // session.accepted has a resume_token
	NeedRestart    = "restart"         // Target.Restart is set; the check runs alone, after all others
)

const (
	toolPrefix       = "tool:"
	capabilityPrefix = "capability:"
	messagePrefix    = "message:"
)

// newerTypes are the messages of clients that RFC 0001 does not have, with the feature of the draft that they
// belong to. A check that sends one needs a server that serves it.
var newerTypes = map[arcp.Type]string{
	arcp.SessionPing: "heartbeat", arcp.SessionAck: "ack", arcp.SessionListJobs: "list_jobs", arcp.JobSubscribe: "subscribe",
}

func toolNeed(name string) string { return toolPrefix + name }

func capabilityNeed(name string) string { return capabilityPrefix + name }

// Groups returns the names of the groups of a dialect, in the order of Checks.
func Groups(d arcp.Dialect) []string {
	if d == arcp.DialectDraft {
		return append(slices.Clone(draftGroups), framesGroup)
	}
	return append(slices.Clone(groups), framesGroup)
}

// Checks returns every check of a dialect, ordered by group.
func Checks(d arcp.Dialect) []Check {
	return slices.DeleteFunc(slices.Clone(registry()), func(c Check) bool { return c.Dialect != d })
}

// generated are the functions that return the checks generated from the message catalog of a dialect, by
// group.
var generated = map[arcp.Dialect]map[string]func() []Check{
	arcp.DialectRFC:   {"unimplemented": unimplementedChecks, "catalogue": catalogChecks},
	arcp.DialectDraft: {"catalogue": draftCatalogChecks},
}

//go:embed scripts/*.txt scripts/draft/*.txt
var scripts embed.FS

// registry parses the scripts once and returns all checks.
var registry = sync.OnceValue(func() []Check {
	return slices.Concat(checksOf(arcp.DialectRFC, "", groups), frameChecks(),
		checksOf(arcp.DialectDraft, draftPrefix, draftGroups), draftFrameChecks())
})

// checksOf returns the checks of the groups of a dialect, whose ids begin with prefix.
func checksOf(d arcp.Dialect, prefix string, groups []string) []Check {
	var list []Check
	files := parseScripts(scriptFolder(d))
	for _, name := range groups {
		if more := generated[d][name]; more != nil {
			for _, c := range more() {
				c.ID, c.Dialect = prefix+name+"."+c.ID, d
				list = append(list, c)
			}
		}
		if file := files[name]; file != nil { // a group may have generated checks only
			for _, s := range file.Checks {
				list = append(list, scripted(s, d))
			}
		}
	}
	return list
}

func parseScripts(folder string) map[string]*script.File {
	dir, err := fs.Sub(scripts, folder)
	if err != nil {
		panic(err)
	}
	files, err := script.ParseDir(dir, func(name string) bool { return hostVerbs[name] != nil })
	if err != nil {
		panic(err) // the files are part of the program
	}
	return files
}

// scripted returns the check of a script header. Its steps are in the script or in inGo.
func scripted(s *script.Check, d arcp.Dialect) Check {
	c := Check{ID: s.ID, Dialect: d, Title: s.Title, Section: s.Section, Level: Level(s.Level), script: s}
	if d == arcp.DialectDraft {
		c.ID = draftPrefix + s.ID
	}
	c.run = inGo[c.ID]
	for _, need := range s.Needs {
		c.Needs = append(c.Needs, needOf(need))
	}
	for _, t := range s.Sends() {
		if _, ok := newerTypes[t]; ok && d == arcp.DialectRFC {
			c.Needs = append(c.Needs, messagePrefix+string(t))
		}
	}
	if s.Scripted() {
		c.run = func(_ context.Context, t *checkRun) { t.perform(s) }
	}
	return c
}

// needOf returns the need behind a word of a script. A word with a dot is a tool. Any other word is
// a Need constant or a capability.
func needOf(word string) string {
	switch {
	case strings.Contains(word, "."):
		return toolNeed(word)
	case slices.Contains(needs, word):
		return word
	}
	return capabilityNeed(word)
}

var needs = []string{NeedWebSocket, NeedOther, NeedObserver, NeedPrincipal, NeedFrameLimit, NeedJWT, NeedAckWindow, NeedSidecar, NeedRestart, NeedNumbers, NeedPong, NeedUnknown, NeedResume}

// groups are the names of the groups in the order of Checks. The script of a group is
// scripts/GROUP.txt.
var groups = []string{"handshake", "auth", "jwt", "envelope", "limits", "control", "jobs", "errors", "cancel", "checkpoints", "results", "streams", "artifacts", "traces", "schedules", "handoffs", "ordering",
	"list", "subscribe", "resume", "takeover", "flow", "feeds", "dedup", "liveness", "recovery", "retry", "sessions", "leases", "budgets",
	"permissions", "questions", "interrupts", "approvals", "observers", "workers", "resources", "tools", "host", "exec", "mcp", "extensions",
	"unimplemented", "catalogue", "close"}

// draftGroups are the names of the groups of the draft dialect in the order of Checks. The script of
// a group is scripts/draft/GROUP.txt.
var draftGroups = []string{"hello", "jobs", "hostile", "across", "submit", "events", "result", "errors", "cancel", "timeout", "idempotency", "leases",
	"budgets", "credentials", "questions", "list", "subscribe", "resume", "takeover", "ping", "ack", "close", "secrets", "envelope", "catalogue", "numbering", "builtin",
	"visibility", "recovery"}

// selects reports whether the options include the check.
func (o *Options) selects(c *Check) bool {
	in := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	named := len(o.Levels) == 0 && len(o.IDs) > 0 // a check that is named needs no level
	return in(o.Groups, c.Group()) && in(o.IDs, c.ID) && (named || slices.Contains(o.levels(), c.Level)) &&
		(len(o.Sections) == 0 || slices.ContainsFunc(o.Sections, func(s string) bool { return SectionMatches(c.Section, s) }))
}

// levels returns the chosen levels.
func (o *Options) levels() []Level {
	if len(o.Levels) == 0 {
		return ProtocolLevels
	}
	return o.Levels
}
