package main

import (
	"context"
	"reflect"
	"slices"

	"github.com/arcpd/arcpd/cmd/arcp/internal/stdioworker"
	"github.com/arcpd/arcpd/runtime/tool/exec"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// toolChanges are the names of the tools, MCP servers, workers and workflows that a reload has changed.
type toolChanges struct{ added, changed, removed []string }

// changesOf compares two configurations.
func changesOf(before, after *toolConfig) (c toolChanges) {
	compareNames(&c, before.commands, after.commands, func(x *exec.Config) string { return x.Ref() })
	compareNames(&c, before.workflows, after.workflows, func(x *workflow.Config) string { return x.Ref() })
	compareNames(&c, before.servers, after.servers, func(x *mcp.Config) string { return "mcp:" + x.Name })
	compareNames(&c, before.workers, after.workers, func(x *stdioworker.Config) string { return "worker:" + x.Name })
	return c
}

func compareNames[C any](changes *toolChanges, before, after []C, name func(*C) string) {
	find := func(list []C, wanted string) int {
		return slices.IndexFunc(list, func(c C) bool { return name(&c) == wanted })
	}
	for i := range after {
		switch k := find(before, name(&after[i])); {
		case k < 0:
			changes.added = append(changes.added, name(&after[i]))
		case !reflect.DeepEqual(before[k], after[i]):
			changes.changed = append(changes.changed, name(&after[i]))
		}
	}
	for i := range before {
		if find(after, name(&before[i])) < 0 {
			changes.removed = append(changes.removed, name(&before[i]))
		}
	}
}

// apply replaces the configuration of running tools. An error changes nothing. Commands and workflows change at once.
// MCP servers and workers change in the background: running calls end first.
func (l *liveTools) apply(config *toolConfig) (toolChanges, error) {
	next, err := l.prepare(config)
	if err != nil {
		return toolChanges{}, err
	}
	removed := l.removedServers(config)
	tools := next.tools()
	for _, s := range removed {
		tools[s.source.Name()] = nil
		s.mu.Lock() // a publication waits: it must not follow the removal
	}
	err = l.registry.ReplaceAll(tools)
	for _, s := range removed {
		s.retired = s.retired || err == nil
		s.mu.Unlock()
	}
	if err != nil {
		for _, s := range next.servers {
			s.source.Close()
		}
		return toolChanges{}, err
	}
	config.reserve(l.registry)
	changes := changesOf(l.config, config)
	l.replaceServers(next.servers, removed)
	l.replaceWorkers(config.workers)
	l.config, l.commands, l.workflows = config, next.commands, next.workflows
	l.warnMissing()
	return changes, nil
}

// removedServers returns the servers that a configuration does not have.
func (l *liveTools) removedServers(config *toolConfig) (list []*liveServer) {
	for name, s := range l.servers {
		if !slices.ContainsFunc(config.servers, func(c mcp.Config) bool { return c.Name == name }) {
			list = append(list, s)
		}
	}
	return list
}

// replaceServers starts servers, and ends removed ones and those that are replaced.
func (l *liveTools) replaceServers(started, removed []*liveServer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range removed {
		delete(l.servers, s.config.Name)
		s.retire()
		_ = l.registry.Replace(s.source.Name(), nil) // one before s may have published since; removing tools cannot fail
		l.group.Go(func() { l.endServer(s) })
	}
	for _, s := range started {
		before := l.servers[s.config.Name]
		s.before = before
		l.servers[s.config.Name] = s
		l.group.Go(func() {
			ctx, cancel := context.WithTimeout(l.ctx, sourceTimeout)
			defer cancel()
			s.start(ctx)
			if before != nil {
				s.withdrawUnpublished()
				l.endServer(before)
			}
		})
	}
}

// endServer closes a server when its calls have ended.
func (l *liveTools) endServer(s *liveServer) {
	s.source.Drain(l.ctx)
	s.source.Close()
}

// replaceWorkers starts, replaces and ends workers in the background. The changes of one worker follow each other.
func (l *liveTools) replaceWorkers(next []stdioworker.Config) {
	for _, cfg := range next {
		before := l.workers[cfg.Name]
		if before != nil && indexOf(l.config.workers, cfg) >= 0 && !before.failed.Load() {
			continue
		}
		w := &liveWorker{ready: make(chan struct{})}
		l.workers[cfg.Name] = w
		l.group.Go(func() {
			l.endWorker(before, func() { l.rt.DrainWorker(l.ctx, cfg.Name) })
			if err := l.startWorker(l.ctx, w, cfg); err != nil {
				l.log.Error().Err(err).Str("worker", cfg.Name).Msg("a worker of the configuration file is not started; the next reload tries again")
			}
		})
	}
	for _, cfg := range l.config.workers {
		if slices.ContainsFunc(next, func(c stdioworker.Config) bool { return c.Name == cfg.Name }) {
			continue
		}
		before, w := l.workers[cfg.Name], &liveWorker{ready: make(chan struct{})}
		l.workers[cfg.Name] = w
		l.group.Go(func() {
			defer close(w.ready)
			l.endWorker(before, func() { l.rt.EndWorker(l.ctx, cfg.Name) })
		})
	}
}

// endWorker ends the program of a worker after drain, which waits for the end of its jobs. A nil worker has no program.
func (l *liveTools) endWorker(w *liveWorker, drain func()) {
	if w == nil {
		return
	}
	<-w.ready
	if w.worker == nil {
		return
	}
	drain()
	w.worker.Close()
	w.worker = nil
}
