package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeSecret creates a file of mode 0600 with text, atomically. If the file exists the error is fs.ErrExist.
func writeSecret(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Link(f.Name(), path)
}
