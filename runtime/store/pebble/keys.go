package pebble

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// Tables: prefixes of keys.
const (
	tJob      = "j/"
	tStatus   = "jt/"
	tChunk    = "je/"
	tLive     = "jl/"
	tIndex    = "jx/"
	tEnded    = "jz/"
	tHolder   = "ik/"
	tSession  = "s/"
	tPosition = "st/"
	tRuns     = "sr/"
	tFollow   = "sf/"
	tSubmit   = "dd/"
	tFeed     = "fr/"
	tFeedTrim = "ft/"
	tFeedOwn  = "fe/"
	tRecord   = "kv/"
	keyFormat = "meta/format"
	keyState  = "meta/state"
)

func jobKey(b []byte, table string, id arcp.JobID) []byte {
	return codec.AppendKeyID(append(b, table...), arcp.JobPrefix, id)
}

func sessionKey(b []byte, table string, id arcp.SessionID) []byte {
	return codec.AppendKeyID(append(b, table...), arcp.SessionPrefix, id)
}

func chunkKey(b []byte, id arcp.JobID, jseq uint64) []byte {
	return binary.BigEndian.AppendUint64(jobKey(b, tChunk, id), jseq)
}

func followKey(b []byte, k *sequence.FollowKey) []byte {
	b = codec.AppendKeyID(sessionKey(b, tFollow, k.Session), arcp.JobPrefix, k.Job)
	return append(b, k.CorrelationID...)
}

func submitKey(b []byte, id arcp.SessionID, submit arcp.MessageID) []byte {
	return codec.AppendKeyID(sessionKey(b, tSubmit, id), arcp.MessagePrefix, submit)
}

// feedKey sorts as principals do.
func feedKey(b []byte, table, principal string) []byte {
	return codec.AppendKeyText(append(b, table...), principal)
}

func endedKey(b []byte, at time.Time, id arcp.JobID) []byte {
	return codec.AppendKeyID(appendTimeKey(append(b, tEnded...), at), arcp.JobPrefix, id)
}

func holderKey(b []byte, principal, key string) []byte {
	return append(principalKey(b, tHolder, principal), key...)
}

func recordKey(b []byte, key string) []byte { return append(append(b, tRecord...), key...) }

// principalKey is the prefix of all keys of a principal in a table, and of no others.
func principalKey(b []byte, table, principal string) []byte {
	b = binary.AppendUvarint(append(b, table...), uint64(len(principal)))
	return append(b, principal...)
}

func indexKey(b []byte, principal string, created time.Time, id arcp.JobID) []byte {
	b = appendTimeKey(principalKey(b, tIndex, principal), created)
	return codec.AppendKeyID(b, arcp.JobPrefix, id)
}

const timeKeyLen = 12

// appendTimeKey appends 12 bytes that sort as times do.
func appendTimeKey(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix())^1<<63)
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}

func numberKey(b, prefix []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, prefix...), n)
}

func numberAt(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// after returns the least key that is greater than all keys with a prefix. The last byte
// of the prefix must not be 0xff.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// parseAfter reads the job id at the end of a key, after a number of bytes.
func parseAfter(n int, key []byte) (arcp.JobID, error) {
	id, rest, ok := codec.CutKeyID(key[min(len(key), n):], arcp.JobPrefix)
	if !ok || len(rest) > 0 {
		return "", badKey(key)
	}
	return arcp.JobID(id), nil
}

func parseFollow(key []byte) (k sequence.FollowKey, err error) {
	sess, rest, ok := codec.CutKeyID(key[len(tFollow):], arcp.SessionPrefix)
	if !ok {
		return k, badKey(key)
	}
	job, rest, ok := codec.CutKeyID(rest, arcp.JobPrefix)
	if !ok {
		return k, badKey(key)
	}
	return sequence.FollowKey{Session: arcp.SessionID(sess), Job: arcp.JobID(job), CorrelationID: arcp.MessageID(rest)}, nil
}

func badKey(key []byte) error { return fmt.Errorf("key %q: it has an unknown form", key) }
