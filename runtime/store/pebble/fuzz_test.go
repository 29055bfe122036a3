package pebble

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// FuzzOpen damages the files of a store, and checks and opens what is left. Neither panics, hangs or
// ends the process. In addition:
//
//	damage                        what holds
//	any                           what is read was written: no event is changed, no number is skipped, and
//	                              an error names a file or a key
//	the newest log is cut         the store opens without an error, with exactly the commits that the rest
//	                              of the log holds
//	bytes of the newest log       an error, or the state after one of the commits
//	tables, values, options       an error, or nothing is lost
//	other logs, the list of       an error, or a loss: Pebble does not see a log that is missing or that ends
//	files and its name            after a record, nor a list that ends early
//
// A store that was read without an error has the same content when it is opened again. An Open that
// fails keeps the tables, unless the list of files is damaged: Pebble deletes tables that the list lacks.
// Copy.Check finds no problem only in a directory that Open opens. It finds each loss by damage outside of
// the logs.
func FuzzOpen(f *testing.F) {
	o := makeOriginal(f)
	for _, seed := range o.seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		hang := time.AfterFunc(time.Minute, func() { panic("the store hangs") })
		defer hang.Stop()
		o.test(t, o.decode(input))
	})
}

// Kinds of damage.
const (
	cut    = iota // the file ends at the offset
	flip          // the bits of value are inverted in the byte at the offset
	zero          // up to 512 bytes from the offset on are zero
	remove        // the file does not exist
	kinds
)

// damage is a change of a file. It is encoded in five bytes: the index of the file in the order of the
// names, the kind, the offset as a big-endian number, and the value. The index, the kind and the offset
// are taken modulo the number of files, the number of kinds and the size of the file.
type damage struct {
	name   string
	kind   int
	offset int
	value  byte
}

const (
	damageLen  = 5
	maxDamages = 8
)

// original is a store whose files are damaged. The files are those at one moment of its run: all commits
// are synced, and a memory table is being written, so that the last two logs are needed.
type original struct {
	files  map[string][]byte
	names  []string    // of files, sorted
	newest string      // the newest log
	states []*contents // after each commit
	ends   []int       // in the newest log, of the commits that it holds, which are the last ones
}

const fuzzDir = "store"

// fuzzOptions are of a small store that does nothing in the background for as long as a test runs.
func fuzzOptions(f vfs.FS) Options {
	return Options{
		fs: f, CacheBytes: 1 << 20, MemTableBytes: 1 << 20, reclaimPause: time.Hour, rewriteAge: time.Hour,
		Fatalf: func(format string, args ...any) {
			go panic("the store ends the process: " + fmt.Sprintf(format, args...)) // Open recovers a panic of its own goroutine
			select {}
		},
	}
}

func makeOriginal(f testing.TB) *original {
	mem := vfs.NewMem()
	block := &tableGate{FS: mem}
	s := mustOpen(f, fuzzDir, fuzzOptions(block))
	o := &original{}
	step := func(writes ...*store.Write) {
		commit(f, s, writes...)
		now, err := readContents(s)
		if err != nil {
			f.Fatal(err)
		}
		o.states = append(o.states, now)
	}
	big := []byte(strings.Repeat("v", 2*separateBytes))
	step(newSession(sess), newJob(job), emit(job, 3))
	step(emit(job, 20), store.NewWrite().Put(store.Record{Key: "artifact/1", Value: big}, store.Record{Key: "artifact/2", Value: big}))
	must(s.db.Flush())
	must(s.db.Compact(f.Context(), []byte("a"), []byte("z"), false)) // two tables in level 0 would be compacted at any time
	step(newJob("job_2"), emit("job_2", 2), newSession("sess_2"))
	step(store.NewWrite(&store.Follow{Session: "sess_2", Job: job, CorrelationID: "c"}))
	must(s.db.Flush())
	step(emit(job, 2), store.NewWrite().Put(store.Record{Key: "artifact/1", Rev: 1, Value: []byte("w")}))
	step(store.NewWrite(&store.AppendEvents{Job: "job_2", Attempt: 1, Events: events("job_2", arcp.JobCompleted), State: arcp.StateCompleted}))

	block.mu.Lock()
	flushed, err := s.db.AsyncFlush()
	must(err)
	for range 3 {
		step(emit(job, 2), store.NewWrite(&store.Announce{Principal: "ann", Events: events("", arcp.Log)}))
		o.readFiles(mem)
	}
	step(newJob("job_3"), emit("job_3", 1))
	o.readFiles(mem)
	block.mu.Unlock()
	<-flushed
	must(s.Close())
	return o
}

// tableGate is a file system that creates no table while mu is held.
type tableGate struct {
	vfs.FS
	mu sync.Mutex
}

func (g *tableGate) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if path.Ext(name) == ".sst" {
		g.mu.Lock()
		defer g.mu.Unlock()
	}
	return g.FS.Create(name, c)
}

func (o *original) readFiles(f vfs.FS) {
	o.files = readDir(f)
	o.names = slices.Sorted(maps.Keys(o.files))
	for _, name := range o.names {
		if path.Ext(name) == ".log" {
			o.newest = name
		}
	}
	number, _ := walNumber(o.newest)
	end, _ := walDamage(o.files[o.newest], number) // a reused file goes on with an earlier log
	o.ends = append(o.ends, end)
}

func readDir(f vfs.FS) map[string][]byte {
	all := make(map[string][]byte)
	for _, name := range must2(f.List(fuzzDir)) {
		all[name] = must2(readFile(f, f.PathJoin(fuzzDir, name)))
	}
	return all
}

func (o *original) decode(input []byte) (all []damage) {
	for ; len(input) >= damageLen && len(all) < maxDamages; input = input[damageLen:] {
		d := damage{name: o.names[int(input[0])%len(o.names)], kind: int(input[1]) % kinds, value: input[4]}
		if size := len(o.files[d.name]); size > 0 {
			d.offset = int(binary.BigEndian.Uint16(input[2:])) % size
		}
		all = append(all, d)
	}
	return all
}

func (o *original) encode(all ...damage) (b []byte) {
	for _, d := range all {
		b = append(b, byte(slices.Index(o.names, d.name)), byte(d.kind))
		b = append(binary.BigEndian.AppendUint16(b, uint16(d.offset)), d.value)
	}
	return b
}

// seeds has each kind of damage of each file.
func (o *original) seeds() [][]byte {
	seeds := [][]byte{nil}
	for _, name := range o.names {
		size := len(o.files[name])
		seeds = append(seeds,
			o.encode(damage{name, cut, 0, 0}), o.encode(damage{name, cut, size / 2, 0}), o.encode(damage{name, cut, size - 1, 0}),
			o.encode(damage{name, flip, 20, 0x20}), o.encode(damage{name, flip, size / 2, 0x20}), o.encode(damage{name, flip, size - 3, 0x20}),
			o.encode(damage{name, zero, size / 2, 0}), o.encode(damage{name: name, kind: remove}))
	}
	for _, end := range o.ends {
		seeds = append(seeds, o.encode(damage{o.newest, cut, end, 0}), o.encode(damage{o.newest, cut, end - 10, 0}))
	}
	seeds = append(seeds, o.encode(damage{o.newest, cut, o.ends[0], 0}, damage{o.newest, flip, 30, 1}))
	return slices.DeleteFunc(seeds, func(seed []byte) bool {
		_, done := o.apply(o.decode(seed))
		return len(seed) > 0 && len(done) == 0
	})
}

// apply returns the damaged files. Damage that changes nothing is left out of the result.
func (o *original) apply(all []damage) (files map[string][]byte, done []damage) {
	files = maps.Clone(o.files)
	for _, d := range all {
		before, ok := files[d.name]
		if !ok {
			continue
		}
		after := slices.Clone(before)
		d.offset = min(d.offset, len(after))
		switch d.kind {
		case cut:
			after = after[:d.offset]
		case flip:
			if d.offset < len(after) {
				after[d.offset] ^= d.value
			}
		case zero:
			clear(after[d.offset:min(d.offset+512, len(after))])
		}
		files[d.name] = after
		if d.kind == remove {
			delete(files, d.name)
		}
		if d.kind == remove || !bytes.Equal(before, after) {
			done = append(done, d)
		}
	}
	return files, done
}

func (o *original) test(t *testing.T, all []damage) {
	files, done := o.apply(all)
	mem := vfs.NewMem()
	must(mem.MkdirAll(fuzzDir, 0o700))
	for name, data := range files {
		file := must2(mem.Create(mem.PathJoin(fuzzDir, name), vfs.WriteCategoryUnspecified))
		must2(file.Write(slices.Clone(data))) // with the race detector, Write changes its argument
		must(file.Close())
	}
	problems := o.check(t, mem)
	if !reflect.DeepEqual(readDir(mem), files) {
		t.Error("the check has changed the files")
	}
	got, opened, err := openContents(t, mem)
	o.written(t, got)
	harm := o.damagedFiles(done)
	if !opened && !harm.manifest {
		areTablesKept(t, files, readDir(mem))
	}
	last := o.states[len(o.states)-1]
	switch {
	case err != nil:
		o.named(t, err)
		if len(problems) == 0 {
			t.Errorf("the check finds no problem, but the store cannot be read: %v", err)
		}
	case len(problems) == 0 && !harm.logs && !reflect.DeepEqual(got, last):
		t.Error("the check finds no problem, but data is lost")
	case !harm.logs && !harm.list && !reflect.DeepEqual(got, last):
		t.Errorf("data is lost without an error; got %v", got)
	case !harm.list && !harm.oldLogs && !slices.ContainsFunc(o.states, func(c *contents) bool { return reflect.DeepEqual(got, c) }):
		t.Errorf("the store has the state after no commit: %v", got)
	}
	if harm.end < 0 {
		return
	}
	n := len(o.states) - len(o.ends)
	for _, end := range o.ends {
		if end <= harm.end {
			n++
		}
	}
	if err != nil || !reflect.DeepEqual(got, o.states[n-1]) {
		t.Errorf("with the newest log cut at %d: %v, %v, want the state after %d commits", harm.end, got, err, n)
	}
}

// damaged are the damaged files.
type damaged struct {
	logs     bool // a log
	oldLogs  bool // a log that is not the newest
	list     bool // the list of files, or its name
	manifest bool // the list of files
	end      int  // of the newest log, if there is no other damage than cuts of it; else -1
}

func (o *original) damagedFiles(all []damage) damaged {
	x := damaged{end: len(o.files[o.newest])}
	for _, d := range all {
		isLog := path.Ext(d.name) == ".log"
		x.logs = x.logs || isLog
		x.oldLogs = x.oldLogs || isLog && d.name != o.newest
		x.manifest = x.manifest || strings.HasPrefix(d.name, "MANIFEST-")
		x.list = x.list || x.manifest || strings.HasPrefix(d.name, "marker.")
		if d.name != o.newest || d.kind != cut {
			x.end = -1
		} else if x.end >= 0 {
			x.end = min(x.end, d.offset)
		}
	}
	return x
}

// check returns the problems that the check of a copy finds.
func (o *original) check(t *testing.T, f vfs.FS) (found []error) {
	c, err := OpenCopy(fuzzDir, fuzzOptions(f))
	if err != nil {
		o.named(t, err)
		return []error{err}
	}
	_, err = c.Check(t.Context(), func(err error) { found = append(found, err) })
	for _, err := range found {
		o.named(t, err)
	}
	if err := errors.Join(err, c.Close()); err != nil {
		t.Errorf("Check = %v", err)
	}
	return found
}

// named checks that each line of an error names a file, a key or the rows that miss something.
func (o *original) named(t *testing.T, err error) {
	t.Helper()
	for line := range strings.Lines(err.Error()) {
		named := strings.Contains(line, fuzzDir+": ") || strings.Contains(line, `key "`) || strings.Contains(line, `session "`) ||
			strings.Contains(line, `feed "`) || strings.Contains(line, `job "`)
		for _, name := range o.names {
			number, _, _ := strings.Cut(strings.TrimLeft(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-"), ".")
			named = named || number != "" && strings.Contains(line, number)
		}
		if !named {
			t.Errorf("the error %q has a line that names neither a file nor a row", err)
		}
	}
}

// openContents opens a store and reads it. A store that can be read is opened again.
func openContents(t *testing.T, f vfs.FS) (got *contents, opened bool, err error) {
	st, err := Open(fuzzDir, fuzzOptions(f))
	if err != nil {
		return new(contents), false, err
	}
	got, err = readContents(st)
	if err := st.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if err != nil {
		return got, true, err
	}
	if st, err = Open(fuzzDir, fuzzOptions(f)); err != nil {
		t.Errorf("a store that was read is not opened again: %v", err)
		return got, true, nil
	}
	again, err := readContents(st)
	if err := errors.Join(err, st.Close()); err != nil || !reflect.DeepEqual(got, again) {
		t.Errorf("opened again, the store has %v, %v, want %v", again, err, got)
	}
	return got, true, nil
}

// areTablesKept checks that no table and no file of values was changed. Logs may have become tables.
func areTablesKept(t *testing.T, before, after map[string][]byte) {
	t.Helper()
	for name, data := range before {
		if ext := path.Ext(name); (ext == ".sst" || ext == ".blob") && !bytes.Equal(data, after[name]) {
			t.Errorf("%s was changed by an Open that failed", name)
		}
	}
}

// contents is all that can be read of a store.
type contents struct {
	live     []store.Job
	jobs     []store.Job
	events   map[arcp.JobID][]store.Event
	sessions []store.Session
	logs     map[arcp.SessionID][]delivery
	feeds    map[string][]delivery
	records  []store.Record
}

// delivery is an event in a log of a session or in a feed.
type delivery struct {
	number uint64
	event  store.Event
	to     string // the other members
}

func (c *contents) String() string {
	var b strings.Builder
	for _, j := range c.jobs {
		fmt.Fprintf(&b, "%s %s with %d of %d events; ", j.ID, j.State, len(c.events[j.ID]), j.LastJSeq)
	}
	for _, s := range c.sessions {
		fmt.Fprintf(&b, "%s with %d of %d; ", s.ID, len(c.logs[s.ID]), s.LastSeq)
	}
	for _, name := range slices.Sorted(maps.Keys(c.feeds)) {
		fmt.Fprintf(&b, "feed of %s with %d; ", name, len(c.feeds[name]))
	}
	fmt.Fprintf(&b, "%d live jobs, %d records", len(c.live), len(c.records))
	return b.String()
}

// readContents returns all that was read before the error.
func readContents(st store.Store) (c *contents, err error) {
	ctx := context.Background()
	c = &contents{events: map[arcp.JobID][]store.Event{}, logs: map[arcp.SessionID][]delivery{}, feeds: map[string][]delivery{}}
	errs := []error{
		st.LiveJobs(ctx, collect(&c.live)), st.Jobs(ctx, store.JobQuery{Principal: "ann"}, collect(&c.jobs)),
		st.Sessions(ctx, collect(&c.sessions)), st.Records(ctx, "", "", collect(&c.records)),
		st.Feeds(ctx, func(name string) bool { c.feeds[name] = nil; return true }),
	}
	for _, j := range c.jobs {
		errs = append(errs, st.JobEvents(ctx, j.ID, 0, func(e *store.Event) bool {
			c.events[j.ID] = append(c.events[j.ID], *e)
			return true
		}))
	}
	for _, s := range c.sessions {
		errs = append(errs, st.SessionEvents(ctx, s.ID, 0, func(d store.Delivery) bool {
			c.logs[s.ID] = append(c.logs[s.ID], delivery{d.Seq, *d.Event, fmt.Sprint(d.Session, d.CorrelationID, d.Forwarded)})
			return true
		}))
	}
	for name := range c.feeds {
		errs = append(errs, st.Feed(ctx, name, 0, func(e store.FeedEvent) bool {
			c.feeds[name] = append(c.feeds[name], delivery{e.Position, *e.Event, fmt.Sprint(e.Job, e.Session, e.CorrelationID)})
			return true
		}))
	}
	return c, cmp.Or(errs...)
}

func collect[T any](all *[]T) func(T) bool {
	return func(v T) bool { *all = append(*all, v); return true }
}

// written checks that all that was read was written. The state and the numbers of events in rows are not
// compared: they may be of different commits after a loss.
func (o *original) written(t *testing.T, got *contents) {
	last := o.states[len(o.states)-1]
	for _, j := range slices.Concat(got.jobs, got.live) {
		want := last.jobs[slices.IndexFunc(last.jobs, func(w store.Job) bool { return w.ID == j.ID })]
		if j.Principal != want.Principal || j.Session != want.Session || j.SubmitID != want.SubmitID || !j.CreatedAt.Equal(want.CreatedAt) {
			t.Errorf("the row of a job is %+v, want %+v", j, want)
		}
	}
	for _, s := range got.sessions {
		want := last.sessions[slices.IndexFunc(last.sessions, func(w store.Session) bool { return w.ID == s.ID })]
		if s.Principal != want.Principal || !s.CreatedAt.Equal(want.CreatedAt) {
			t.Errorf("the row of a session is %+v, want %+v", s, want)
		}
	}
	for _, r := range got.records {
		if !slices.ContainsFunc(o.states, func(c *contents) bool {
			return slices.ContainsFunc(c.records, func(w store.Record) bool { return reflect.DeepEqual(w, r) })
		}) {
			t.Errorf("the record %+v was not written", r)
		}
	}
	arePrefixes(t, got.events, last.events)
	arePrefixes(t, got.logs, last.logs)
	arePrefixes(t, got.feeds, last.feeds)
}

// arePrefixes checks that each list is the beginning of the list that was written.
func arePrefixes[K comparable, V any](t *testing.T, got, written map[K][]V) {
	t.Helper()
	for name, list := range got {
		if want := written[name]; len(list) > len(want) || !reflect.DeepEqual(list, want[:len(list)]) && len(list) > 0 {
			t.Errorf("%v has %+v, want the beginning of %+v", name, list, want)
		}
	}
}
