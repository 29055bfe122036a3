package credential

import (
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// maxAnswer bounds the bytes of a provisioner's answer.
const maxAnswer = 64 << 10

// upstreamRequest is the request sent to a gateway or a program.
type upstreamRequest struct {
	Op         string     `json:"op,omitzero"` // issue or revoke; not for a gateway
	JobID      arcp.JobID `json:"job_id"`
	Principal  string     `json:"principal,omitzero"`
	Agent      string     `json:"agent,omitzero"`
	Lease      arcp.Raw   `json:"lease,omitzero"`
	ExpiresAt  time.Time  `json:"expires_at,omitzero"`
	Budget     arcp.Raw   `json:"budget,omitzero"`
	TraceID    string     `json:"trace_id,omitzero"`
	Generation int        `json:"generation,omitzero"`
	ID         string     `json:"id,omitzero"`     // of a credential to revoke
	Handle     string     `json:"handle,omitzero"` // of a credential to revoke; absent: all of the job
}

func encodeRequest(op string, r *Request) ([]byte, error) {
	return arcp.Marshal(upstreamRequest{Op: op, JobID: r.Job, Principal: r.Principal, Agent: r.Agent, Lease: r.Lease, ExpiresAt: r.ExpiresAt,
		Budget: r.Budget, TraceID: r.TraceID, Generation: r.Generation})
}

// upstreamAnswer is the response of a gateway or a program.
type upstreamAnswer struct {
	Credentials []struct {
		ID          string    `json:"id"`
		Scheme      string    `json:"scheme"`
		Value       string    `json:"value"`
		Endpoint    string    `json:"endpoint"`
		Profile     string    `json:"profile"`
		Constraints arcp.Raw  `json:"constraints"`
		ExpiresAt   time.Time `json:"expires_at"`
		Handle      string    `json:"handle"`
	} `json:"credentials"`
}

var errAnswer = arcp.Errorf(arcp.CodeInternal, "the credential provisioner gave an answer that cannot be read")

// readAnswer decodes an answer. Its errors never repeat the data.
func readAnswer(data []byte, r *Request, endpoint, profile string) ([]Credential, error) {
	var a upstreamAnswer
	if err := arcp.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("%w: it is not the JSON that was asked for", errAnswer)
	}
	list := make([]Credential, len(a.Credentials))
	for i, c := range a.Credentials {
		if c.Handle == "" {
			return nil, fmt.Errorf("%w: credential %d has no handle to revoke it by", errAnswer, i+1)
		}
		list[i] = Credential{ID: c.ID, Scheme: c.Scheme, Value: Secret(c.Value), Endpoint: c.Endpoint, Profile: c.Profile,
			Constraints: c.Constraints, ExpiresAt: c.ExpiresAt, Upstream: c.Handle}
		if c.Endpoint == "" {
			list[i].Endpoint = endpoint
		}
		if c.Profile == "" {
			list[i].Profile = profile
		}
	}
	return list, nil
}
