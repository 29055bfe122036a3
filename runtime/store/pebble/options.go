package pebble

import (
	"fmt"
	"os"
	"time"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/arcpd/arcpd/arcp"
)

// Options of a store. The zero value has the defaults.
type Options struct {
	// IDs mints the ids of events. Default: a source of its own.
	IDs *arcp.IDSource

	// CacheBytes bounds the cache of blocks that were read. Default: 64 MiB.
	CacheBytes int64

	// MemTableBytes is the size of a memory table, which is then written to disk. Up to
	// four are in memory, and their logs on disk. The sizes of files and the intervals at
	// which the space of deleted jobs is reclaimed are in proportion to it. A store of
	// bounded size needs at most a 32nd of the bound. Default: 64 MiB.
	MemTableBytes uint64

	// MaxOpenFiles bounds the open files of tables. Default: 1,000.
	MaxOpenFiles int

	// Errorf, if set, logs failures in the background, such as a table that cannot be
	// read or written. It may be called by any goroutine.
	Errorf func(format string, args ...any)

	// Fatalf is called when the log or the list of files cannot be written, for example because
	// the disk is full. Acknowledged writes are safe, but the store is unusable: Fatalf must not
	// return. Default: print to standard error and exit with status 1.
	Fatalf func(format string, args ...any)

	fs           vfs.FS        // for tests
	reclaimPause time.Duration // for tests
	rewriteAge   time.Duration // for tests
}

// setDefaults replaces zero members by their defaults.
func (o *Options) setDefaults() {
	if o.fs == nil {
		o.fs = vfs.Default
	}
	if o.IDs == nil {
		o.IDs = new(arcp.IDSource)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = defaultMemTable
	}
	if o.reclaimPause == 0 {
		o.reclaimPause = o.scaled(reclaimPause)
	}
	if o.rewriteAge == 0 {
		o.rewriteAge = o.scaled(rewriteAge)
	}
	if o.MaxOpenFiles == 0 {
		o.MaxOpenFiles = 1000
	}
	if o.Errorf == nil {
		o.Errorf = func(string, ...any) {}
	}
	if o.Fatalf == nil {
		o.Fatalf = func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "store: "+format+"\n", args...)
			os.Exit(1)
		}
	}
}

const defaultMemTable = 64 << 20

// scaled returns an interval in proportion to MemTableBytes, at least a second: a small store is full
// sooner.
func (o *Options) scaled(d time.Duration) time.Duration {
	return max(d*time.Duration(o.MemTableBytes>>10)/(defaultMemTable>>10), time.Second)
}

// separateBytes is the least size of a value that is stored apart from its key, so that
// compactions move pointers instead of events.
const separateBytes = 512

// Once this part of the separate values is garbage, files of a minimum age are rewritten
// without it.
const (
	garbageRatio = 0.3
	rewriteAge   = time.Minute // scaled
)

// pebble returns the options of the database.
func (o *Options) pebble() *pdb.Options {
	p := &pdb.Options{
		FS:                          o.fs,
		CacheSize:                   o.CacheBytes + 2*int64(o.MemTableBytes), // memory tables are taken from the cache's share
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       64, // stalls hurt more than a slower read
		LBaseMaxBytes:               4 * int64(o.MemTableBytes),
		BytesPerSync:                1 << 20,
		MaxOpenFiles:                o.MaxOpenFiles,
		FormatMajorVersion:          pdb.FormatNewest,
		Logger:                      logger{o},
		EventListener:               &pdb.EventListener{DataCorruption: o.corruption},
	}
	p.Experimental.ValueSeparationPolicy = func() pdb.ValueSeparationPolicy {
		return pdb.ValueSeparationPolicy{Enabled: true, MinimumSize: separateBytes, MaxBlobReferenceDepth: 10,
			RewriteMinimumAge: o.rewriteAge, TargetGarbageRatio: garbageRatio}
	}
	p.TargetFileSizes[0] = int64(o.MemTableBytes / 4)
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return p
}

// corruption logs a damaged file. A read of the file returns an error; without this hook
// Pebble would end the process.
func (o *Options) corruption(info pdb.DataCorruptionInfo) { o.Errorf("%s", info) }

// logger logs errors and nothing else.
type logger struct{ o *Options }

func (logger) Infof(string, ...any)                {}
func (l logger) Errorf(format string, args ...any) { l.o.Errorf(format, args...) }
func (l logger) Fatalf(format string, args ...any) { l.o.Fatalf(format, args...) }
