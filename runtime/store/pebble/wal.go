package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The write-ahead log is a sequence of chunks in blocks of 32 KiB. A chunk has these members, whose
// numbers are little-endian:
//
//	bytes   member
//	0-3     CRC of the bytes after it; see walSum
//	4-5     size of the payload
//	6       type
//	7-10    number of the log
//	11-18   offset up to which the log was synced when the chunk was written
//	19-     payload
const (
	walBlock     = 32 << 10
	walHeader    = 19
	walFirstType = 9
	walLastType  = 12
)

// checkWALs refuses a directory whose log is damaged in a synced place. Pebble takes
// damage within the last block for the torn end after a crash, and would open the store
// without acknowledged writes.
func checkWALs(dir string, f vfs.FS) error {
	names, err := f.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		number, ok := walNumber(name)
		if !ok {
			continue
		}
		data, err := readFile(f, f.PathJoin(dir, name))
		if err != nil {
			return err
		}
		if at, damaged := walDamage(data, number); damaged {
			return fmt.Errorf("%s: damaged at byte %d, before data that was synced; restore the directory from a copy", name, at)
		}
	}
	return nil
}

// walNumber returns the number in the name of a log.
func walNumber(name string) (uint32, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil
}

func readFile(f vfs.FS, path string) ([]byte, error) {
	file, err := f.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(file)
	return data, errors.Join(err, file.Close())
}

// walDamage finds the first chunk that cannot be read, and whether a later chunk says
// that the log was synced beyond it.
func walDamage(data []byte, number uint32) (at int, damaged bool) {
	for at < len(data) {
		if walBlock-at%walBlock < walHeader {
			at += walBlock - at%walBlock // no room for a chunk
			continue
		}
		size, _, ok := walChunk(data, at, number)
		if !ok {
			break
		}
		at += size
	}
	for later := at + 1; later < len(data); later++ {
		if _, synced, ok := walChunk(data, later, number); ok && synced > uint64(at) {
			return at, true
		}
	}
	return at, false
}

// walChunk reads the size of the chunk at an offset, and the offset up to which the log
// was synced.
func walChunk(data []byte, at int, number uint32) (size int, synced uint64, ok bool) {
	if len(data)-at < walHeader || walBlock-at%walBlock < walHeader {
		return 0, 0, false
	}
	h := data[at:]
	if h[6] < walFirstType || h[6] > walLastType || binary.LittleEndian.Uint32(h[7:]) != number {
		return 0, 0, false
	}
	size = walHeader + int(binary.LittleEndian.Uint16(h[4:]))
	if size > len(h) || at%walBlock+size > walBlock || binary.LittleEndian.Uint32(h) != walSum(h[6:size]) {
		return 0, 0, false
	}
	return size, binary.LittleEndian.Uint64(h[11:]), true
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// walSum returns a CRC-32C, rotated and offset so that data with embedded sums does not
// sum to zero.
func walSum(p []byte) uint32 {
	c := crc32.Checksum(p, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
