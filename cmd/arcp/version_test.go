package main

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestVersionNamesTheProtocol(t *testing.T) {
	wantOutcome(t, "text", cli(t, "version"), exitOK, "protocol 1.1", "")
	wantOutcome(t, "JSON", cli(t, "version", "-o", "json"), exitOK, `"protocol":"1.1"`, "")
	wantOutcome(t, "help", cli(t), exitOK, "Work with jobs:", "")
	wantOutcome(t, "completion", cli(t, "completion", "bash"), exitOK, "bash completion", "")
}

// A build without information about its repository says so. The version is not the name of a command.
func TestVersionOfBuilds(t *testing.T) {
	for _, c := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"no module version, no repository", debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}},
			"arcp devel (commit unknown), protocol 1.1, go1.26.0"},
		{"a clean repository", debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}}},
			"arcp v1.2.3 (commit 0123456789ab), protocol 1.1, go1.26.0"},
		{"a modified repository", debug.BuildInfo{GoVersion: "go1.26.0",
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456"}, {Key: "vcs.modified", Value: "true"}}},
			"arcp devel (commit 0123456, modified), protocol 1.1, go1.26.0"},
	} {
		if got := describeBuild(&c.info).String(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	raw, err := arcp.Marshal(describeBuild(&debug.BuildInfo{}))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "commit") {
		t.Errorf("JSON of a build without a commit = %s, want no commit", raw)
	}
}
