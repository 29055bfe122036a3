package runtime

import "github.com/arcpd/arcpd/runtime/internal/txn"

// changes returns the committer of built-in tools. A change joins the call of the tool if the
// context belongs to one; otherwise it is a write of its own.
func (r *Runtime) changes() txn.Committer { return txn.Committer{Log: r.log} }
