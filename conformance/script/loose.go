package script

import (
	"encoding/json"
	"errors"

	"github.com/arcpd/arcpd/arcp"
)

// errNoEnvelope is the error of a frame that has no type.
var errNoEnvelope = errors.New("not a JSON object with a type")

// DecodeLoosely decodes an envelope that may lack members, or have members of the wrong type, which
// it leaves empty. The error of a frame is one of a frame without a type.
func DecodeLoosely(frame []byte) (env arcp.Envelope, err error) {
	var m map[string]Value
	if json.Unmarshal(frame, &m) != nil {
		return env, errNoEnvelope
	}
	for name, to := range map[string]any{
		"arcp": &env.ARCP, "id": &env.ID, "type": &env.Type, "timestamp": &env.Timestamp, "session_id": &env.SessionID,
		"job_id": &env.JobID, "stream_id": &env.StreamID, "subscription_id": &env.SubscriptionID, "trace_id": &env.TraceID,
		"correlation_id": &env.CorrelationID, "causation_id": &env.CausationID, "event_seq": &env.EventSeq,
	} {
		if m[name] != nil {
			_ = arcp.Unmarshal(m[name], to) // a member of the wrong type stays empty
		}
	}
	if env.Type == "" {
		return env, errNoEnvelope
	}
	if env.Payload = m["payload"]; env.Payload.Kind() != '{' {
		env.Payload = Value("{}")
	}
	return env, nil
}

// looselyAfter decodes with strict, and with DecodeLoosely what strict refuses.
func looselyAfter(strict func([]byte) (arcp.Envelope, error)) func([]byte) (arcp.Envelope, error) {
	return func(frame []byte) (arcp.Envelope, error) {
		if env, err := strict(frame); err == nil {
			return env, nil
		}
		return DecodeLoosely(frame)
	}
}
