package main

import (
	"errors"
	osexec "os/exec"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/cmd/arcp/internal/stdioworker"
	"github.com/arcpd/arcpd/cmd/arcp/internal/toolset"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/exec"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// toolConfig is the checked configuration of tools and workflows in the configuration file. The configurations have
// only what the file says: no logs, metrics and limits of frames.
type toolConfig struct {
	entries   int // number of tools and workflows
	commands  []exec.Config
	servers   []mcp.Config
	workers   []stdioworker.Config
	workflows []workflow.Config
}

// loadTools reads and checks the settings tools and workflows. The error has every mistake.
func loadTools(v *settings.Values, log zerolog.Logger) (*toolConfig, error) {
	entries, err := toolset.Load(v)
	mistakes := []error{err}
	c := &toolConfig{}
	c.workflows, err = toolset.LoadWorkflows(v)
	mistakes = append(mistakes, err)
	c.entries = len(entries) + len(c.workflows)
	secrets := secretFiles(v, entries)
	for i := range entries {
		e := &entries[i]
		var key string
		switch {
		case e.Exec != nil:
			e.Exec.Hide = secrets
			c.commands = append(c.commands, *e.Exec)
			e.Exec.Log = log
			err = exec.Check(e.Exec)
			if _, missing := errors.AsType[*osexec.Error](err); missing {
				key = "exec"
			}
		case e.MCP != nil:
			server := mcpConfig(e.MCP)
			c.servers = append(c.servers, server)
			if e.Partial { // the other members are checked
				server = mcp.Config{Name: "unnamed", Prefix: "unnamed.", Command: server.Command, URL: server.URL}
				if server.URL != "" {
					server.HeadersFile = e.MCP.HeadersFile
				}
			}
			key, err = "mcp", checkMCP(server)
		default:
			w := e.Worker
			c.workers = append(c.workers, stdioworker.Config{Name: w.Name, Command: w.Command, Env: w.Env, Dir: w.Dir, Tools: w.Allow})
			key, err = "worker.command", exec.CheckProgram(w.Command, w.Dir)
		}
		if err != nil {
			mistakes = append(mistakes, e.Mistake(v, key, err))
		}
	}
	return c, settings.Join(mistakes...)
}

// checkMCP returns an error for a server that cannot be reached or started because of its configuration.
func checkMCP(c mcp.Config) error {
	s, err := mcp.New(c)
	if err == nil {
		s.Close()
	}
	return err
}

// reserve reserves the names of MCP servers and workers.
func (c *toolConfig) reserve(registry *tool.Registry) {
	var prefixes []string
	for _, s := range c.servers {
		prefixes = append(prefixes, s.Prefix)
	}
	globs := make(map[string][]string)
	for _, w := range c.workers {
		globs[auth.NewProgram(w.Name, nil).Principal] = w.Tools
	}
	registry.ReplaceReserved(prefixes, globs)
}

// secretFiles returns the files and directories of the server that a sandbox hides: secrets, and the unix socket,
// where a command would be authenticated as the user of the server.
func secretFiles(v *settings.Values, entries []toolset.Entry) []string {
	list := []string{v.File, v.Text("auth-file"), v.Text("tls-key"), v.Text("secret-key-file"), v.Text("unix")}
	if dir := v.Text("data"); dir != memory {
		list = append(list, dir)
	}
	if file, err := knownTokenFile(0); err == nil {
		list = append(list, filepath.Dir(file))
	}
	for _, e := range entries {
		if e.MCP != nil {
			list = append(list, e.MCP.HeadersFile)
		}
	}
	provisioners, _ := credential.ParseConfigs(v.Block("provisioners")) // errors are reported later
	for _, p := range provisioners {
		list = append(list, p.File, p.TokenFile)
	}
	list = slices.DeleteFunc(list, func(name string) bool { return name == "" })
	for i, name := range list {
		if full, err := filepath.Abs(name); err == nil {
			list[i] = full
		}
	}
	return list
}

func usageOf(err error) error { return &exitError{exitUsage, err} }

// mcpConfig returns the configuration of an MCP server.
func mcpConfig(m *toolset.MCP) mcp.Config {
	return mcp.Config{
		Name: m.Name, Command: m.Command, Env: m.Env, Dir: m.Dir, URL: m.URL, HeadersFile: m.HeadersFile,
		Prefix: m.Prefix, Allow: m.Allow, SideEffect: m.SideEffect, Approval: m.Approval, Limits: m.Limits,
		Version: thisBuild().Version,
	}
}
