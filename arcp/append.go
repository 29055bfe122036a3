package arcp

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// The payloads below encode without reflection, because a runtime sends tens of thousands of them a
// second. A test compares each encoding with the reflected one.

// AppendJSON appends the encoded payload.
func (p JobAcceptedPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.text("job_id", string(p.JobID))
	o.optional("agent", p.Agent)
	o.raw("lease", p.Lease)
	if p.LeaseConstraints != nil {
		o.reflected("lease_constraints", p.LeaseConstraints)
	}
	o.raw("budget", p.Budget)
	if len(p.Credentials) > 0 {
		o.reflected("credentials", p.Credentials)
	}
	o.optional("parent_job_id", string(p.ParentJobID))
	if p.RestoredFrom != nil {
		o.reflected("restored_from", p.RestoredFrom)
	}
	o.time("accepted_at", p.AcceptedAt)
	o.optional("trace_id", p.TraceID)
	return o.end()
}

// AppendJSON appends the encoded payload.
func (p SessionOpenPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.name("auth")
	auth := beginObject(o.dst)
	auth.text("scheme", p.Auth.Scheme)
	auth.optional("token", p.Auth.Token)
	o.dst = auth.end()
	o.name("client")
	client := beginObject(o.dst)
	client.text("kind", p.Client.Kind)
	client.text("version", p.Client.Version)
	client.optional("fingerprint", p.Client.Fingerprint)
	client.optional("principal", p.Client.Principal)
	o.dst = client.end()
	if !p.Capabilities.IsZero() {
		o.name("capabilities")
		o.dst = p.Capabilities.AppendJSON(o.dst)
	}
	if p.LastEventSeq != nil {
		o.uint("last_event_seq", *p.LastEventSeq)
	}
	return o.end()
}

// AppendJSON appends the encoded payload.
func (p SessionAcceptedPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(slices.Grow(dst, 1024+64*len(p.Capabilities.Agents)))
	o.text("session_id", string(p.SessionID))
	o.name("runtime")
	r := beginObject(o.dst)
	r.text("kind", p.Runtime.Kind)
	r.text("version", p.Runtime.Version)
	r.optional("fingerprint", p.Runtime.Fingerprint)
	r.optional("trust_level", string(p.Runtime.TrustLevel))
	o.dst = r.end()
	o.name("capabilities")
	o.dst = p.Capabilities.AppendJSON(o.dst)
	if p.Lease != nil {
		o.name("lease")
		lease := beginObject(o.dst)
		lease.time("expires_at", p.Lease.ExpiresAt)
		o.dst = lease.end()
	}
	o.optional("resume_token", p.ResumeToken)
	if p.ResumeWindowSec != 0 {
		o.uint("resume_window_sec", uint64(max(p.ResumeWindowSec, 0)))
	}
	if p.HeartbeatIntervalSec != 0 {
		o.uint("heartbeat_interval_sec", uint64(max(p.HeartbeatIntervalSec, 0)))
	}
	return o.end()
}

// AppendJSON appends the encoded payload.
func (p JobStartedPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.optional("description", p.Description)
	return o.end()
}

// AppendJSON appends the encoded payload. NaN and infinite numbers are omitted; current becomes 0.
func (p JobProgressPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	current := p.Current
	if !finite(current) {
		current = 0
	}
	o.float("current", &current)
	o.float("total", p.Total)
	o.optional("units", p.Units)
	o.float("percent", p.Percent)
	o.optional("message", p.Message)
	return o.end()
}

// AppendJSON appends the encoded payload.
func (p JobHeartbeatPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.uint("sequence", p.Sequence)
	if p.DeadlineMS != 0 {
		o.uint("deadline_ms", p.DeadlineMS)
	}
	o.text("state", p.State)
	return o.end()
}

// AppendJSON appends the encoded payload.
func (p JobResultChunkPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.text("result_id", p.ResultID)
	o.uint("chunk_seq", p.ChunkSeq)
	o.text("data", p.Data)
	o.text("encoding", p.Encoding)
	o.bool("more", p.More)
	o.optional("content_type", p.ContentType)
	return o.end()
}

// AppendJSON appends the encoded payload.
func (p JobCompletedPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.raw("value", p.Value)
	if p.ResultRef != nil {
		o.reflected("result_ref", p.ResultRef)
	}
	o.optional("result_id", p.ResultID)
	if p.ResultSize != nil {
		o.uint("result_size", *p.ResultSize)
	}
	o.optional("content_type", p.ContentType)
	o.optional("summary", p.Summary)
	return o.end()
}

// AppendJSON appends the encoded payload.
func (p StreamChunkPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.uint("sequence", p.Sequence)
	o.raw("data", p.Data)
	o.optional("content_type", p.ContentType)
	o.optional("sha256", p.SHA256)
	if p.Redacted {
		o.bool("redacted", true)
	}
	o.optional("role", p.Role)
	o.optional("content", p.Content)
	o.optional("encoding", p.Encoding)
	if p.Size != 0 {
		o.uint("size", p.Size)
	}
	o.optional("kind", p.Kind) // the last member: store.Event.DraftChunk looks for it at the end
	return o.end()
}

// AppendJSON appends the encoded payload.
func (p LogPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.text("level", p.Level)
	o.text("message", p.Message)
	o.raw("attributes", p.Attributes)
	return o.end()
}

// AppendJSON appends the encoded payload.
func (p MetricPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.text("name", p.Name)
	value := p.Value
	if value == "" {
		value = "0"
	}
	o.raw("value", Raw(value))
	o.text("unit", p.Unit)
	o.raw("dims", p.Dims)
	return o.end()
}

// AppendJSON appends the encoded payload.
func (p SessionAckPayload) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.uint("last_processed_seq", p.LastProcessedSeq)
	return o.end()
}

// builder appends one JSON object.
type builder struct {
	dst []byte
	any bool
}

func beginObject(dst []byte) builder { return builder{dst: append(dst, '{')} }

func (b *builder) end() []byte { return append(b.dst, '}') }

func (b *builder) name(name string) {
	if b.any {
		b.dst = append(b.dst, ',')
	}
	b.any = true
	b.dst = append(append(append(b.dst, '"'), name...), '"', ':')
}

func (b *builder) text(name, value string) {
	b.name(name)
	b.dst = AppendString(b.dst, value)
}

func (b *builder) optional(name, value string) {
	if value != "" {
		b.text(name, value)
	}
}

func (b *builder) raw(name string, value Raw) {
	if len(value) > 0 {
		b.name(name)
		b.dst = appendRaw(b.dst, value)
	}
}

func (b *builder) uint(name string, value uint64) {
	b.name(name)
	b.dst = strconv.AppendUint(b.dst, value, 10)
}

func (b *builder) bool(name string, value bool) {
	b.name(name)
	b.dst = strconv.AppendBool(b.dst, value)
}

func (b *builder) time(name string, value time.Time) {
	if !value.IsZero() {
		b.name(name)
		b.dst = AppendTime(b.dst, value)
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// float omits nil, NaN and infinite values.
func (b *builder) float(name string, value *float64) {
	if value != nil && finite(*value) {
		b.name(name)
		b.dst = appendFloat(b.dst, *value)
	}
}

// reflected encodes a rare member with reflection.
func (b *builder) reflected(name string, value any) {
	b.name(name)
	dst, err := AppendJSON(b.dst, value)
	if err != nil { // value contains a Raw that is not JSON
		dst = append(b.dst, `{}`...)
	}
	b.dst = dst
}
