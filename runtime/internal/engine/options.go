package engine

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job/family"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

const onDisconnectCancel = "cancel"

// rowOptions are the options that are stored with a job: options of its submit under their wire names,
// and options that its children inherit.
type rowOptions struct {
	Direct        bool           `json:"direct,omitzero"`
	Workflow      bool           `json:"workflow,omitzero"` // ends with workflow.complete
	CausationID   arcp.MessageID `json:"causation_id,omitzero"`
	MaxRuntimeSec arcp.Number    `json:"max_runtime_sec,omitzero"`
	OnDisconnect  string         `json:"on_disconnect,omitzero"`
	StrictCancel  bool           `json:"strict_cancel,omitzero"`
	Retry         arcp.Raw       `json:"retry,omitzero"`

	Lease arcp.Raw `json:"lease,omitzero"` // of the job, requested or not

	// Inherited by the children of the job.
	Trust   arcp.TrustLevel `json:"trust,omitzero"` // of the principal; empty: defaultTrust
	MaxJobs int             `json:"max_jobs,omitzero"`
	Depth   int             `json:"depth,omitzero"`
	Detach  bool            `json:"detach,omitzero"`
	Metrics bool            `json:"metrics,omitzero"` // the session is sent the metrics of the runtime

	Barred []arcp.SessionID `json:"barred,omitzero"` // must not answer gates of the job or of its children

	Roles []string `json:"roles,omitzero"` // of the principal; only for a tool whose approval rule may ask

	RestoredFrom *arcp.RestoredFrom `json:"restored_from,omitzero"` // the checkpoint with which a restored job begins
}

// cancelOnDisconnect reports whether a job ends with its session's connection.
func cancelOnDisconnect(t *tool.Tool, p *arcp.ToolInvokePayload) bool {
	return p.OnDisconnect == onDisconnectCancel || p.OnDisconnect == "" && t.Endless
}

func optionsIn(env *arcp.Envelope, t *tool.Tool, p *arcp.ToolInvokePayload) rowOptions {
	o := rowOptions{Direct: p.Direct, Workflow: env.Type == arcp.WorkflowStart, CausationID: env.CausationID, StrictCancel: p.StrictCancel}
	if cancelOnDisconnect(t, p) {
		o.OnDisconnect = onDisconnectCancel
	}
	if p.MaxRuntimeSec != nil {
		o.MaxRuntimeSec = *p.MaxRuntimeSec
	}
	if len(p.Retry) > 0 && p.Retry.Kind() != 'n' {
		o.Retry = p.Retry
	}
	return o
}

func (o rowOptions) zero() bool {
	return !o.Direct && !o.Workflow && !o.StrictCancel && o.CausationID == "" && o.MaxRuntimeSec == "" && o.OnDisconnect == "" &&
		len(o.Retry) == 0 && o.RestoredFrom == nil && len(o.Lease) == 0 &&
		o.Trust == "" && len(o.Roles) == 0 && len(o.Barred) == 0 && o.MaxJobs == 0 && o.Depth == 0 && !o.Detach && !o.Metrics
}

func (o rowOptions) encode() arcp.Raw {
	if o.zero() {
		return nil
	}
	raw, err := arcp.Marshal(o)
	if err != nil { // plain members, and one that was decoded
		panic("engine: " + err.Error())
	}
	return raw
}

func optionsOf(row *store.Job) rowOptions {
	if len(row.Options) == 0 {
		return rowOptions{}
	}
	var o rowOptions
	if err := arcp.Unmarshal(row.Options, &o); err != nil { // written by another version
		return rowOptions{Lease: lease.Nothing().Encode(), Trust: trustOption("")}
	}
	return o
}

// apply sets the options of a job that was found in the store.
func (o *rowOptions) apply(r *run) {
	r.direct, r.strictCancel, r.cancelOnDisconnect = o.Direct, o.StrictCancel, o.OnDisconnect == onDisconnectCancel
	if o.MaxRuntimeSec != "" {
		r.maxRuntime, _ = parseMaxRuntime(&o.MaxRuntimeSec) // prepare has checked it
	}
	r.retry, _ = retryOf(r.tool, o.Retry) // prepare has checked it
	r.restoredFrom, r.metricEvents = o.RestoredFrom, o.Metrics && !r.builtin()
	r.trust, r.maxJobs, r.roles, r.barred = cmp.Or(o.Trust, defaultTrust), o.MaxJobs, o.Roles, o.Barred
	if r.row.Parent != "" {
		r.position, r.done.donec = family.Position{Depth: o.Depth, Detached: o.Detach}, make(chan struct{})
	}
	r.authority.SetLease(o.lease())
}

// lease returns the job's lease; nil: it has none.
func (o *rowOptions) lease() *lease.Lease { return decodeLease(o.Lease) }

// decodeLease decodes a lease; nil: there is none. A lease that cannot be decoded allows nothing.
func decodeLease(raw arcp.Raw) *lease.Lease {
	if len(raw) == 0 {
		return nil
	}
	l, err := lease.Decode(raw)
	if err != nil {
		return lease.Nothing()
	}
	return l
}

// defaultTrust is the trust level of most principals. It is not stored.
const defaultTrust = arcp.Trusted

// trustOption is the stored form of a trust level.
func trustOption(level arcp.TrustLevel) arcp.TrustLevel {
	switch level {
	case defaultTrust:
		return ""
	case "":
		return arcp.Untrusted
	}
	return level
}

// maxRuntimeLimit bounds max_runtime_sec, in seconds: a year.
const maxRuntimeLimit = 365 * 24 * 3600

// Bounds of the texts of a submit, in bytes. They are in memory with the job, and
// Limits.MaxArguments does not count them.
const (
	maxKey         = arcp.MaxIDLen // as in the envelope
	maxRetryOption = 1 << 10
	maxNumber      = 64
)

// checkKey refuses an idempotency key in a payload that an envelope must not have.
func checkKey(key string) *arcp.Error {
	if len(key) > maxKey || strings.ContainsFunc(key, unicode.IsControl) {
		return arcp.Errorf(arcp.CodeInvalidRequest, "idempotency_key may have at most %d bytes and no control characters", maxKey)
	}
	return nil
}

func parseMaxRuntime(n *arcp.Number) (time.Duration, *arcp.Error) {
	if n == nil {
		return 0, nil
	}
	if len(*n) > maxNumber {
		return 0, arcp.Errorf(arcp.CodeInvalidRequest, "max_runtime_sec may have at most %d characters", maxNumber)
	}
	s, err := strconv.ParseFloat(string(*n), 64)
	if err != nil || s <= 0 || s > maxRuntimeLimit {
		return 0, arcp.Errorf(arcp.CodeInvalidRequest, "max_runtime_sec must be a number of seconds above 0 and at most %d", maxRuntimeLimit)
	}
	return max(time.Duration(s*float64(time.Second)), 1), nil // 0 means no limit
}
