package pebble

import (
	"encoding/binary"
	"fmt"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
)

// migrate makes a store of format 1 one of format 2: jobs are found by when they
// ended and by the ids of their submits. Feeds begin empty. It may be
// interrupted: the format's number is written last, and doing it again changes
// nothing.
func (s *Store) migrate(dir string, f vfs.FS) error {
	if err := keepManifest(dir, f); err != nil {
		return fmt.Errorf("keep the manifest: %w", err)
	}
	if err := s.indexJobs(); err != nil {
		return err
	}
	return s.setFormat()
}

func (s *Store) setFormat() error {
	return s.db.Set([]byte(keyFormat), binary.AppendUvarint(nil, format), pdb.Sync)
}

// keepManifest copies the list of files as the old version left it.
func keepManifest(dir string, f vfs.FS) error {
	desc, err := pdb.Peek(dir, f)
	if err != nil {
		return err
	}
	return vfs.Copy(f, desc.ManifestFilename, f.PathJoin(dir, "format-1.manifest"))
}

// migrateBytes bounds the batches of a migration.
const migrateBytes = 1 << 20

func (s *Store) indexJobs() error {
	it, rows, err := s.pair(table(tJob))
	if err != nil {
		return err
	}
	defer s.release(rows, it)
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }() // it is in memory
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
	if err := it.Error(); err != nil {
		return err
	}
	return b.Commit(pdb.NoSync) // the format's number, which comes next, is synced
}

func indexJob(b *pdb.Batch, j *store.Job) {
	if j.State.Terminal() {
		must(b.Set(endedKey(nil, j.EndedAt, j.ID), nil, nil))
	}
	if j.Session != "" && j.SubmitID != "" {
		must(b.Set(submitKey(nil, j.Session, j.SubmitID), codec.AppendSubmitted(nil, j.ID), nil))
	}
}
