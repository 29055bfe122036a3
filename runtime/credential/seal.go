package credential

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/osfile"
)

// KeyFile is the name of the key file in a data directory.
const KeyFile = "secret.key"

const (
	keyLen   = 32
	keyIDLen = 8
	maxKeys  = 16
	maxFile  = 1 << 20 // bytes of a file of keys, values or a token
)

// ErrSealed is the error of Open: the data was changed, belongs to another credential, or was
// sealed with a key that is not configured any more.
var ErrSealed = errors.New("the sealed value does not open: it was changed, or its key is missing")

// Sealer encrypts values with AES-256-GCM, bound to the credential they belong
// to. It may be used by many goroutines.
type Sealer struct {
	keys []sealKey // the first one seals
}

type sealKey struct {
	id   [keyIDLen]byte
	aead cipher.AEAD
}

// NewSealer returns a Sealer that seals with the first key and opens with all keys. A key has
// 32 bytes.
func NewSealer(keys ...[]byte) (*Sealer, error) {
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, fmt.Errorf("%d keys: want 1 to %d", len(keys), maxKeys)
	}
	s := new(Sealer)
	for i, key := range keys {
		if len(key) != keyLen {
			return nil, fmt.Errorf("key %d has %d bytes: want %d", i+1, len(key), keyLen)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		hash := sha256.Sum256(append([]byte("arcp key id\x00"), key...))
		s.keys = append(s.keys, sealKey{[keyIDLen]byte(hash[:]), aead})
	}
	return s, nil
}

// EphemeralSealer returns a Sealer with a random key in memory, for a store in memory.
func EphemeralSealer() *Sealer {
	s, err := NewSealer(newKey())
	if err != nil {
		panic(err) // the key has the right length
	}
	return s
}

func newKey() []byte {
	key := make([]byte, keyLen)
	_, _ = rand.Read(key) // never fails
	return key
}

// LoadSealer reads a key file with 64 hex digits a line. The first key seals. Only the file's
// owner may have access to it.
func LoadSealer(path string) (*Sealer, error) {
	data, err := readPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	var keys [][]byte
	for n, line := range lines(data) {
		key, err := hex.DecodeString(string(line))
		if err != nil || len(key) != keyLen {
			return nil, fmt.Errorf("key file: line %d is not 64 hex digits: make a key with openssl rand -hex 32", n)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("key file: there is no key in it: make one with openssl rand -hex 32")
	}
	return NewSealer(keys...)
}

// OpenSealer reads the key file of a data directory, or creates it atomically and durably.
func OpenSealer(dir string) (*Sealer, error) {
	path := filepath.Join(dir, KeyFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := createKey(dir, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make a key file: %w", err)
		}
	}
	return LoadSealer(path)
}

func createKey(dir, path string) error {
	f, err := os.CreateTemp(dir, ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(newKey()) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil { // unlike a rename it leaves an existing one alone
		return err
	}
	return osfile.SyncDir(dir)
}

// bound returns the additional authenticated data of a sealed value, which binds it to one
// credential of one job. Ids are visible ASCII, so the zero byte separates them.
func bound(job arcp.JobID, id string) []byte {
	return []byte("arcp credential 1\x00" + string(job) + "\x00" + id)
}

// Seal encrypts the value of a credential. The result begins with the id of the key, followed
// by a random nonce.
func (s *Sealer) Seal(job arcp.JobID, id string, value Secret) []byte {
	k := &s.keys[0]
	out := make([]byte, keyIDLen+k.aead.NonceSize(), keyIDLen+k.aead.NonceSize()+len(value)+k.aead.Overhead())
	copy(out, k.id[:])
	_, _ = rand.Read(out[keyIDLen:]) // never fails
	return k.aead.Seal(out, out[keyIDLen:], []byte(value), bound(job, id))
}

// Open decrypts the result of Seal for the same job and credential. Otherwise it returns
// ErrSealed.
func (s *Sealer) Open(job arcp.JobID, id string, sealed []byte) (Secret, error) {
	for i := range s.keys {
		k := &s.keys[i]
		rest, ok := bytes.CutPrefix(sealed, k.id[:])
		if !ok || len(rest) < k.aead.NonceSize() {
			continue
		}
		nonce, text := rest[:k.aead.NonceSize()], rest[k.aead.NonceSize():]
		if value, err := k.aead.Open(nil, nonce, text, bound(job, id)); err == nil {
			return Secret(value), nil
		}
	}
	return "", ErrSealed
}

// readPrivate reads a file that only its owner has access to. Its errors do not repeat the
// content.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case osfile.Shared(info):
		return nil, fmt.Errorf("%s can be used by others than its owner: chmod 600 it", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return data, err
}

// lines yields the trimmed lines of a file with their numbers, without empty lines and
// comments.
func lines(data []byte) func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		n := 0
		for line := range bytes.Lines(data) {
			n++
			if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
				continue
			}
			if !yield(n, line) {
				return
			}
		}
	}
}
