package demo

import (
	"context"
	"io"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type artifactArgs struct {
	Bytes     int64           `json:"bytes" jsonschema:"minimum=0,maximum=1073741824"`
	MediaType string          `json:"media_type" jsonschema:"minLength=1,maxLength=256"`
	From      arcp.ArtifactID `json:"from,omitzero" jsonschema:"description=An artifact to copy instead of making content."`
}

func newArtifact() (*tool.Tool, error) {
	c := failingAtRestart("artifact", "Puts an artifact and returns its reference.")
	c.SideEffect = tool.SideEffectWrite
	return tool.New(c, func(ctx context.Context, job tool.Job, a artifactArgs) (arcp.ArtifactObject, error) {
		var content io.Reader = pattern{}
		if a.From != "" {
			_, from, err := job.Artifacts().Open(ctx, a.From)
			if err != nil {
				return arcp.ArtifactObject{}, err
			}
			defer from.Close()
			content = from
		}
		return job.Artifacts().Put(ctx, tool.NewArtifact{MediaType: a.MediaType, Content: io.LimitReader(content, a.Bytes)})
	})
}

// pattern is endless content: the letter a.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}
