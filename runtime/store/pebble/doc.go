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
//	jz/<ended>/<job>               the job has ended, for retention
//	ik/<principal>/<key>           the job that holds an idempotency key
//	s/<session>                    a session's row
//	st/<session>                   up to where the session's log is trimmed
//	sr/<session>/<number>          consecutive pointers, the first with the number
//	sf/<session>/<job>/<corr>      a follow that does not follow from a job's row
//	dd/<session>/<submit>          the job that was submitted last with the id
//	fr/<principal>/<position>      consecutive pointers of a feed, after the id of the first event
//	fe/<principal>/<position>      consecutive events of the feed's own, the first at the position
//	ft/<principal>                 up to where the feed is trimmed
//	kv/<key>                       a record
//	meta/format, meta/state        the format's number; counters and the last id
//
// Trimmed pointers are deleted in ranges, some thousand numbers at a time, or
// when their session is detached; those of a feed, and its own events with them,
// some hundred at a time. A deleted job's keys are deleted with it, its
// pointers are not: whoever reads one finds that the job is gone. The space of
// deleted jobs is given back some time later.
//
// A directory of format 1 is migrated when it is opened: it lacks jz/, dd/ and
// the feeds. To a version that does not know fe/ a pointer into it, which names no
// job, is as one of a deleted job: it needs no format of its own.
package pebble
