package arcp_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
)

// rfcCodes are the codes of RFC 0001 §18.2, which every published client decodes.
var rfcCodes = map[arcp.Code]bool{"OK": true, "CANCELLED": true, "UNKNOWN": true, "INVALID_ARGUMENT": true, "DEADLINE_EXCEEDED": true, "NOT_FOUND": true,
	"ALREADY_EXISTS": true, "PERMISSION_DENIED": true, "RESOURCE_EXHAUSTED": true, "FAILED_PRECONDITION": true, "ABORTED": true, "OUT_OF_RANGE": true,
	"UNIMPLEMENTED": true, "INTERNAL": true, "UNAVAILABLE": true, "DATA_LOSS": true, "UNAUTHENTICATED": true, "HEARTBEAT_LOST": true,
	"LEASE_EXPIRED": true, "LEASE_REVOKED": true, "BACKPRESSURE_OVERFLOW": true}

// Whatever the code, a code of the RFC is sent, and the specific one is read back.
func TestSpecificCodesSurviveTheWire(t *testing.T) {
	for _, info := range arcp.Codes {
		for _, details := range []string{"", "{}", `{"x":1}`, ` { "x":1 } `, `{"code":"MINE"}`, `{"code":7,"arcp_code":"x"}`} {
			e := arcp.Errorf(info.Code, "m")
			if details != "" {
				e.Details = arcp.Raw(details)
			}
			raw, err := arcp.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			var sent struct {
				Code      arcp.Code `json:"code"`
				Retryable bool      `json:"retryable"`
			}
			if err := arcp.Unmarshal(raw, &sent); err != nil || !rfcCodes[sent.Code] || sent.Retryable != info.Retryable {
				t.Errorf("%s is sent as %s, %v", info.Code, raw, err)
			}
			var back arcp.Error
			if err := arcp.Unmarshal(raw, &back); err != nil {
				t.Fatal(err)
			}
			if details != `{"code":7,"arcp_code":"x"}` && back.Code != info.Code {
				t.Errorf("%s with %s is sent as %s and read as %s", info.Code, details, raw, back.Code)
			}
		}
	}
}

func TestSpecificCodeIsADetailOfTheRFCCode(t *testing.T) {
	for _, c := range []struct {
		why, code, details, want string
	}{
		{"without details", "JOB_NOT_FOUND", "", `{"code":"NOT_FOUND","message":"m","retryable":false,"details":{"code":"JOB_NOT_FOUND"}}`},
		{"beside details", "BUDGET_EXHAUSTED", `{"currency":"USD"}`, `{"code":"RESOURCE_EXHAUSTED","message":"m","retryable":false,"details":{"code":"BUDGET_EXHAUSTED","currency":"USD"}}`},
		{"a tool's own code stays", "TIMEOUT", `{"code":"SLOW"}`, `{"code":"DEADLINE_EXCEEDED","message":"m","retryable":false,"details":{"arcp_code":"TIMEOUT","code":"SLOW"}}`},
		{"a code of the RFC", "NOT_FOUND", `{"code":"MINE"}`, `{"code":"NOT_FOUND","message":"m","retryable":false,"details":{"code":"MINE"}}`},
	} {
		e := arcp.Errorf(arcp.Code(c.code), "m")
		if c.details != "" {
			e.Details = arcp.Raw(c.details)
		}
		raw, err := arcp.Marshal(e)
		if err != nil || string(raw) != c.want {
			t.Errorf("%s: sent as %s, %v; want %s", c.why, raw, err, c.want)
		}
		var back arcp.Error
		if err := arcp.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*e, back); diff != "" {
			t.Errorf("%s (-sent +read):\n%s", c.why, diff)
		}
	}
	raw, err := arcp.Marshal(&arcp.Error{Code: arcp.CodeAborted, Cause: &arcp.Cause{Code: arcp.CodeTimeout, Message: "slow"}})
	if want := `{"code":"ABORTED","message":"","retryable":false,"cause":{"code":"DEADLINE_EXCEEDED","message":"slow"}}`; err != nil || string(raw) != want {
		t.Errorf("a cause is sent as %s, %v", raw, err)
	}
}

// Each payload with a code is sent with a code of the RFC, whatever code it holds.
func TestPayloadsAreSentWithRFCCodes(t *testing.T) {
	payloads := 0
	for i := range arcp.Catalog {
		spec := &arcp.Catalog[i]
		p := spec.NewPayload()
		code := reflect.ValueOf(p).Elem().FieldByName("Code")
		if !code.IsValid() || code.Type() != reflect.TypeFor[arcp.Code]() {
			continue
		}
		payloads++
		for _, info := range arcp.Codes {
			code.Set(reflect.ValueOf(info.Code))
			raw, err := arcp.Marshal(p)
			var sent struct {
				Code arcp.Code `json:"code"`
			}
			if err == nil {
				err = arcp.Unmarshal(raw, &sent)
			}
			if err != nil || !rfcCodes[sent.Code] {
				t.Errorf("%s with %s is sent as %s, %v", spec.Type, info.Code, raw, err)
			}
		}
	}
	if payloads < 11 {
		t.Errorf("%d payloads have a code; want those of RFC 0001", payloads)
	}
}
