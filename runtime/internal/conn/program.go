package conn

import (
	"context"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/session"
)

// Program is a worker process that the runtime has started.
type Program struct {
	Identity   auth.Identity // of its sessions, regardless of its credentials
	Registered func()        // called for each registration of an agent that executes tools; nil: not called. It must not block
}

// EndPrograms ends the sessions of the programs of an earlier runtime process, because their agents
// would keep their names. It returns when the ends are stored, or ctx ends.
func (s *Server) EndPrograms(ctx context.Context) {
	endSessions(ctx, s.opts.Sessions, auth.IsProgram, anotherProcess)
}

// EndProgram ends the sessions of a program that is no longer configured. It returns when the ends are stored, or ctx
// ends.
func EndProgram(ctx context.Context, s *Server, principal string) {
	endSessions(ctx, s.opts.Sessions, func(p string) bool { return p == principal }, "the program is no longer configured")
}

// anotherProcess is the reason for the end of the sessions of an earlier process.
const anotherProcess = "another process of the program has opened a session"

// endSessions ends the sessions of the principals that wanted selects. It returns when the ends are
// stored, or ctx ends. A failure is logged.
func endSessions(ctx context.Context, d *session.Directory, wanted func(principal string) bool, reason string) {
	eviction := session.Eviction{Code: arcp.CodeCancelled, Reason: reason}
	for _, s := range d.ByPrincipal(wanted) {
		done := make(chan struct{})
		d.End(s, eviction, func(error) { close(done) })
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// toolsWithoutJob is the prefix of the tools that a program may call without a job, to register its
// agents. It calls every other tool for a job, with the authority of the job.
const toolsWithoutJob = "host."

// refuse refuses a job that a program may not submit. A nil Program refuses none.
func (p *Program) refuse(invoke *arcp.ToolInvokePayload) *arcp.Error {
	if p == nil || strings.HasPrefix(invoke.Tool, toolsWithoutJob) {
		return nil
	}
	return arcp.Errorf(arcp.CodePermissionDenied,
		"a worker that the runtime has started submits no jobs of its own: call %.100s for a job, with its job_id", invoke.Tool)
}
