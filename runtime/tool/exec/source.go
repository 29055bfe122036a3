package exec

import (
	"context"

	"github.com/arcpd/arcpd/runtime/tool"
)

// Source has commands as tools. They do not change.
type Source struct{ configs []Config }

// NewSource makes a source of commands that Check has found no fault with.
func NewSource(configs []Config) *Source { return &Source{configs} }

// Name is that of all commands.
func (s *Source) Name() string { return tool.SourceExec }

// Prefix is empty: commands have the names that they are given.
func (s *Source) Prefix() string { return "" }

// Start publishes the tools.
func (s *Source) Start(_ context.Context, publish func([]*tool.Tool) error) error {
	var tools []*tool.Tool
	for _, c := range s.configs {
		t, err := New(c)
		if err != nil {
			return err
		}
		tools = append(tools, t)
	}
	return publish(tools)
}

// Close has nothing to end: a command ends with its job.
func (s *Source) Close() {}
