package main

import (
	"errors"
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
