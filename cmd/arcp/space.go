package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime/store/pebble"
)

// reserveFile takes room on the disk that is given back when the disk is nearly
// full, so that running jobs can still be given their end.
const (
	reserveFile  = "ballast"
	reserveBytes = 64 << 20
)

// diskSpace looks after the free space of a data directory.
type diskSpace struct {
	dir     string
	minFree uint64
	log     zerolog.Logger
}

// tightFactor times the floor of free space is when a ballast is taken: with
// more than that there is no need for one.
const tightFactor = 4

func (d diskSpace) free() (uint64, error) {
	n, err := pebble.FreeSpace(d.dir)
	if err == nil && n > d.minFree+2*reserveBytes && n < tightFactor*d.minFree {
		d.load()
	}
	return n, err
}

// full gives the ballast back. It is taken again when there is room.
func (d diskSpace) full(full bool) {
	if !full {
		return
	}
	if err := os.Remove(filepath.Join(d.dir, reserveFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Error().Err(err).Msg("give back the ballast")
	}
}

// load writes the ballast unless it is there.
func (d diskSpace) load() {
	name := filepath.Join(d.dir, reserveFile)
	if info, err := os.Stat(name); err == nil && info.Size() == reserveBytes {
		return
	}
	if err := writeBallast(name); err != nil {
		d.log.Warn().Err(err).Msg("no ballast: a full disk may keep jobs from ending")
		_ = os.Remove(name) // half a ballast takes room and is not known
	}
}

// writeBallast writes real bytes: a hole would take no room.
func writeBallast(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 167) // nothing that a file system packs into nothing
	}
	for range reserveBytes / len(block) {
		if _, err := f.Write(block); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}
