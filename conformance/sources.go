package conformance

import (
	_ "embed"
	"io"
	"strconv"
	"strings"
)

// sources is the configuration with the tools of the groups exec, mcp and credentials.
//
//go:embed sources.yaml
var sources string

// Prefixes of tool names: of the configuration, and of tools that checks register.
const (
	mcpTools    = "check.mcp."
	checkTools  = "check."
	workerTools = "conformance."
	sourcesHint = "start the server with the configuration that `arcp conformance sources` prints"
)

// WriteSources writes a configuration in the format of arcp.yaml with the tools that the groups
// exec, mcp and credentials call. program is the path of the arcp binary on the server: the configuration starts
// `program conformance mcp`.
func WriteSources(w io.Writer, program string) error {
	_, err := io.WriteString(w, strings.ReplaceAll(sources, "PROGRAM", strconv.Quote(program)))
	return err
}
