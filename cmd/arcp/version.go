package main

import (
	"fmt"
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

func thisBuild() buildInfo {
	b := buildInfo{Version: version, Protocol: arcp.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if b.Version == "" {
		b.Version = moduleVersion(info)
	}
	return b
}

func moduleVersion(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "dev"
}

func (b buildInfo) String() string {
	s := "arcp " + b.Version
	if b.Commit != "" && len(b.Commit) > 12 {
		s += " (" + b.Commit[:12] + ")"
	}
	return s + ", protocol " + b.Protocol + ", " + b.Go
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
