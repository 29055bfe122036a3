package arcp

import "testing"

func TestMissingMemberIsTheFirstAbsentOne(t *testing.T) {
	for _, tt := range []struct {
		name, raw string
		decode    func(Raw) (any, error)
		want      string
	}{
		{"zero but there", `{"last_processed_seq":0}`, decodeAs[SessionAckPayload], ""},
		{"not there", `{}`, decodeAs[SessionAckPayload], "last_processed_seq"},
		{"null is not there", `{"last_processed_seq":null}`, decodeAs[SessionAckPayload], "last_processed_seq"},
		{"the second of two", `{"target":"job"}`, decodeAs[CancelPayload], "target_id"},
		{"empty but there", `{"target":"","target_id":""}`, decodeAs[CancelPayload], ""},
		{"optional members may be left out", `{"tool":"demo.echo"}`, decodeAs[ToolInvokePayload], ""},
		{"no required members", `{}`, decodeAs[PingPayload], ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := tt.decode(Raw(tt.raw))
			if err != nil {
				t.Fatal(err)
			}
			if got := MissingMember(Raw(tt.raw), p); got != tt.want {
				t.Errorf("MissingMember(%s) = %q, want %q", tt.raw, got, tt.want)
			}
		})
	}
}

func decodeAs[T any](raw Raw) (any, error) {
	var p T
	err := Unmarshal(raw, &p)
	return p, err
}
