package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/cmd/arcp/internal/stdioworker"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/exec"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// sourceTimeout bounds the wait for the tools of an MCP server, during the start and a reload. Later tools are added
// later.
const sourceTimeout = 30 * time.Second

// Names of the sources in the registry.
const (
	execSource     = string(tool.SourceExec)
	workflowSource = "workflow"
)

// liveTools are the tools of the configuration file in a running server. One goroutine at a time calls the methods but
// refresh, which any goroutine may call.
type liveTools struct {
	registry  *tool.Registry
	metrics   *mcp.Metrics
	log       zerolog.Logger
	readLimit int64            // bytes of a frame of a worker
	listDir   string           // of the lists of MCP servers; empty: they are not saved
	rt        *runtime.Runtime // set before startWorkers

	config    *toolConfig
	commands  []*tool.Tool   // of config.commands
	workflows [][]*tool.Tool // of config.workflows
	workers   map[string]*liveWorker

	mu      sync.Mutex
	servers map[string]*liveServer

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	group  sync.WaitGroup // replacements of servers and workers
}

func newLiveTools(registry *tool.Registry, metrics *mcp.Metrics, readLimit int64, listDir string, log zerolog.Logger) *liveTools {
	l := &liveTools{registry: registry, metrics: metrics, readLimit: readLimit, listDir: listDir, log: log, config: new(toolConfig),
		workers: make(map[string]*liveWorker), servers: make(map[string]*liveServer)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// publish publishes commands and workflows. It does not wait for programs. The caller must call close, even after an
// error.
func (l *liveTools) publish(config *toolConfig) error {
	next, err := l.prepare(config)
	if err != nil {
		return err
	}
	if err := l.registry.ReplaceAll(next.tools()); err != nil {
		return failf("tools of the configuration file: %w", err)
	}
	config.reserve(l.registry)
	for _, s := range next.servers {
		l.servers[s.config.Name] = s
	}
	l.config, l.commands, l.workflows = config, next.commands, next.workflows
	return nil
}

// startServers starts the MCP servers. It returns when all have published their tools, or after sourceTimeout. publish
// precedes it.
func (l *liveTools) startServers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range l.servers {
		all.Go(func() { s.start(ctx) })
	}
	all.Wait()
	l.warnMissing()
}

// count returns the number of tools of the server, with those that are not of the configuration file.
func (l *liveTools) count() int { return len(l.registry.Tools()) }

// startWorkers starts the workers at the same time, and returns when each has registered its tools or ctx ends.
func (l *liveTools) startWorkers(ctx context.Context, rt *runtime.Runtime) error {
	l.rt = rt
	failures := make([]error, len(l.config.workers))
	var all sync.WaitGroup
	for i, cfg := range l.config.workers {
		w := &liveWorker{ready: make(chan struct{})}
		l.workers[cfg.Name] = w
		all.Go(func() { failures[i] = l.startWorker(ctx, w, cfg) })
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return failf("start the workers of the configuration file: %w", err)
	}
	return nil
}

func (l *liveTools) startWorker(ctx context.Context, w *liveWorker, cfg stdioworker.Config) (err error) {
	defer close(w.ready)
	cfg.Log, cfg.ReadLimit = l.log, l.readLimit
	w.worker, err = stdioworker.Start(ctx, cfg, l.rt)
	w.failed.Store(err != nil)
	return err
}

// warnMissing logs the tools of workflows that do not exist yet. A worker may register them later.
func (l *liveTools) warnMissing() {
	exists := func(ref string) bool { _, err := l.registry.Resolve(ref); return err == nil }
	for _, call := range workflow.NewSource(l.config.workflows).Missing(exists) {
		l.log.Warn().Str("call", call).Msg("a workflow calls a tool that does not exist yet")
	}
}

// refresh makes the MCP servers list their tools again.
func (l *liveTools) refresh(ctx context.Context) error {
	l.mu.Lock()
	servers := slices.Collect(maps.Values(l.servers))
	l.mu.Unlock()
	failures := make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { failures[i] = s.source.Refresh(ctx) })
	}
	all.Wait()
	return errors.Join(failures...)
}

// close ends the servers and workers at the same time, because some programs end slowly.
func (l *liveTools) close() {
	l.cancel()
	l.group.Wait()
	var all sync.WaitGroup
	for _, s := range l.servers {
		all.Go(s.source.Close)
	}
	for _, w := range l.workers {
		if w.worker != nil {
			all.Go(w.worker.Close)
		}
	}
	all.Wait()
}

// preparedTools are the tools of a configuration before they are published. Unchanged tools are those that exist.
type preparedTools struct {
	commands  []*tool.Tool
	workflows [][]*tool.Tool
	servers   []*liveServer // added or changed
}

// tools returns the tools of commands and workflows by source.
func (p *preparedTools) tools() map[string][]*tool.Tool {
	return map[string][]*tool.Tool{execSource: p.commands, workflowSource: slices.Concat(p.workflows...)}
}

// prepare makes the tools of a configuration. It starts nothing.
func (l *liveTools) prepare(config *toolConfig) (*preparedTools, error) {
	p := new(preparedTools)
	for _, c := range config.commands {
		if i := indexOf(l.config.commands, c); i >= 0 {
			p.commands = append(p.commands, l.commands[i])
			continue
		}
		c.Log = l.log
		t, err := exec.New(c)
		if err != nil {
			return nil, err
		}
		p.commands = append(p.commands, t)
	}
	for _, c := range config.workflows {
		if i := indexOf(l.config.workflows, c); i >= 0 {
			p.workflows = append(p.workflows, l.workflows[i])
			continue
		}
		tools, err := workflow.New(c)
		if err != nil {
			return nil, err
		}
		p.workflows = append(p.workflows, tools)
	}
	for _, c := range config.servers {
		if indexOf(l.config.servers, c) >= 0 {
			continue
		}
		s, err := l.newServer(c)
		if err != nil {
			return nil, err
		}
		p.servers = append(p.servers, s)
	}
	return p, nil
}

// indexOf returns the index of an equal configuration, or -1.
func indexOf[C any](list []C, c C) int {
	return slices.IndexFunc(list, func(other C) bool { return reflect.DeepEqual(other, c) })
}

// liveServer is an MCP server of the configuration file.
type liveServer struct {
	config   mcp.Config
	source   *mcp.Source
	registry *tool.Registry
	log      zerolog.Logger

	mu        sync.Mutex
	published bool
	retired   bool        // it publishes no more
	before    *liveServer // the server that this one replaces, until this one has published; nil: none
}

func (l *liveTools) newServer(c mcp.Config) (*liveServer, error) {
	s := &liveServer{config: c, registry: l.registry, log: l.log.With().Str("source", "mcp:"+c.Name).Logger()}
	c.Log, c.Metrics = l.log, l.metrics
	if l.listDir != "" {
		c.ListFile = filepath.Join(l.listDir, c.Name+".json")
	}
	var err error
	s.source, err = mcp.New(c)
	return s, err
}

// start starts the server, and returns when it has published its tools or ctx ends.
func (s *liveServer) start(ctx context.Context) {
	s.log.Info().Msg("waiting for tools")
	if err := s.source.Start(ctx, s.publish); err != nil {
		s.log.Error().Err(err).Msg("the last tools of an MCP server that does not answer are not published")
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !s.hasPublished() {
		s.log.Warn().Msg(fmt.Sprintf("no tools within %s; they are added when the source publishes them", sourceTimeout))
	}
}

// hasPublished reports whether the server has tools, of its last list or of the one before.
func (s *liveServer) hasPublished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.published
}

// publish replaces the tools of the server. The first publication retires the server before.
func (s *liveServer) publish(tools []*tool.Tool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil
	}
	s.retireBefore()
	err := s.registry.Replace(s.source.Name(), tools)
	if err == nil {
		s.published = true
		s.log.Info().Int("tools", len(tools)).Msg("tools published")
	}
	return err
}

// retireBefore retires the server before. Called with s.mu.
func (s *liveServer) retireBefore() {
	if s.before != nil {
		s.before.retire()
		s.before = nil
	}
}

// retire ends the publications of the server and of those before.
func (s *liveServer) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.retireBefore()
}

// withdrawUnpublished removes the tools of the server before, if this one has published none.
func (s *liveServer) withdrawUnpublished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.published && !s.retired {
		s.retireBefore()
		_ = s.registry.Replace(s.source.Name(), nil) // removing tools cannot fail
	}
}

// liveWorker is a worker of the configuration file.
type liveWorker struct {
	ready  chan struct{}       // closed when worker is set
	worker *stdioworker.Worker // nil: it is not started
	failed atomic.Bool         // its program has registered no tool
}
