package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The written file passes the check, as it is and with every comment as a setting.
func TestConfigInit(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "arcp.yaml")
	wantOutcome(t, "init", cli(t, "config", "init", file), exitOK, "", file+" is written")
	wantOutcome(t, "check", cli(t, "config", "check", file), exitOK, "ok: 0 settings, 0 tools\n", "")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600: the file may get tokens", info.Mode(), err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var used strings.Builder
	for line := range strings.Lines(string(text)) {
		used.WriteString(strings.TrimPrefix(line, "# "))
	}
	for _, name := range []string{"send-mail", "files-mcp", "text-worker"} {
		if err := os.Chmod(write(t, filepath.Join(dir, "bin", name), "#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	whole := write(t, filepath.Join(dir, "whole.yaml"), used.String())
	o := cli(t, "config", "check", whole)
	if o.code != exitOK || !strings.HasPrefix(o.stdout, "ok: ") || !strings.HasSuffix(o.stdout, " settings, 6 tools\n") {
		t.Errorf("every comment as a setting: %v", o)
	}

	// An existing file is kept, and replaced with --force.
	write(t, file, "drain: 5s\n")
	wantRefusal(t, cli(t, "config", "init", file), exitUsage, "exists; give another file, or --force to replace it")
	wantOutcome(t, "the file is kept", cli(t, "config", "check", file), exitOK, "ok: 1 setting", "")
	wantOutcome(t, "--force", cli(t, "config", "init", file, "--force"), exitOK, "", "is written")
	if again, err := os.ReadFile(file); err != nil || string(again) != string(text) {
		t.Errorf("the replaced file differs: %v", err)
	}
	o = cli(t, "config", "init", "-")
	if o.code != exitOK || o.stdout != string(text) || o.stderr != "" {
		t.Errorf("to standard output: %v", o)
	}
	wantRefusal(t, cli(t, "config", "init", filepath.Join(dir, "none", "arcp.yaml")), exitFailed, "no such file or directory")
	wantRefusal(t, cli(t, "config", "init", filepath.Join(dir, "none", "arcp.yaml"), "--force"), exitFailed, "no such file or directory")
}
