package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
)

// rowChecker decodes the rows of a Copy.
type rowChecker struct {
	c      *Copy
	report func(error)
	found  Contents

	chunks []byte // prefix of the keys of the last job with events, or of the last feed
	next   uint64 // position that follows its last chunk
}

// rowTables decodes a key and its value, by table. A table is found by the bytes of a key up to the
// first slash.
var rowTables = map[string]func(x *rowChecker, key, v []byte) error{
	tJob:      (*rowChecker).job,
	tStatus:   decodes(codec.DecodeStatus),
	tChunk:    (*rowChecker).events,
	tLive:     keyOnly,
	tIndex:    keyOnly,
	tEnded:    keyOnly,
	tHolder:   (*rowChecker).holder,
	tSession:  (*rowChecker).session,
	tPosition: decodes(codec.DecodePosition),
	tRuns:     (*rowChecker).runs,
	tFollow:   (*rowChecker).follow,
	tSubmit:   decodes(codec.DecodeSubmitted),
	tFeed:     (*rowChecker).feed,
	tFeedTrim: decodes(codec.DecodePosition),
	tFeedOwn:  (*rowChecker).announced,
	tRecord:   (*rowChecker).record,
	"meta/":   (*rowChecker).meta,
}

// run decodes all rows. A row that cannot be read ends the run, because the rows after it cannot be
// found. It fails only when ctx ends.
func (x *rowChecker) run(ctx context.Context) (err error) {
	it, err := x.c.s.db.NewIter(nil)
	if err != nil {
		x.report(err)
		return nil
	}
	n := 0
	more := it.First()
	for ; more; more, n = it.Next(), n+1 {
		if n%1024 == 0 && ctx.Err() != nil {
			break
		}
		if err := x.row(it); err != nil {
			x.report(fmt.Errorf("key %q: %w", it.Key(), err))
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		x.report(fmt.Errorf("after %d rows: %w", n, readable(err)))
	}
	return context.Cause(ctx)
}

func (x *rowChecker) row(it *pdb.Iterator) error {
	v, err := value(it)
	if err != nil {
		return err
	}
	table, _, _ := strings.Cut(string(it.Key()), "/")
	decode := rowTables[table+"/"]
	if decode == nil {
		return errUnknownKey
	}
	return decode(x, it.Key(), v)
}

// decodes returns a function that decodes a value alone.
func decodes[T any](decode func([]byte) (T, error)) func(*rowChecker, []byte, []byte) error {
	return func(_ *rowChecker, _, v []byte) error {
		_, err := decode(v)
		return err
	}
}

// keyOnly accepts a row of an index, whose value is empty. references reads the row that it is for.
func keyOnly(_ *rowChecker, _, v []byte) error {
	if len(v) > 0 {
		return errors.New("it has a value")
	}
	return nil
}

func (x *rowChecker) job(key, v []byte) error {
	id, err := parseAfter(len(tJob), key)
	if err != nil {
		return err
	}
	j, err := codec.DecodeJob(id, v)
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(j.Agent, "@")
	if x.found.Jobs == nil {
		x.found.Jobs = make(map[string]int)
	}
	x.found.Jobs[name]++
	return nil
}

func (x *rowChecker) session(key, v []byte) error {
	x.found.Sessions++
	id, rest, ok := codec.CutKeyID(key[len(tSession):], arcp.SessionPrefix)
	if !ok || len(rest) > 0 {
		return errUnknownKey
	}
	_, err := codec.DecodeSession(arcp.SessionID(id), v)
	return err
}

var errUnknownKey = errors.New("it has an unknown form")

// events decodes a chunk of a job, which begins where the chunk before it ends.
func (x *rowChecker) events(key, v []byte) error {
	events, err := x.chunk(key, v)
	if err != nil {
		return err
	}
	x.found.Events += uint64(len(events))
	if prefix := key[:len(key)-8]; !bytes.Equal(prefix, x.chunks) {
		x.chunks, x.next = append(x.chunks[:0], prefix...), 1
	}
	if at := numberAt(key); at != x.next {
		err = fmt.Errorf("the events from %d to %d are missing", x.next, at-1)
	}
	x.next = numberAt(key) + uint64(len(events))
	return err
}

// announced decodes a chunk of a feed, whose first chunks are deleted in time.
func (x *rowChecker) announced(key, v []byte) error {
	_, err := x.chunk(key, v)
	return err
}

func (x *rowChecker) chunk(key, v []byte) ([]store.Event, error) {
	if len(key) < 8 {
		return nil, errUnknownKey
	}
	events, err := codec.DecodeChunk(v, numberAt(key))
	if err == nil && len(events) == 0 {
		err = errEmpty
	}
	return events, err
}

func (x *rowChecker) runs(key, v []byte) error {
	if len(key) < 8 {
		return errUnknownKey
	}
	runs, err := codec.DecodeRuns(nil, v, numberAt(key))
	if err == nil && len(runs) == 0 {
		err = errEmpty
	}
	return err
}

func (x *rowChecker) feed(key, v []byte) error {
	_, rest, err := codec.CutHead(v)
	if err != nil {
		return err
	}
	return x.runs(key, rest)
}

func (x *rowChecker) follow(key, v []byte) error {
	k, err := parseFollow(key)
	if err == nil {
		_, err = codec.DecodeFollow(k, v)
	}
	return err
}

func (x *rowChecker) holder(_, v []byte) error {
	_, _, err := codec.DecodeHolder(v)
	return err
}

func (x *rowChecker) record(key, v []byte) error {
	_, err := codec.DecodeRecord(string(key[len(tRecord):]), v)
	return err
}

// meta decodes the counters. The format was read when the copy was opened.
func (x *rowChecker) meta(key, v []byte) error {
	switch string(key) {
	case keyFormat:
		return nil
	case keyState:
		_, err := codec.DecodeState(v)
		return err
	}
	return errUnknownKey
}

// references reads the rows that the indexes name, as Open and the lists of jobs and sessions do.
func (x *rowChecker) references(ctx context.Context) {
	s := x.c.s
	for _, name := range []string{tLive, tJob} {
		err := s.eachJob(ctx, keyRange{bounds: table(name)}, len(name), func(store.Job) bool { return true })
		if err != nil && ctx.Err() == nil {
			x.report(err)
		}
	}
	err := s.eachJob(ctx, keyRange{bounds: table(tEnded)}, len(tEnded)+timeKeyLen, func(store.Job) bool { return true })
	if err == nil {
		err = s.Sessions(ctx, func(store.Session) bool { return true })
	}
	if err != nil && ctx.Err() == nil {
		x.report(err)
	}
}
