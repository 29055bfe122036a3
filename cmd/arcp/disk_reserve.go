package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime/store/pebble"
)

// The reserve is a file that is removed when the disk is nearly full, so the ends of running jobs can still be
// written.
const (
	reserveFile    = "reserve"
	oldReserveFile = "ballast" // name of the file in earlier versions
	reserveBytes   = 64 << 20
)

// diskSpace reserves disk space in a data directory.
type diskSpace struct {
	dir     string
	minFree uint64
	log     zerolog.Logger
}

// newDiskSpace returns the disk space of a data directory. It renames the reserve of an earlier version.
func newDiskSpace(dir string, minFree uint64, log zerolog.Logger) diskSpace {
	d := diskSpace{dir, minFree, log}
	if err := os.Rename(filepath.Join(dir, oldReserveFile), d.reserve()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error().Err(err).Msg("rename the disk reserve of an earlier version")
	}
	return d
}

func (d diskSpace) reserve() string { return filepath.Join(d.dir, reserveFile) }

// tightFactor times minFree is the free space below which the reserve is created.
const tightFactor = 4

// free returns the free bytes of the disk. It creates the reserve if the disk has space for it.
func (d diskSpace) free() (uint64, error) {
	n, err := pebble.FreeSpace(d.dir)
	if err == nil && n > d.minFree+2*reserveBytes && n < tightFactor*d.minFree {
		d.makeReserve()
	}
	return n, err
}

// full removes the reserve if the disk is full. free creates the reserve again.
func (d diskSpace) full(full bool) {
	if !full {
		return
	}
	if err := os.Remove(d.reserve()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Error().Err(err).Msg("remove the disk reserve")
	}
}

// makeReserve writes the reserve unless it exists.
func (d diskSpace) makeReserve() {
	name := d.reserve()
	if info, err := os.Stat(name); err == nil && info.Size() == reserveBytes {
		return
	}
	if err := writeReserve(name); err != nil {
		d.log.Warn().Err(err).Msg("no disk reserve: a full disk may prevent the end of jobs")
		_ = os.Remove(name) // the next makeReserve overwrites a remaining part
	}
}

// writeReserve writes a file without holes, which would use no space.
func writeReserve(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 167) // prevents compression by the file system
	}
	for range reserveBytes / len(block) {
		if _, err := f.Write(block); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}
