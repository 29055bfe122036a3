package exec

import (
	"context"

	"github.com/arcpd/arcpd/runtime/tool"
)

// Source publishes commands as tools. It implements tool.Source.
type Source struct{ configs []Config }

// NewSource returns a source of commands for which Check has returned nil.
func NewSource(configs []Config) *Source { return &Source{configs} }

// Name returns "exec".
func (s *Source) Name() string { return string(tool.SourceExec) }

// Prefix returns "": commands have the names of their configuration.
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

// Close does nothing, because a command ends with its job.
func (s *Source) Close() {}
