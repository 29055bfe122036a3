package credential

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/store"
)

// keyPrefix begins the keys of the rows. It differs from the prefix of a job's records, which
// are deleted with the job: a revocation may take longer than the job's retention.
const keyPrefix = "credential/"

func rowKey(job arcp.JobID, source string) string { return keyPrefix + string(job) + "/" + source }

// generationKey returns the key of a generation's row. The key of the first generation has no
// number.
func generationKey(job arcp.JobID, source string, n int) string {
	if n == 1 {
		return rowKey(job, source)
	}
	return rowKey(job, source) + "/" + strconv.Itoa(n)
}

// State is the state of the credentials of a job from one provisioner.
type State string

// The states of a row. A row is created as an intent and deleted after the revocation.
const (
	// Intent: the provisioner is about to be asked, or its answer was lost.
	Intent State = "intent"
	// Issued: the handles to revoke are recorded. In the first generation the job is not accepted
	// yet and the value is in memory only. In a later one the value is sealed in the row, and the
	// job still uses the previous generation.
	Issued State = "issued"
	// Live: the commit that set this state also accepted the job and sealed the value, or it
	// replaced the previous generation.
	Live State = "live"
	// Revoking: the job has ended in the same commit, which erased the value, or
	// the next generation became live in it, or the job never was accepted.
	Revoking State = "revoking"
)

// row is the stored state of one generation of a job's credentials from one provisioner.
type row struct {
	Job        arcp.JobID `json:"job_id"`
	Source     string     `json:"provisioner"`
	Generation int        `json:"generation,omitzero"` // 0 is 1
	Principal  string     `json:"principal,omitzero"`
	Agent      string     `json:"agent,omitzero"`
	State      State      `json:"state"`
	CreatedAt  time.Time  `json:"created_at"`
	Unknown    bool       `json:"unknown,omitzero"` // revoke all credentials of the job, in addition to Parts
	Parts      []part     `json:"credentials,omitempty"`
	Announced  uint64     `json:"announced,omitzero"` // position of the event of Parts[0] in the job's log; the others follow
	Failed     int        `json:"failed,omitzero"`    // attempts to revoke
	NextAt     time.Time  `json:"next_at,omitzero"`
	Error      string     `json:"error,omitzero"` // of the last attempt
}

// part is one credential. In state Revoking only its id and handle are left.
type part struct {
	ID          string    `json:"id"`
	Upstream    string    `json:"handle,omitzero"`
	Endpoint    string    `json:"endpoint,omitzero"`
	Profile     string    `json:"profile,omitzero"`
	Constraints arcp.Raw  `json:"constraints,omitzero"`
	ExpiresAt   time.Time `json:"expires_at,omitzero"`
	Sealed      []byte    `json:"sealed,omitzero"`
}

// revoking returns the row without values, in state Revoking.
func (r row) revoking() row {
	r.Unknown = r.Unknown || r.State == Intent
	r.State, r.Announced = Revoking, 0
	r.Parts = slices.Clone(r.Parts)
	for i := range r.Parts {
		r.Parts[i] = part{ID: r.Parts[i].ID, Upstream: r.Parts[i].Upstream}
	}
	return r
}

// refs returns the credentials to revoke.
func (r *row) refs() []Ref {
	refs := make([]Ref, len(r.Parts), len(r.Parts)+1)
	for i := range r.Parts {
		refs[i] = r.ref(&r.Parts[i])
	}
	if r.Unknown {
		refs = append(refs, Ref{Job: r.Job})
	}
	return refs
}

func (r *row) ref(p *part) Ref {
	return Ref{Job: r.Job, ID: p.ID, Upstream: p.Upstream, Generation: r.generation()}
}

// count returns the number of credentials of the row, 1 if it is not known.
func (r *row) count() int { return max(1, len(r.Parts)) }

func (r *row) generation() int { return max(1, r.Generation) }

func (r *row) key() string { return generationKey(r.Job, r.Source, r.generation()) }

// nextKey returns the key of the next generation's row.
func (r *row) nextKey() string { return generationKey(r.Job, r.Source, r.generation()+1) }

// record returns the record that replaces a revision of the row; 0: it adds the row.
func (r *row) record(rev uint64) (store.Record, error) {
	return stored{Key: r.key(), Rev: rev}.Put(r)
}

// stored is a row with the revision of its record.
type stored = records.Row[row]

// newStored returns a row without a record.
func newStored(r row) stored { return stored{Key: r.key(), Value: r} }

// table returns the rows of a store.
func table(from records.Reader) records.Table[row] {
	return records.Table[row]{Reader: from, Check: checkRow}
}

// checkRow refuses a row of another key, or with an unknown state.
func checkRow(key string, r *row) error {
	if r.key() != key {
		return errors.New("it belongs to another key")
	}
	switch r.State {
	case Intent, Issued, Live, Revoking:
		return nil
	}
	return errors.New("its state is not known")
}

// validJob refuses ids that cannot be part of a key.
func validJob(id arcp.JobID) error {
	if !id.Valid() || strings.Contains(string(id), "/") {
		return errors.New("the job has no valid id")
	}
	return nil
}

// Entry describes, for an operator, the credentials of a job from one provisioner. It contains
// no value.
type Entry struct {
	Job         arcp.JobID
	Provisioner string
	Generation  int // from 1, one more with each rotation
	Principal   string
	Agent       string
	State       State
	CreatedAt   time.Time
	Refs        []Ref // the names of the credentials; an empty one: not known
	Failed      int   // attempts to revoke
	NextAt      time.Time
	Error       string // of the last attempt
}

func (r *row) entry() Entry {
	return Entry{
		Job:         r.Job,
		Provisioner: r.Source,
		Generation:  r.generation(),
		Principal:   r.Principal,
		Agent:       r.Agent,
		State:       r.State,
		CreatedAt:   r.CreatedAt,
		Refs:        r.refs(),
		Failed:      r.Failed,
		NextAt:      r.NextAt,
		Error:       r.Error,
	}
}
