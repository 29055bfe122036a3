package conformance

import (
	_ "embed"
	"io"
	"strconv"
	"strings"
)

// sources is the configuration with the tools of the groups exec and mcp.
//
//go:embed sources.yaml
var sources string

// Prefixes of the tools of that configuration, and of those that checks bring.
const (
	mcpTools    = "check.mcp."
	checkTools  = "check."
	workerTools = "conformance."
	howToGetOne = ": `arcp conformance sources` prints the configuration that has it"
)

// WriteSources writes what a runtime that reads arcp.yaml needs for the groups exec
// and mcp. program is the path of arcp there: the MCP server is one of its commands.
func WriteSources(w io.Writer, program string) error {
	_, err := io.WriteString(w, strings.ReplaceAll(sources, "PROGRAM", strconv.Quote(program)))
	return err
}
