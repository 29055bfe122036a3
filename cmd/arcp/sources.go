package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/cmd/arcp/internal/stdioworker"
	"github.com/arcpd/arcpd/cmd/arcp/internal/toolset"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/exec"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// sourceTimeout bounds the wait for the tools of a source during the start. Later tools are added later.
const sourceTimeout = 30 * time.Second

// sources are the tool sources in the configuration file.
type sources []tool.Source

// toolConfig is the checked configuration of tools and workflows in the configuration file.
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
			e.Exec.Hide, e.Exec.Log = secrets, log
			c.commands = append(c.commands, *e.Exec)
			key, err = "", exec.Check(e.Exec)
		case e.MCP != nil:
			server := mcpConfig(e.MCP)
			c.servers = append(c.servers, server)
			key, err = "mcp", checkMCP(server)
		default:
			w := e.Worker
			c.workers = append(c.workers, stdioworker.Config{Name: w.Name, Command: w.Command, Env: w.Env, Dir: w.Dir, Tools: w.Allow,
				ReadLimit: v.Size("max-frame")})
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

// open returns the sources of commands, MCP servers and workflows.
func (c *toolConfig) open(log zerolog.Logger, metrics *mcp.Metrics) (list sources, err error) {
	for _, server := range c.servers {
		server.Log, server.Metrics = log, metrics
		s, err := mcp.New(server)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	if len(c.commands) > 0 {
		list = append(list, exec.NewSource(c.commands))
	}
	if len(c.workflows) > 0 {
		list = append(list, workflow.NewSource(c.workflows))
	}
	return list, nil
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

// start starts all sources at the same time. It returns when all have published their tools, or after sourceTimeout.
// The caller must close the sources, even after an error.
func (list sources) start(ctx context.Context, registry *tool.Registry, log zerolog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	failures := make([]error, len(list))
	var all sync.WaitGroup
	for i, s := range list {
		if prefix := s.Prefix(); prefix != "" {
			registry.ReservePrefix(prefix)
		}
		all.Go(func() { failures[i] = startSource(ctx, s, registry, log) })
	}
	all.Wait()
	list.warnMissing(registry, log)
	return errors.Join(failures...)
}

// warnMissing logs the tools of workflows that do not exist yet. A worker may register them later.
func (list sources) warnMissing(registry *tool.Registry, log zerolog.Logger) {
	exists := func(ref string) bool { _, err := registry.Resolve(ref); return err == nil }
	for _, s := range list {
		if w, ok := s.(*workflow.Source); ok {
			for _, call := range w.Missing(exists) {
				log.Warn().Str("call", call).Msg("a workflow calls a tool that does not exist yet")
			}
		}
	}
}

func startSource(ctx context.Context, s tool.Source, registry *tool.Registry, log zerolog.Logger) error {
	publish := func(tools []*tool.Tool) error {
		err := registry.Replace(s.Name(), tools)
		if err == nil {
			log.Info().Str("source", s.Name()).Int("tools", len(tools)).Msg("tools published")
		}
		return err
	}
	log.Info().Str("source", s.Name()).Msg("waiting for tools")
	if err := s.Start(ctx, publish); err != nil {
		return failf("tools of %s: %w", s.Name(), err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		log.Warn().Str("source", s.Name()).Msg(fmt.Sprintf("no tools within %s; they are added when the source publishes them", sourceTimeout))
	}
	return nil
}

// refresh makes the sources that support it list their tools again.
func (list sources) refresh(ctx context.Context) error {
	failures := make([]error, len(list))
	var all sync.WaitGroup
	for i, s := range list {
		if r, ok := s.(interface{ Refresh(context.Context) error }); ok {
			all.Go(func() { failures[i] = r.Refresh(ctx) })
		}
	}
	all.Wait()
	return errors.Join(failures...)
}

// startWorkers starts the workers at the same time, and returns when each has registered its tools or ctx ends. After an
// error no worker runs.
func startWorkers(ctx context.Context, list []stdioworker.Config, server stdioworker.Server, log zerolog.Logger) ([]*stdioworker.Worker, error) {
	started, failures := make([]*stdioworker.Worker, len(list)), make([]error, len(list))
	var all sync.WaitGroup
	for i, cfg := range list {
		cfg.Log = log
		all.Go(func() { started[i], failures[i] = stdioworker.Start(ctx, cfg, server) })
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		closeWorkers(slices.DeleteFunc(started, func(p *stdioworker.Worker) bool { return p == nil }))
		return nil, failf("start the workers of the configuration file: %w", err)
	}
	return started, nil
}

// closeWorkers ends the workers at the same time.
func closeWorkers(list []*stdioworker.Worker) {
	var all sync.WaitGroup
	for _, p := range list {
		all.Go(p.Close)
	}
	all.Wait()
}

// close ends the sources at the same time, because the programs of some end slowly.
func (list sources) close() {
	var all sync.WaitGroup
	for _, s := range list {
		all.Go(s.Close)
	}
	all.Wait()
}
