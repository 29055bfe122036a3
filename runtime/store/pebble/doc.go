// Package pebble is a durable store in a directory, on the embedded key-value
// store of the same name.
//
// A batch of writes is one batch of Pebble's, synced before Commit returns, so
// what was acknowledged survives the end of the process and of the machine.
// Readers see only what has been synced: they open their view between commits,
// which can make them wait for the one under way.
//
// Keys, with big-endian numbers and minted ids as 16 bytes:
//
//	j/<job>                        a job's row as it was submitted
//	jt/<job>                       what has changed of it since; small
//	je/<job>/<position>            consecutive events, the first at the position
//	jl/<job>                       the job has not ended
//	jx/<principal>/<created>/<job> for lists
//	ik/<principal>/<key>           the job that holds an idempotency key
//	s/<session>                    a session's row
//	st/<session>                   up to where the session's log is trimmed
//	sr/<session>/<number>          consecutive pointers, the first with the number
//	sf/<session>/<job>/<corr>      a follow that does not follow from a job's row
//	kv/<key>                       a record
//	meta/format, meta/state        the format's number; counters and the last id
//
// Trimmed pointers are deleted in ranges, some thousand numbers at a time, or
// when their session is detached.
package pebble
