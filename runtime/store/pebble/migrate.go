package pebble

import (
	"encoding/binary"
	"fmt"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
)

// migrate converts a store of an older format. It may be interrupted: the format number is written
// last, and a second migration changes nothing. Events of format 2 and rows of jobs of format 3 are not
// rewritten: they are read as they are.
func (o opener) migrate(dir string, from uint64) error {
	if from == 1 {
		if err := o.migrateFrom1(dir); err != nil {
			return err
		}
	}
	return o.setFormat()
}

// migrateFrom1 adds the indexes of jobs by time of end and by SubmitID. Feeds begin empty.
func (o opener) migrateFrom1(dir string) error {
	if err := copyManifest(dir, o.fs); err != nil {
		return fmt.Errorf("keep the manifest: %w", err)
	}
	return o.indexJobs()
}

func (o opener) setFormat() error {
	return o.db.Set([]byte(keyFormat), binary.AppendUvarint(nil, format), pdb.Sync)
}

// copyManifest copies the list of files that the old version has written.
func copyManifest(dir string, f vfs.FS) error {
	desc, err := pdb.Peek(dir, f)
	if err != nil {
		return err
	}
	return vfs.Copy(f, desc.ManifestFilename, f.PathJoin(dir, "format-1.manifest"))
}

// migrateBytes bounds the batches of a migration.
const migrateBytes = 1 << 20

// indexJobs writes the index entries of all jobs. It may be repeated after a crash.
func (o opener) indexJobs() error {
	it, rows, err := o.viewPair(table(tJob))
	if err != nil {
		return err
	}
	defer o.release(rows, it)
	b := o.db.NewBatch()
	defer func() { _ = b.Close() }() // in memory: cannot fail
	for ok := it.First(); ok; ok = it.Next() {
		id, err := parseAfter(len(tJob), it.Key())
		if err != nil {
			return err
		}
		j, err := readJob(rows, id)
		if err != nil {
			return named(err, "job", string(id))
		}
		indexJob(b, &j)
		if b.Len() < migrateBytes {
			continue
		}
		if err := b.Commit(pdb.NoSync); err != nil {
			return err
		}
		b.Reset()
	}
	if err := readable(it.Error()); err != nil {
		return err
	}
	return b.Commit(pdb.NoSync) // the format number is synced after it
}

func indexJob(b *pdb.Batch, j *store.Job) {
	if j.State.Terminal() {
		must(b.Set(endedKey(nil, j.EndedAt, j.ID), nil, nil))
	}
	if j.Session != "" && j.SubmitID != "" {
		must(b.Set(submitKey(nil, j.Session, j.SubmitID), codec.AppendSubmitted(nil, j.ID), nil))
	}
}
