package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// memory is the data directory that keeps nothing.
const memory = ":memory:"

// stateDir is where this user's programs keep their state.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "arcp"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("there is no home directory to keep state in")
	}
	return filepath.Join(home, ".local", "state", "arcp"), nil
}

// defaultData is the data directory of a command that is not told one; empty if
// there is no place for it.
func defaultData(command string) string {
	if dir := os.Getenv("STATE_DIRECTORY"); command == "serve" && filepath.IsAbs(dir) {
		return dir // systemd made it for us
	}
	dir, err := stateDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, command)
}

// writeSecret puts text into a new file that only its owner can read. The file
// appears whole or not at all, and an existing one is left alone: fs.ErrExist.
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
