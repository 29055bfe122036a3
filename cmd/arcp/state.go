package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// memory is the value of --data for data in memory.
const memory = ":memory:"

// stateDir returns the state directory of this user.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "arcp"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("no home directory")
	}
	return filepath.Join(home, ".local", "state", "arcp"), nil
}

// defaultData returns the default data directory of a command; "" without a home directory.
func defaultData(command string) string {
	if dir := os.Getenv("STATE_DIRECTORY"); command == "serve" && filepath.IsAbs(dir) {
		return dir // created by systemd
	}
	dir, err := stateDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, command)
}

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
