package worker

// ConnectedAgents returns the number of agents with a connection that execute a tool, by reference.
func (p *Pool) ConnectedAgents(ref string) (n int) {
	t := p.tool(ref)
	if t == nil {
		return 0
	}
	p.mu.Lock()
	defer p.unlock()
	for _, a := range t.agents {
		if a.worker.conn != nil {
			n++
		}
	}
	return n
}

// Running returns the number of jobs that an agent executes.
func (p *Pool) Running(principal, agentID string) int {
	p.mu.Lock()
	defer p.unlock()
	if a := p.agents[agentKey{principal, agentID}]; a != nil {
		return a.jobs
	}
	return 0
}
