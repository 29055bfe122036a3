package tool

import (
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// progressHost records the progress of a job.
type progressHost struct {
	Host
	got []arcp.JobProgressPayload
}

func (h *progressHost) Emit(_ arcp.Type, payload any) error {
	h.got = append(h.got, payload.(arcp.JobProgressPayload))
	return nil
}

// ProgressOf reports two numbers with their ratio. Without a total there is none.
func TestProgressOf(t *testing.T) {
	h := new(progressHost)
	job := NewJob(h)
	for _, total := range []float64{4, 0} {
		if err := job.ProgressOf(3, total); err != nil {
			t.Fatal(err)
		}
	}
	if known := h.got[0]; known.Current != 3 || known.Total == nil || *known.Total != 4 || known.Percent == nil || *known.Percent != 75 {
		t.Errorf("ProgressOf(3, 4) reports %+v, want 3 of 4, 75 %%", known)
	}
	if unknown := h.got[1]; unknown.Current != 3 || unknown.Total != nil || unknown.Percent != nil {
		t.Errorf("ProgressOf(3, 0) reports %+v, want 3 without a total", unknown)
	}
	if err := job.ProgressOf(-1, 4); err == nil {
		t.Error("ProgressOf(-1, 4) = nil, want an error")
	}
}
