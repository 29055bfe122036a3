package arcp_test

import (
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// A frame is decoded to an envelope first, its payload when the type is known.
func ExampleDecode() {
	env, err := arcp.Decode([]byte(`{"arcp":"1.1","id":"m1","timestamp":"2026-11-24T12:00:00Z","type":"ping","session_id":"sess_1","payload":{"nonce":"n"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	ping, err := arcp.DecodePayload[arcp.PingPayload](&env)
	fmt.Println(env.Type, ping.Nonce, err)
	// Output: ping n <nil>
}

// A text that is no envelope is refused with the reason.
func ExampleDecode_invalid() {
	_, err := arcp.Decode([]byte(`{"arcp":"1.1","id":7}`))
	fmt.Println(err)
	// Output: envelope member "id" must be a string, not a number
}

// An envelope of a type, with its payload.
func ExampleFrame() {
	env := arcp.Frame(arcp.Pong, arcp.PongPayload{Nonce: "n"})
	env.ARCP, env.ID, env.SessionID, env.Timestamp = arcp.Version, "msg_1", "sess_1", time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	frame, err := arcp.Marshal(env)
	fmt.Println(string(frame), err)
	// Output: {"arcp":"1.1","id":"msg_1","type":"pong","timestamp":"2026-11-24T12:00:00.000000Z","session_id":"sess_1","payload":{"nonce":"n"}} <nil>
}

// Retryable reports whether the same request may succeed later.
func ExampleErrorf() {
	busy := arcp.Errorf(arcp.CodeUnavailable, "the store of %s is read only", "alice")
	wrong := arcp.Errorf(arcp.CodeInvalidArgument, "count must be positive")
	fmt.Println(busy, busy.Retryable)
	fmt.Println(wrong, wrong.Retryable)
	// Output:
	// UNAVAILABLE: the store of alice is read only true
	// INVALID_ARGUMENT: count must be positive false
}

// The catalog knows every message type.
func ExampleLookup() {
	spec := arcp.Lookup(arcp.JobCompleted)
	fmt.Println(spec.From, spec.Delivery, spec.PayloadName(), spec.Section)
	fmt.Println(arcp.Lookup("job.exploded") == nil)
	// Output:
	// runtime → client sequenced JobCompletedPayload §3.3
	// true
}

// An agent reference is a name, with or without a version.
func ExampleParseAgentRef() {
	for _, s := range []string{"demo.echo", "demo.echo@1.0.0"} {
		ref, err := arcp.ParseAgentRef(s)
		fmt.Printf("%q %q %v\n", ref.Name, ref.Version, err)
	}
	// Output:
	// "demo.echo" "" <nil>
	// "demo.echo" "1.0.0" <nil>
}

// Value has the decimal digits as written.
func ExampleParseAmount() {
	a, err := arcp.ParseAmount("USD:1.50")
	fmt.Println(a.Currency, a.Value, err)
	// Output: USD 1.50 <nil>
}

// Two spellings of one JSON value have one canonical form.
func ExampleCanonical() {
	a, _ := arcp.Canonical(arcp.Raw(`{"b": 2, "a": "\u0061"}`))
	b, _ := arcp.Canonical(arcp.Raw(`{"a":"a","b":2}`))
	fmt.Println(string(a), string(b))
	// Output: {"a":"a","b":2} {"a":"a","b":2}
}

// Identifiers of one source ascend.
func ExampleIDSource() {
	var ids arcp.IDSource
	a, b := ids.New(arcp.JobPrefix), ids.New(arcp.JobPrefix)
	fmt.Println(a < b, arcp.ValidID(a))
	// Output: true true
}
