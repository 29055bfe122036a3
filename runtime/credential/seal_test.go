package credential

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

func TestSealBindsValueToCredential(t *testing.T) {
	s := EphemeralSealer()
	rapid.Check(t, func(t *rapid.T) {
		value := Secret(rapid.StringN(0, 100, -1).Draw(t, "value"))
		sealed := s.Seal("job_1", "cred_1", value)
		if got, err := s.Open("job_1", "cred_1", sealed); err != nil || got != value {
			t.Fatalf("Open = %q, %v", got.Reveal(), err)
		}
		if bytes.Equal(sealed, s.Seal("job_1", "cred_1", value)) {
			t.Fatal("the same value is sealed alike twice")
		}
		for _, other := range [][2]string{{"job_2", "cred_1"}, {"job_1", "cred_2"}, {"job_1c", "red_1"}} {
			if _, err := s.Open(arcp.JobID(other[0]), other[1], sealed); !errors.Is(err, ErrSealed) {
				t.Fatalf("Open for %v = %v, want %v", other, err, ErrSealed)
			}
		}
		i := rapid.IntRange(0, len(sealed)-1).Draw(t, "byte")
		changed := bytes.Clone(sealed)
		changed[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		for _, bad := range [][]byte{changed, sealed[:i], append(bytes.Clone(sealed), 0)} {
			if _, err := s.Open("job_1", "cred_1", bad); !errors.Is(err, ErrSealed) {
				t.Fatalf("Open of what was changed = %v, want %v", err, ErrSealed)
			}
		}
	})
}

func TestKeysAreRotated(t *testing.T) {
	k1, k2 := newKey(), newKey()
	seal := func(keys ...[]byte) *Sealer {
		s, err := NewSealer(keys...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before, during, after := seal(k1), seal(k2, k1), seal(k2)
	old, young := before.Seal("job_1", "c", "old"), during.Seal("job_1", "c", "young")
	if v, err := during.Open("job_1", "c", old); err != nil || v != "old" {
		t.Errorf("an old value does not open: %v", err)
	}
	if v, err := after.Open("job_1", "c", young); err != nil || v != "young" {
		t.Errorf("the first key does not seal: %v", err)
	}
	if _, err := after.Open("job_1", "c", old); !errors.Is(err, ErrSealed) {
		t.Errorf("opened without its key: %v", err)
	}
	if _, err := NewSealer(); err == nil {
		t.Error("a sealer without keys")
	}
	if _, err := NewSealer(k1[:16]); err == nil {
		t.Error("a sealer with a short key")
	}
}

func TestKeyFileIsCreatedOnce(t *testing.T) {
	dir := t.TempDir()
	sealed := make([][]byte, 8)
	sealers := make([]*Sealer, len(sealed))
	var wg sync.WaitGroup
	for i := range sealed {
		wg.Go(func() {
			s, err := OpenSealer(dir)
			if err != nil {
				t.Error(err)
				return
			}
			sealers[i], sealed[i] = s, s.Seal("job_1", "c", "value")
		})
	}
	wg.Wait()
	for i := range sealed {
		if v, err := sealers[0].Open("job_1", "c", sealed[i]); err != nil || v != "value" {
			t.Fatalf("sealer %d has another key: %v", i, err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 || files[0].Name() != KeyFile {
		t.Errorf("files = %v, %v, want only %s", files, err, KeyFile)
	}
	path := filepath.Join(dir, KeyFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v, want 0600", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSealer(dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("OpenSealer of a file others can read = %v", err)
	}
}

func TestKeyFileErrors(t *testing.T) {
	key := hex.EncodeToString(newKey())
	for text, want := range map[string]string{
		"":                                  "there is no key",
		"# comment\n\n":                     "there is no key",
		"# c\n" + key + "\nx\n":             "line 3",
		key[:62]:                            "line 1",
		strings.Repeat("\n", 2e6):           "larger",
		strings.Repeat(key+"\n", maxKeys+1): "17 keys",
	} {
		_, err := LoadSealer(private(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), key[:20]) {
			t.Errorf("the error has the key in it: %v", err)
		}
	}
	if _, err := LoadSealer(private(t, "# ours\n"+key+"\n  "+key+"  \n")); err != nil {
		t.Errorf("LoadSealer of two keys with a comment: %v", err)
	}
	if _, err := LoadSealer(t.TempDir()); err == nil {
		t.Error("a directory is a key file")
	}
}

// private writes a file only its owner can read.
func private(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
