package lease

// Namespaces with a grammar of their own. Every other key of a lease is a
// permission name that a tool asks for; its patterns are paths, URLs or names,
// whichever they look like.
const (
	FSRead        = "fs.read"        // paths
	FSWrite       = "fs.write"       // paths
	NetFetch      = "net.fetch"      // URLs
	ToolCall      = "tool.call"      // names
	AgentDelegate = "agent.delegate" // names
	ModelUse      = "model.use"      // model identifiers
	CostBudget    = "cost.budget"    // amounts, not patterns
)

// Members of a lease that are not namespaces.
const (
	keyExpires      = "expires_at"
	keyCapabilities = "capabilities" // bare names without patterns: they grant nothing
)

// aliases are the other spellings of namespaces.
var aliases = map[string]string{
	"fs_read":          FSRead,
	"fs_write":         FSWrite,
	"net_fetch":        NetFetch,
	"tool_call":        ToolCall,
	"agent_delegate":   AgentDelegate,
	"model_use":        ModelUse,
	"cost_budget":      CostBudget,
	"filesystem.read":  FSRead,
	"filesystem.write": FSWrite,
	"network.fetch":    NetFetch,
}

// snake are the spellings the RFC dialect has beside the dotted ones.
var snake = map[string]string{
	FSRead:        "fs_read",
	FSWrite:       "fs_write",
	NetFetch:      "net_fetch",
	ToolCall:      "tool_call",
	AgentDelegate: "agent_delegate",
	ModelUse:      "model_use",
	CostBudget:    "cost_budget",
}

// dotted is the one spelling under which a namespace is kept.
func dotted(key string) string {
	if d, ok := aliases[key]; ok {
		return d
	}
	return key
}

// form is a grammar of patterns and targets.
type form uint8

const (
	formAny  form = iota // a path, a URL or a name, whichever it looks like
	formPath             // an absolute path of files
	formURL              // scheme, host, port and path
	formName             // segments between slashes, mostly one
)

// formOf is the grammar of a namespace.
func formOf(namespace string) form {
	switch namespace {
	case FSRead, FSWrite:
		return formPath
	case NetFetch:
		return formURL
	case ToolCall, AgentDelegate, ModelUse:
		return formName
	}
	return formAny
}
