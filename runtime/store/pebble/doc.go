// Package pebble is a durable store in a directory, on the embedded key-value
// store of the same name.
//
// A batch of writes is one batch of Pebble, synced before Commit returns: acknowledged
// writes survive a crash of the process and of the machine. Readers see only synced
// writes. They open their view between commits and may wait for the current commit.
//
// Keys, with big-endian numbers and minted ids as 16 bytes:
//
//	j/<job>                        a job's row as it was submitted
//	jt/<job>                       the part of the row that has changed since; small
//	je/<job>/<position>            consecutive events, the first at the position
//	jl/<job>                       the job has not ended
//	jx/<principal>/<created>/<job> the job, for lists
//	jz/<ended>/<job>               the job has ended, for retention
//	ik/<principal>/<key>           the job that holds an idempotency key
//	s/<session>                    a session's row
//	st/<session>                   the last trimmed number of the session's log
//	sr/<session>/<number>          consecutive pointers, the first with the number
//	sf/<session>/<job>/<corr>      a follow that no submit has created
//	dd/<session>/<submit>          the job that was submitted last with the id
//	fr/<principal>/<position>      consecutive pointers of a feed, after the id of the first event
//	fe/<principal>/<position>      consecutive announced events, the first at the position
//	ft/<principal>                 the last trimmed position of the feed
//	kv/<key>                       a record
//	meta/format, meta/state        the format's number; counters and the last id
//
// Trimmed pointers of a session are deleted in ranges, some thousand numbers at a time,
// or when its row is written. Trimmed pointers of a feed are deleted together with the
// announced events, some hundred at a time. Pointers to a deleted job are not deleted: a
// reader finds that the job does not exist. The disk space of deleted jobs is reclaimed
// some time later.
//
// The keys jx/ of jobs that have not ended are in memory, too: Open reads jl/ and the rows.
//
// A directory of format 1 is migrated when it is opened: it lacks jz/, dd/ and the
// feeds. A version without fe/ reads a pointer to an announced event, which names no job,
// as a pointer to a deleted job. So fe/ needs no new format.
package pebble
