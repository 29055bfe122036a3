package runtime

import "github.com/arcpd/arcpd/runtime/internal/txn"

// changes commits what built-in tools change: together with the call of the tool if the
// context belongs to one, and else by itself.
func (r *Runtime) changes() txn.Committer { return txn.Committer{Log: r.log} }
