package mcp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/arcpd/arcpd/runtime/tool/exec"
)

// process is a server that runs as a program. It and all processes that it has started end with the
// runtime, also when that is killed.
type process struct {
	*exec.Process
	once sync.Once
}

// exitWait bounds the wait for the end of a program after the end of its output.
const exitWait = 3 * time.Second

// startProcess starts the program of a server.
func startProcess(c *Config) (*process, error) {
	log := c.Log.With().Str("mcp_server", c.Name).Logger()
	p, err := exec.Start(exec.Program{Command: c.Command, Env: append([]string{"HOME"}, c.Env...), Dir: c.Dir, Grace: termGrace,
		Log: func(_, line string) { log.Debug().Str("stderr", line).Msg("an MCP server wrote") }})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Command[0], err)
	}
	return &process{Process: p}, nil
}

// end closes the program's input, then sends SIGTERM, then SIGKILL. It returns when no process is left. It
// may be called twice.
func (p *process) end() {
	p.once.Do(func() {
		_ = p.Close() // the other end may be gone
		p.waitFor(context.Background(), exitGrace)
		p.End()
		_ = p.Stdout.Close() // no process writes any more
	})
}

// exitError returns how the program has ended by itself; nil: it has not.
func (p *process) exitError(ctx context.Context) error {
	p.waitFor(ctx, exitWait)
	return p.Err()
}

// waitFor waits for the end of the program, at most within.
func (p *process) waitFor(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
}

// Write writes to the program. It fails if the program does not read within writeTimeout.
func (p *process) Write(b []byte) (int, error) {
	if err := p.Stdin.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return p.Stdin.Write(b)
}

// Close closes the program's input, on which a program ends.
func (p *process) Close() error { return p.Stdin.Close() }
