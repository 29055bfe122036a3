package runtime

import "github.com/arcpd/arcpd/runtime/internal/txn"

// changes returns the committer for changes of built-in tools. A change is part of the write of the
// call if the context belongs to a call of a built-in tool. Otherwise it is a write of its own.
func (r *Runtime) changes() txn.Committer { return txn.Committer{Log: r.log} }
