package arcp

// Namespaces of a lease with a specific grammar (§5.13). The comments give the kind of pattern.
const (
	NamespaceFSRead        = "fs.read"        // paths
	NamespaceFSWrite       = "fs.write"       // paths
	NamespaceNetFetch      = "net.fetch"      // URLs
	NamespaceToolCall      = "tool.call"      // names
	NamespaceAgentDelegate = "agent.delegate" // names
	NamespaceModelUse      = "model.use"      // model identifiers
	NamespaceThoughtWrite  = "thought.write"  // roles of thoughts
	NamespaceCostBudget    = "cost.budget"    // amounts, not patterns
)

// Namespaces lists the namespaces above.
var Namespaces = []string{NamespaceFSRead, NamespaceFSWrite, NamespaceNetFetch, NamespaceToolCall, NamespaceAgentDelegate,
	NamespaceModelUse, NamespaceThoughtWrite, NamespaceCostBudget}
