package toolset

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/exec"
)

// execKeys lists the keys of an entry with exec.
var execKeys = []string{"name", "version", "description", "exec", "env", "dir", "input_schema", "output_schema", "side_effect",
	"idempotent", "limits", "approval", "recovery", "retry", "min_trust", "sandbox", "stdin", "stream", "output"}

func (e *Entry) parseExec(m map[string]any, dir string) error {
	c := &exec.Config{Sandbox: exec.SandboxNone}
	e.Exec = c
	fields := keys{
		"name":          text(&c.Name),
		"version":       text(&c.Version),
		"description":   text(&c.Description),
		"exec":          argv(&c.Command, dir),
		"env":           variables(&c.Env),
		"dir":           directory(&c.Dir, dir),
		"input_schema":  schema(&c.InputSchema, dir),
		"output_schema": schema(&c.OutputSchema, dir),
		"side_effect":   oneOf(&c.SideEffect, tool.SideEffects),
		"idempotent":    boolean(&c.Idempotent),
		"limits":        func(v any) error { return limits(v, &c.Limits, &c.Bounds) },
		"approval":      approval(&c.Approval),
		"recovery":      oneOf(&c.Recovery, tool.Recoveries),
		"retry":         func(v any) error { return retry(v, &c.Retry) },
		"min_trust":     oneOf(&c.MinTrust, arcp.TrustLevels),
		"sandbox":       oneOf(&c.Sandbox, exec.Sandboxes),
		"stdin":         oneOf(&c.Stdin, exec.Stdins),
		"stream":        oneOf(&c.Stream, exec.Streams),
		"output":        oneOf(&c.Output, exec.Outputs),
	}
	var list settings.Mistakes
	list.Add(fields.read(m, "name", "exec"))
	if !hasMistake(list, "version") {
		c.Version = cmp.Or(c.Version, tool.DefaultVersion)
	}
	if c.Recovery == tool.RecoveryCheckpoint {
		list.Add(at("recovery", "a command makes no checkpoints: want rerun or fail"))
	}
	if err := exec.CheckOutput(c); err != nil {
		list.Add(err, "output")
		c.Output = "" // exec.Check does not report it again
	}
	list.Add(checkTool(c.Capability, list))
	return list.OrNil()
}

// checkName refuses a name that is reserved for the runtime.
func checkName(name string) error {
	for _, reserved := range tool.Reserved {
		if strings.HasPrefix(name, reserved) {
			return at("name", "names that begin with %q are the runtime's own: choose another", reserved)
		}
	}
	return nil
}

// checkTool returns the errors that the runtime would return for the capability. It leaves out the keys of which found
// has a mistake.
func checkTool(c tool.Capability, found settings.Mistakes) error {
	var list settings.Mistakes
	named := tool.Capability{Name: c.Name, Version: c.Version}
	if c.Name != "" {
		list.Add(checkName(c.Name))
		list.Add(tryTool(named))
	}
	if tryTool(named) != nil {
		named = tool.Capability{Name: unnamed}
	}
	for _, part := range []struct {
		keys []string
		c    tool.Capability
	}{
		{[]string{"approval"}, tool.Capability{Approval: c.Approval}},
		{[]string{"retry", "idempotent"}, tool.Capability{Retry: c.Retry, Idempotent: c.Idempotent}},
		{[]string{"input_schema"}, tool.Capability{InputSchema: c.InputSchema}},
		{[]string{"output_schema"}, tool.Capability{OutputSchema: c.OutputSchema}},
	} {
		if !hasMistake(found, part.keys...) {
			part.c.Name, part.c.Version = named.Name, named.Version
			list.Add(tryTool(part.c), part.keys[0])
		}
	}
	return list.OrNil()
}

// unnamed is the name of a tool whose own name is missing or invalid.
const unnamed = "unnamed"

// tryTool returns the error of the runtime for a capability, in one line.
func tryTool(c tool.Capability) error {
	_, err := tool.NewRaw(c, nil)
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(err.Error()), " ") // an error of a schema has several lines
	return errors.New(strings.TrimPrefix(text, "tool "+unnamed+"@"+tool.DefaultVersion+": "))
}

// Maximum values of the limits of a tool.
const (
	maxTimeout     = 30 * 24 * time.Hour
	maxBytes       = 256 << 20 // the maximum of a result
	maxCount       = 1 << 20
	maxBoundBytes  = 1 << 50
	maxCPUSeconds  = 30 * 24 * 3600
	millisecondsIn = int64(maxTimeout / time.Millisecond)
)

// limits reads the limits of a call and the bounds of its processes. 0 is no limit.
func limits(v any, l *tool.Limits, b *exec.Bounds) error {
	var timeout int64 = -1
	err := keys{
		"timeout_ms":         integerIn(&timeout, 0, millisecondsIn),
		"max_request_bytes":  size(&l.MaxRequestBytes, 1, maxBytes),
		"max_response_bytes": size(&l.MaxResponseBytes, 1, maxBytes),
		"concurrency":        integerIn(&l.Concurrency, 0, maxCount),
		"rate_per_min":       integerIn(&l.RatePerMin, 0, maxCount),
		"cpu_seconds":        integerIn(&b.CPUSeconds, 1, maxCPUSeconds),
		"memory":             size(&b.Memory, 1<<20, maxBoundBytes),
		"files":              integerIn(&b.Files, 8, maxCount),
		"processes":          integerIn(&b.Processes, 1, maxCount),
		"file_size":          size(&b.FileSize, 1, maxBoundBytes),
	}.read(v)
	m, _ := v.(map[string]any)
	if _, policy := m["concurrency"]; policy && l.Concurrency == 0 {
		l.Concurrency = -1
	}
	switch {
	case timeout == 0:
		l.Timeout = -1
	case timeout > 0:
		l.Timeout = time.Duration(timeout) * time.Millisecond
	}
	return err
}

// callLimits reads the limits of a call that has no process of its own.
func callLimits(v any, l *tool.Limits) error {
	var b exec.Bounds
	if err := limits(v, l, &b); err != nil {
		return err
	}
	if b != (exec.Bounds{}) {
		return at("limits", "only a command of exec has cpu_seconds, memory, files, processes and file_size: remove them")
	}
	return nil
}

// retry reads a retry policy. checkTool checks the bounds of its numbers.
func retry(v any, r *tool.Retry) error {
	return keys{
		"max_attempts": integerIn(&r.MaxAttempts, 1, tool.MaxAttempts),
		"initial_ms":   integerIn(&r.InitialMS, 1, millisecondsIn),
		"max_ms":       integerIn(&r.MaxMS, 1, millisecondsIn),
		"factor":       number(&r.Factor),
	}.read(v, "max_attempts")
}

// approval reads an approval policy.
func approval(dst *tool.Approval) func(any) error {
	return func(v any) error {
		raw, err := arcp.Marshal(v)
		if err == nil {
			err = arcp.Unmarshal(raw, dst)
		}
		if err != nil {
			return errors.New(`want none, manual, {manual: {quorum: 2, escalate_after_ms: 60000}}, or {auto: {rule: "…"}}, with or without these two`)
		}
		return nil
	}
}
