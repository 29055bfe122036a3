package runtime

import (
	"context"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/builtin"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/store"
)

// RecordReader is the part of a store.Store that CheckRecords reads.
type RecordReader interface {
	Get(ctx context.Context, key string) (store.Record, error)
	Records(ctx context.Context, prefix, after string, fn func(store.Record) bool) error
}

// RecordCheck says what CheckRecords compares with the records.
type RecordCheck struct {
	Artifacts string             // directory of the content of artifacts; empty: it is elsewhere and not checked
	Sealer    *credential.Sealer // opens sealed credentials; nil: there is no key
}

// RecordCounts counts the records that CheckRecords has read.
type RecordCounts struct{ Artifacts, Credentials, Questions int }

// BuiltinTools returns the names of the runtime's own tools whose calls a list of jobs leaves out.
func BuiltinTools() map[string]bool {
	names := builtin.Names()
	delete(names, engine.ScheduleTool) // schedules are listed
	return names
}

// CheckRecords reads the records of artifacts, credentials and questions as a runtime does at its start. It
// compares each artifact with its file, and opens each sealed credential. It calls problem for each
// problem, and changes nothing. It fails when a read fails or ctx ends.
func CheckRecords(ctx context.Context, from RecordReader, c RecordCheck, problem func(error)) (n RecordCounts, err error) {
	if n.Artifacts, err = artifact.CheckFiles(ctx, from, c.Artifacts, problem); err != nil {
		return n, fmt.Errorf("check artifacts: %w", err)
	}
	if n.Credentials, err = credential.Check(ctx, from, c.Sealer, problem); err != nil {
		return n, fmt.Errorf("check credentials: %w", err)
	}
	err = from.Records(ctx, approval.RecordPrefix(""), "", func(rec store.Record) bool {
		n.Questions++
		var q approval.Row
		if err := arcp.Unmarshal(rec.Value, &q); err != nil {
			problem(fmt.Errorf("record %s: %w", rec.Key, err))
		} else if approval.RecordKey(&q) != rec.Key {
			problem(fmt.Errorf("record %s: it belongs to another key", rec.Key))
		}
		return ctx.Err() == nil
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return n, err
}
