package credential

import (
	"context"
	"errors"
	"fmt"

	"github.com/arcpd/arcpd/runtime/internal/records"
)

// Check reads the rows of all unrevoked credentials, and opens their sealed values with a sealer. A nil
// sealer means that there is no key: each row is a problem then, because a server does not start.
// Check calls problem for each problem and changes nothing. It returns the number of rows.
func Check(ctx context.Context, from records.Reader, sealer *Sealer, problem func(error)) (n int, err error) {
	err = table(from).Scan(ctx, keyPrefix, "", func(r stored, bad error) bool {
		n++
		switch {
		case bad != nil:
			problem(bad)
		case sealer != nil:
			if err := r.Value.opensWith(sealer); err != nil {
				problem(fmt.Errorf("record %s: %w", r.Key, err))
			}
		}
		return ctx.Err() == nil
	})
	if n > 0 && sealer == nil {
		problem(errors.New("there are credentials, but not the key that seals them, " + KeyFile))
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return n, err
}

// opensWith opens the sealed values of the row.
func (r *row) opensWith(s *Sealer) error {
	for i := range r.Parts {
		if p := &r.Parts[i]; len(p.Sealed) > 0 {
			if _, err := s.Open(r.Job, p.ID, p.Sealed); err != nil {
				return err
			}
		}
	}
	return nil
}
