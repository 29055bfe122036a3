package worker

import (
	"context"

	"github.com/arcpd/arcpd/runtime/internal/agents"
)

// Drain dispatches no more attempts to the sessions that a principal has now, and waits until they execute none, or
// until ctx ends. Attempts of their tools wait for another session.
func (p *Pool) Drain(ctx context.Context, principal string) {
	idles, refs := p.startDrain(principal)
	p.updateSlots(refs)
	for _, idle := range idles {
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
}

// Withdraw unregisters the agents that a principal has now: their tools leave the catalog. Their attempts continue.
func (p *Pool) Withdraw(principal string) {
	var list []agents.Agent
	p.mu.Lock()
	for key := range p.agents {
		if key.principal == principal {
			list = append(list, agents.Agent{Principal: key.principal, ID: key.id})
		}
	}
	p.unlock()
	for _, a := range list {
		p.Unregister(a)
	}
}

// startDrain marks the sessions of a principal, and returns a channel of each that is closed when it executes no
// attempts, and the references of their tools.
func (p *Pool) startDrain(principal string) (list []<-chan struct{}, refs []string) {
	p.mu.Lock()
	defer p.unlock()
	for _, ws := range p.workers {
		if ws.principal != principal {
			continue
		}
		if ws.drained == nil {
			ws.drained = make(chan struct{})
			ws.checkDrained()
		}
		list, refs = append(list, ws.drained), append(refs, p.refsOf(ws)...)
	}
	return list, refs
}

// checkDrained closes drained if the session executes no attempts. Called with Pool.mu.
func (ws *workerSession) checkDrained() {
	if ws.drained == nil || len(ws.dispatches) > 0 {
		return
	}
	select {
	case <-ws.drained:
	default:
		close(ws.drained)
	}
}
