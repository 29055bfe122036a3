package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
)

// version is set by the linker in releases.
var version = ""

// buildInfo describes a build.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitzero"`
	Modified bool   `json:"modified,omitzero"`
	Go       string `json:"go"`
	Protocol string `json:"protocol"`
}

// thisBuild returns the description of this program.
func thisBuild() buildInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	b := describeBuild(info)
	b.Version = cmp.Or(version, b.Version)
	return b
}

// describeBuild returns the description of a build from the information that the Go tool has put into it.
func describeBuild(info *debug.BuildInfo) buildInfo {
	b := buildInfo{Version: moduleVersion(info), Go: info.GoVersion, Protocol: arcp.Version}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// moduleVersion returns the version of the module. A build outside a repository has none and is "devel", Go's word.
func moduleVersion(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "devel"
}

// String returns the line of `arcp version`.
func (b buildInfo) String() string {
	commit := cmp.Or(b.Commit[:min(len(b.Commit), 12)], "unknown")
	if b.Modified {
		commit += ", modified"
	}
	return fmt.Sprintf("arcp %s (commit %s), protocol %s, %s", b.Version, commit, b.Protocol, b.Go)
}

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs}
	output := addDocumentOutput(cmd)
	cmd.RunE = action(func(*cobra.Command, []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(thisBuild())
		}
		_, err := fmt.Fprintln(a.stdout, thisBuild())
		return err
	})
	return cmd
}
