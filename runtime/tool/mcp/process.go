package mcp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/arcpd/arcpd/runtime/tool/exec"
)

// process is a server that runs as a program. All its processes end with the runtime, also if the
// runtime is killed.
type process struct {
	*exec.Process
	once sync.Once
}

// exitWait bounds the time from the end of a program's output to the end of the program.
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

// end closes the program's input, sends SIGTERM after exitGrace and SIGKILL after termGrace. It returns
// when no process is left. Repeated calls have no effect.
func (p *process) end() {
	p.once.Do(func() {
		_ = p.Close() // the program may have ended
		p.waitFor(context.Background(), exitGrace)
		p.End()
		_ = p.Stdout.Close() // every process has ended
	})
}

// exitError returns the exit status of the program, or nil if the program runs after exitWait.
func (p *process) exitError(ctx context.Context) error {
	p.waitFor(ctx, exitWait)
	return p.Err()
}

// waitFor waits for the end of the program, at most for limit.
func (p *process) waitFor(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
}

// Write writes to the program's input. It fails if the program does not read within writeTimeout.
func (p *process) Write(b []byte) (int, error) {
	if err := p.Stdin.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return p.Stdin.Write(b)
}

// Close closes the program's input, so that the program ends.
func (p *process) Close() error { return p.Stdin.Close() }
