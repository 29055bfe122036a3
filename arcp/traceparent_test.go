package arcp

import "testing"

func TestTraceparent(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for text, ok := range map[string]bool{
		"00-" + trace + "-" + span + "-01":                    true,
		"00-" + trace + "-" + span + "-00":                    true,
		"cc-" + trace + "-" + span + "-01":                    true,
		"ff-" + trace + "-" + span + "-01":                    false,
		"0-" + trace + "-" + span + "-01":                     false,
		"00-" + trace + "-" + span:                            false,
		"00-" + trace + "-" + span + "-01-00":                 false,
		"00-" + trace + "-" + span + "-0g":                    false,
		"00-" + trace[1:] + "-" + span + "-01":                false,
		"00-" + trace + "-" + span[1:] + "x-01":               false,
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01": false,
		"00-00000000000000000000000000000000-" + span + "-01": false,
		"00-" + trace + "-0000000000000000-01":                false,
		"trace_789":                                           false,
		"":                                                    false,
	} {
		gotTrace, gotSpan, gotOK := ParseTraceparent(text)
		if gotOK != ok || ok && (gotTrace != trace || gotSpan != span) || !ok && gotTrace+gotSpan != "" {
			t.Errorf("ParseTraceparent(%q) = %q, %q, %v, want %v", text, gotTrace, gotSpan, gotOK, ok)
		}
	}
	if got, want := Traceparent(trace, span), "00-"+trace+"-"+span+"-01"; got != want {
		t.Errorf("Traceparent = %q, want %q", got, want)
	}
	for _, ids := range [][2]string{{"trace_789", span}, {trace, ""}, {trace, "s1"}} {
		if got := Traceparent(ids[0], ids[1]); got != "" {
			t.Errorf("Traceparent(%q, %q) = %q, want none", ids[0], ids[1], got)
		}
	}
}
