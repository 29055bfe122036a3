package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/internal/lograte"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/store/pebble"
)

// Names in the data directory.
const (
	storeDir     = "store"
	identityFile = "identity.pem"
	devTokenFile = "dev-token"
	resourceDir  = "resources"
	artifactDir  = "artifacts"
	mcpDir       = "mcp" // the last lists of tools of MCP servers
)

// openData opens the store in the data directory, and returns it with the fingerprint of the runtime. adopt accepts
// the store of another runtime, or a store without its key.
func openData(ctx context.Context, dir string, adopt bool, maxData int64, log zerolog.Logger) (store.Store, string, error) {
	if dir == memory {
		identity, err := fingerprint("")
		return mem.Open(mem.Options{}), identity, err
	}
	if err := makeDataDir(dir); err != nil {
		return nil, "", err
	}
	if free, err := pebble.FreeSpace(dir); err != nil {
		log.Warn().Err(err).Msg("the free space of the data directory is not known")
	} else if err := checkStartSpace(dir, free); err != nil {
		return nil, "", err
	}
	st, err := openStore(filepath.Join(dir, storeDir), maxData, log)
	if err != nil {
		return nil, "", storeError(dir, err)
	}
	identity, err := checkOwner(ctx, st, dir, adopt)
	if err != nil {
		return nil, "", errors.Join(err, st.Close())
	}
	return st, identity, nil
}

// minStartSpace is the free disk space that a start needs, for the first files of the store. Without it the store
// would try to create them for ever.
const minStartSpace = 8 << 20

// checkStartSpace refuses a data directory whose disk is full.
func checkStartSpace(dir string, free uint64) error {
	if free < minStartSpace {
		return failf("data directory %s: its disk has %s free, and a start needs %s: make room", dir, binarySize(float64(free)), binarySize(minStartSpace))
	}
	return nil
}

// identityRecord is the record of the fingerprint of the runtime that a store belongs to.
const identityRecord = "identity"

// checkOwner returns the fingerprint of the runtime key in dir. It fails if the store belongs to another key, unless
// adopt is set. A store without an owner gets this owner. A copy without its key may be old, and tokens that were
// used or revoked later are still valid in it.
func checkOwner(ctx context.Context, st store.Store, dir string, adopt bool) (string, error) {
	rec, err := st.Get(ctx, identityRecord)
	if err != nil {
		return "", failf("data directory %s: %w", dir, err)
	}
	known := string(rec.Value)
	_, statErr := os.Lstat(filepath.Join(dir, identityFile))
	if known != "" && errors.Is(statErr, fs.ErrNotExist) && !adopt {
		return "", failf("data directory %s has a store without %s, the key of its runtime: restore the key from the same backup, or give --new-identity once to make this copy a new runtime", dir, identityFile)
	}
	identity, err := fingerprint(dir)
	switch {
	case err != nil || identity == known:
		return identity, err
	case known != "" && !adopt:
		return "", failf("data directory %s has the store of a runtime with another key than %s: restore both from the same backup, or give --new-identity once to make this copy a new runtime", dir, identityFile)
	}
	rec.Key, rec.Value = identityRecord, []byte(identity)
	var results [1]store.Result
	if err := st.Commit([]*store.Write{store.NewWrite().Put(rec)}, results[:]); err != nil {
		return "", failf("data directory %s: %w", dir, err)
	}
	return identity, results[0].Err
}

// openResources returns the directory for leased directories, in the data directory. For a store in memory it is a
// temporary directory, which remove deletes.
func openResources(dir string) (path string, remove func() error, err error) {
	if dir == memory {
		return openTempResources(os.TempDir())
	}
	path, err = filepath.Abs(filepath.Join(dir, resourceDir))
	return path, func() error { return nil }, err
}

// tempResources is the prefix of temporary directories. A running server has a lock on its directory.
const tempResources = "arcp-leased-"

// openTempResources creates a temporary directory below parent, and removes the directories of killed servers.
func openTempResources(parent string) (path string, remove func() error, err error) {
	removeStaleResources(parent)
	for {
		if path, err = os.MkdirTemp(parent, tempResources); err != nil {
			return "", nil, err
		}
		lock, err := lockDir(path)
		if err == nil {
			if _, err = os.Lstat(path); err == nil {
				return path, func() error { return errors.Join(os.RemoveAll(path), lock.Close()) }, nil
			}
			_ = lock.Close() // the descriptor is closed even after an error
		}
		if !errors.Is(err, errHeld) && !errors.Is(err, fs.ErrNotExist) { // otherwise another server removes the directory
			return "", nil, errors.Join(err, os.RemoveAll(path))
		}
	}
}

// removeStaleResources removes the temporary directories of this user without a lock. A failure is retried by the
// next server.
func removeStaleResources(parent string) {
	list, err := filepath.Glob(filepath.Join(parent, tempResources+"*"))
	if err != nil {
		return
	}
	for _, path := range list {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		if !ownedByUser(info) {
			continue
		}
		if lock, err := lockDir(path); err == nil {
			_ = os.RemoveAll(path) // the next server tries again
			_ = lock.Close()       // the descriptor is closed even after an error
		}
	}
}

// openStore opens a store on disk whose size is bounded by maxData; 0: no bound. A write error of the disk ends the
// process: acknowledged data is safe, and no further data can be acknowledged.
func openStore(dir string, maxData int64, log zerolog.Logger) (store.Store, error) {
	log = log.With().Str("component", "store").Logger()
	var opened atomic.Bool // earlier errors are in the returned error
	defer opened.Store(true)
	var lines lograte.Limiter // a shutdown tries again without a pause while the disk is full
	return pebble.Open(dir, pebble.Options{
		MaxOpenFiles:  storeFiles(),
		MemTableBytes: memTableBytes(maxData),
		Errorf: func(format string, args ...any) {
			if opened.Load() {
				lines.Limit(log.Error()).Msgf(format, args...)
			}
		},
		Fatalf: func(format string, args ...any) {
			log.Error().Msgf(format, args...)
			os.Exit(exitFailed)
		},
	})
}

// memTableBytes returns the size of a memory table of a store on disk: a 32nd of the bound of the store, at most the
// default. 0 is the default.
func memTableBytes(maxData int64) uint64 {
	if maxData == 0 {
		return 0
	}
	return uint64(min(maxData/32, 64<<20))
}

// storeError returns the error of a data directory with the remedy.
func storeError(dir string, err error) error {
	switch {
	case errors.Is(err, store.ErrLocked):
		return failf("data directory %s is in use by another process; stop that process, or give another directory with --data", dir)
	case errors.Is(err, store.ErrFormat):
		return failf("data directory %s was written by a newer version; use that version, or give another directory with --data", dir)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EROFS):
		return dataError(dir, err)
	}
	return failf("data directory %s cannot be opened and was not changed: %w; restore it from a backup, or give another directory with --data", dir, err)
}

// makeDataDir creates the data directory with mode 0700 unless it exists, and checks that it is writable.
func makeDataDir(dir string) error {
	if dir == "" {
		return usagef("no home directory for the data: give --data DIR, or --data :memory: for data in memory")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return dataError(dir, err)
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return dataError(dir, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// dataError returns the error of a data directory that cannot be written, with the remedy.
func dataError(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST):
		return failf("data directory %s is not a directory; give another directory with --data", dir)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return failf("data directory %s cannot be written; make it writable, or give another directory with --data", dir)
	}
	return failf("data directory %s: %w; give another directory with --data", dir, cause(err))
}

// cause returns the cause of a path error, without the path.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// fingerprint returns the identity of the runtime: the SHA-256 of the public key in the data directory. The key is
// created at the first start. An empty dir uses a temporary key.
func fingerprint(dir string) (string, error) {
	if dir == "" {
		public, _, err := ed25519.GenerateKey(rand.Reader)
		return fingerprintOf(public), err
	}
	path := filepath.Join(dir, identityFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = newIdentity(path)
	}
	if err != nil {
		return "", failf("runtime key %s: %w; make it readable", path, cause(err))
	}
	public, err := publicKey(text)
	if err != nil {
		return "", failf("runtime key %s: %w; restore it from a backup, or remove it and give --new-identity once", path, err)
	}
	return fingerprintOf(public), nil
}

func fingerprintOf(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func newIdentity(path string) ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := writeSecret(path, text); !errors.Is(err, fs.ErrExist) {
		return text, err
	}
	return os.ReadFile(path) // another process created it first
}

func publicKey(text []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not a PEM file")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it has no private key")
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it has a %T instead of an Ed25519 key", key)
	}
	return private.Public().(ed25519.PublicKey), nil
}
