package artifact

import (
	"bytes"
	"context"

	"github.com/arcpd/arcpd/arcp"
)

// Names reports whether the arguments of a job name an artifact: one of their strings is its id.
func Names(arguments arcp.Raw, id arcp.ArtifactID) bool {
	return bytes.Contains(arguments, []byte(`"`+id+`"`))
}

// isNamed reports whether the arguments of a live job of the principal name an artifact whose retention has
// passed. Any client may ask for an artifact at any rate, so it remembers what it has found.
func isNamed(s *Store, e *entry) bool {
	s.mu.Lock()
	gone, job := e.gone, e.namedBy
	s.mu.Unlock()
	switch {
	case gone:
		return false
	case job != "" && s.opts.IsLive(job):
		return true
	}
	job = s.opts.namedBy(&e.row)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.namedBy, e.gone = job, job == ""
	return !e.gone
}

// namedBy returns a live job of the artifact's principal whose arguments name the artifact, or "".
func (o *Options) namedBy(row *Row) (job arcp.JobID) {
	if o.Live != nil {
		o.Live(func(principal string, id arcp.JobID, arguments arcp.Raw) bool {
			if principal == row.Principal && Names(arguments, row.ID) {
				job = id
			}
			return job == ""
		})
	}
	return job
}

// unnamed returns the artifacts of a list that the arguments of no live job of their principal name. It reads
// the arguments of a job once, whatever the length of the list. The end of ctx ends it with the cause.
func (o *Options) unnamed(ctx context.Context, list []*entry) ([]*entry, error) {
	if o.Live == nil || len(list) == 0 {
		return list, nil
	}
	candidates := make(map[string]map[arcp.ArtifactID]*entry) // by principal
	for _, e := range list {
		own := candidates[e.row.Principal]
		if own == nil {
			own = make(map[arcp.ArtifactID]*entry)
			candidates[e.row.Principal] = own
		}
		own[e.row.ID] = e
	}
	o.Live(func(principal string, _ arcp.JobID, arguments arcp.Raw) bool {
		removeNamed(candidates[principal], arguments)
		return ctx.Err() == nil
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	unnamed := list[:0]
	for _, e := range list {
		if candidates[e.row.Principal][e.row.ID] != nil {
			unnamed = append(unnamed, e)
		}
	}
	return unnamed, nil
}

// idStart is the start of a JSON string that may be the id of an artifact.
var idStart = []byte(`"` + arcp.ArtifactPrefix)

// removeNamed removes the artifacts that the arguments of a job name, as Names defines it. It reads the
// arguments once.
func removeNamed(candidates map[arcp.ArtifactID]*entry, arguments arcp.Raw) {
	for rest := []byte(arguments); len(candidates) > 0; {
		begin := bytes.Index(rest, idStart)
		if begin < 0 {
			return
		}
		rest = rest[begin+1:]
		end := bytes.IndexByte(rest, '"')
		if end < 0 {
			return
		}
		if e := candidates[arcp.ArtifactID(rest[:end])]; e != nil {
			delete(candidates, e.row.ID)
		}
		rest = rest[end:]
	}
}
