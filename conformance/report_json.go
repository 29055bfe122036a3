package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// WriteJSON writes a report as one indented JSON object.
func WriteJSON(w io.Writer, r *Report) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// statuses are the statuses of results in a report.
var statuses = []Status{Passed, Failed, Skipped, KnownDeviation, Stale}

// ReadJSON reads a report that WriteJSON has written.
func ReadJSON(in io.Reader) (*Report, error) {
	r := &Report{}
	d := json.NewDecoder(in)
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("not a JSON report of the conformance checks: %w", err)
	}
	if len(r.Results) == 0 {
		return nil, errors.New("not a JSON report of the conformance checks: it has no results")
	}
	for i := range r.Results {
		res := &r.Results[i]
		if res.ID == "" || !slices.Contains(statuses, res.Status) {
			return nil, fmt.Errorf("not a JSON report of the conformance checks: result %d has the id %q and the status %q", i, res.ID, res.Status)
		}
	}
	return r, nil
}
