package pebble

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A log with damage before synced data is refused, wherever the damage is. A log without
// its end is opened: a crash leaves such a log.
func TestDamagedLogIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	commit(t, s, newSession(sess), newJob(job))
	for range 12 {
		commit(t, s, emit(job, 1))
	}
	name, data := largestLog(t, dir)
	number, _ := walNumber(name)
	end, damaged := walDamage(data, number)
	if damaged || end < 1000 {
		t.Fatalf("an undamaged log ends at %d, damaged: %v", end, damaged)
	}
	last, promised := lastChunk(t, data, number)
	for at := 0; at < min(last-1, int(promised)); at += 97 {
		harmed := append([]byte{}, data...)
		harmed[at] ^= 0x55
		copied := copyDir(t, dir)
		if err := os.WriteFile(filepath.Join(copied, name), harmed, 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := Open(copied, Options{})
		if err == nil {
			t.Fatalf("a log damaged at %d of %d was opened: %v", at, last, st.Close())
		}
		if !strings.Contains(err.Error(), name+": damaged at byte") {
			t.Fatalf("damaged at %d: %v, want an error that names the file", at, err)
		}
		if after, err := os.ReadFile(filepath.Join(copied, name)); err != nil || string(after) != string(harmed) {
			t.Fatalf("the damaged log was changed: %v", err)
		}
	}
	for _, cut := range []int{last, last + 5, end - 1} {
		if at, damaged := walDamage(data[:cut], number); damaged {
			t.Errorf("a log that ends at %d is said to be damaged at %d", cut, at)
		}
	}
}

func largestLog(t *testing.T, dir string) (name string, data []byte) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range logs {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > len(data) {
			name, data = filepath.Base(path), b
		}
	}
	return name, data
}

// lastChunk returns the offset of the last chunk, and the offset up to which that chunk
// declares the log synced. Usually both are equal; sometimes the latter is the offset of an
// earlier chunk.
func lastChunk(t *testing.T, data []byte, number uint32) (last int, promised uint64) {
	t.Helper()
	for at := 0; ; {
		size, synced, ok := walChunk(data, at, number)
		if !ok {
			return last, promised
		}
		last, promised, at = at, synced, at+size
	}
}
