package mcp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/arcpd/arcpd/runtime/tool/exec"
)

// process is a server that runs as a program. All that it has started ends with it,
// and it ends with the runtime, however that ends.
type process struct {
	*exec.Process
	once sync.Once
}

// fateGrace is between the end of a program's output and its own, when nothing is
// left of it. Only a program that goes on without output takes so long.
const fateGrace = 3 * time.Second

// startProcess starts a server's program.
func startProcess(c *Config) (*process, error) {
	log := c.Log.With().Str("mcp_server", c.Name).Logger()
	p, err := exec.Start(exec.Program{Command: c.Command, Env: append([]string{"HOME"}, c.Env...), Dir: c.Dir, Grace: termGrace,
		Log: func(_, line string) { log.Debug().Str("stderr", line).Msg("an MCP server wrote") }})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Command[0], err)
	}
	return &process{Process: p}, nil
}

// end ends the program, and returns when nothing is left of it: first its input,
// then SIGTERM, then SIGKILL. Ending twice is fine.
func (p *process) end() {
	p.once.Do(func() {
		_ = p.Close() // the other end may be gone
		p.ends(context.Background(), exitGrace)
		p.End()
		_ = p.Stdout.Close() // nobody writes any more
	})
}

// fate says how the program has ended by itself: its output ends a moment before.
func (p *process) fate(ctx context.Context) error {
	p.ends(ctx, fateGrace)
	return p.Err()
}

// ends waits for the end of the program, but not for longer.
func (p *process) ends(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
}

// Write writes to the program, which must read within writeTimeout.
func (p *process) Write(b []byte) (int, error) {
	if err := p.Stdin.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return p.Stdin.Write(b)
}

// Close ends the program's input, which asks it to end.
func (p *process) Close() error { return p.Stdin.Close() }
