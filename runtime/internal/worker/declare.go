package worker

import (
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of a declaration (SPEC.md §7.8).
const (
	maxExecutes    = 64       // tools of one agent
	maxConcurrency = 1000     // concurrent jobs of one agent
	maxTools       = 1024     // tools of the agents of one principal
	maxRequest     = 4 << 20  // bytes of arguments: they must fit into a frame
	maxResponse    = 4 << 20  // bytes of a result: it must fit into a frame
	maxTimeout     = 30 * day // of an attempt, and of its wait for a worker; 0 is none
	maxDescription = 4 << 10  // bytes

	defaultConcurrency = 1 // a program that does not set its concurrency may not support more

	day = 24 * time.Hour
)

// declaration is capabilities.tools["name@version"] of an agent: the description of a tool.
type declaration struct {
	Description      string          `json:"description,omitzero"`
	InputSchema      arcp.Raw        `json:"input_schema,omitzero"`
	OutputSchema     arcp.Raw        `json:"output_schema,omitzero"`
	SideEffect       tool.SideEffect `json:"side_effect,omitzero"`
	Idempotent       *bool           `json:"idempotent,omitzero"`
	Recovery         tool.Recovery   `json:"recovery,omitzero"`
	TimeoutMS        int64           `json:"timeout_ms,omitzero"`
	StartTimeoutMS   int64           `json:"start_timeout_ms,omitzero"`
	MaxRequestBytes  int             `json:"max_request_bytes,omitzero"`
	MaxResponseBytes int             `json:"max_response_bytes,omitzero"`
	Interruptible    bool            `json:"interruptible,omitzero"`
	Approval         tool.Approval   `json:"approval,omitzero"`
	Retry            tool.Retry      `json:"retry,omitzero"`
	MinTrust         arcp.TrustLevel `json:"min_trust,omitzero"`
}

// declared is one tool that an agent executes.
type declared struct {
	capability tool.Capability
	digest     string // of the declaration; agents with equal digests share the tool
}

// declarations returns the tools that an agent executes.
func declarations(a *agents.Agent) ([]declared, *arcp.Error) {
	switch {
	case len(a.Executes) > maxExecutes:
		return nil, invalid("executes: an agent names at most %d tools", maxExecutes)
	case a.Concurrency < 0 || a.Concurrency > maxConcurrency:
		return nil, invalid("concurrency must be from 1 to %d", maxConcurrency)
	}
	described, err := toolsOf(a.Capabilities)
	if err != nil {
		return nil, err
	}
	var list []declared
	for _, name := range a.Executes {
		d, err := declare(name, described)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(e declared) bool { return e.capability.Ref() == d.capability.Ref() }) {
			return nil, invalid("executes: %s is named twice", d.capability.Ref())
		}
		list = append(list, d)
	}
	for name := range described {
		return nil, invalid("capabilities.tools: %q is not among executes", name)
	}
	return list, nil
}

// toolsOf returns capabilities.tools. capabilities may also be a list, or absent.
func toolsOf(capabilities arcp.Raw) (map[string]arcp.Raw, *arcp.Error) {
	if capabilities.Kind() != '{' {
		return nil, nil
	}
	var c struct {
		Tools map[string]arcp.Raw `json:"tools"`
	}
	if err := arcp.Unmarshal(capabilities, &c); err != nil {
		return nil, invalid("capabilities.tools must be an object of objects: %s", err)
	}
	return c.Tools, nil
}

// declare returns the tool of a reference, and removes its declaration from described.
func declare(name string, described map[string]arcp.Raw) (declared, *arcp.Error) {
	ref, err := arcp.ParseAgentRef(name)
	if err != nil {
		return declared{}, invalid("executes: %s", err)
	}
	raw := described[name]
	delete(described, name)
	var d declaration
	if len(raw) > 0 {
		if err := arcp.UnmarshalStrict(raw, &d); err != nil {
			return declared{}, invalid("capabilities.tools[%q]: %s", name, err)
		}
	}
	if err := d.check(); err != nil {
		return declared{}, invalid("capabilities.tools[%q]: %s", name, err)
	}
	canonical, err := arcp.Marshal(d)
	if err == nil {
		canonical, err = arcp.Canonical(canonical)
	}
	if err != nil {
		return declared{}, invalid("capabilities.tools[%q]: %s", name, err)
	}
	return declared{d.capability(ref), string(canonical)}, nil
}

func (d *declaration) check() error {
	for _, n := range [...]struct {
		name  string
		value int64
		most  int64
	}{
		{"timeout_ms", d.TimeoutMS, maxTimeout.Milliseconds()},
		{"start_timeout_ms", d.StartTimeoutMS, maxTimeout.Milliseconds()},
		{"max_request_bytes", int64(d.MaxRequestBytes), maxRequest},
		{"max_response_bytes", int64(d.MaxResponseBytes), maxResponse},
		{"the length of description", int64(len(d.Description)), maxDescription},
	} {
		if n.value < 0 || n.value > n.most {
			return fmt.Errorf("%s must be from 0 to %d", n.name, n.most)
		}
	}
	return nil
}

// capability returns the capability of the tool. By default it has no time limit.
func (d *declaration) capability(ref arcp.AgentRef) tool.Capability {
	timeout := time.Duration(d.TimeoutMS) * time.Millisecond
	if timeout == 0 {
		timeout = -1
	}
	version := ref.Version
	if version == "" {
		version = tool.DefaultVersion
	}
	return tool.Capability{
		Name:          ref.Name,
		Version:       version,
		Description:   d.Description,
		InputSchema:   d.InputSchema,
		OutputSchema:  d.OutputSchema,
		SideEffect:    d.SideEffect,
		Idempotent:    d.Idempotent,
		Recovery:      d.Recovery,
		Retry:         d.Retry,
		Interruptible: d.Interruptible,
		Approval:      d.Approval,
		MinTrust:      d.MinTrust,
		Source:        tool.SourceWorker,
		Limits: tool.Limits{Timeout: timeout, MaxRequestBytes: d.MaxRequestBytes, MaxResponseBytes: d.MaxResponseBytes,
			StartTimeout: time.Duration(d.StartTimeoutMS) * time.Millisecond},
	}
}

func invalid(format string, args ...any) *arcp.Error {
	return arcp.Errorf(arcp.CodeInvalidArgument, format, args...)
}
