package main

import (
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
	"syscall"
)

// Names in the data directory.
const (
	storeDir     = "store"
	identityFile = "identity.pem"
	devTokenFile = "dev-token"
)

// makeDataDir makes the data directory unless it exists, for its owner alone.
func makeDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return dataError(dir, err)
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return dataError(dir, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// dataError says in one line what is wrong with a data directory.
func dataError(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST):
		return failf("data directory %s is not a directory; give another with --data", dir)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return failf("data directory %s cannot be written; make it writable or give another with --data", dir)
	}
	return failf("data directory %s: %w; give another with --data", dir, cause(err))
}

// cause is the last part of a path error, without the path.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// fingerprint identifies the runtime: the SHA-256 of the public half of a key
// that is made once in the data directory. An empty dir keeps nothing.
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
		return "", failf("runtime key %s: %w; restore it from a backup, or remove it to get a new identity", path, err)
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
	return os.ReadFile(path) // another process was faster
}

func publicKey(text []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not a PEM file")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it holds no private key")
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it holds a %T, not an Ed25519 key", key)
	}
	return private.Public().(ed25519.PublicKey), nil
}
