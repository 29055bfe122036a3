package conformance

import (
	"strings"
	"testing"
)

// A need that a flag and a key of the mapping file meet names both.
func TestMissingNeedNamesFlagAndKey(t *testing.T) {
	for need, flag := range map[string]string{NeedOther: "other-token", NeedObserver: "observer-token", NeedPrincipal: "principal",
		NeedAckWindow: "ack-window", NeedFrameLimit: "frame-limit"} {
		want := "give --" + flag + ", or " + strings.ReplaceAll(flag, "-", "_") + " in a mapping file"
		if reason := new(server).missing(new(Target), need); !strings.Contains(reason, want) {
			t.Errorf("%s: %q, want %q", need, reason, want)
		}
	}
	for _, j := range []*JWT{nil, {Key: new(SigningKey)}, {Key: new(SigningKey), Issuer: "i"}} {
		if reason := new(server).missing(&Target{JWT: j}, NeedJWT); !strings.Contains(reason, ": give --jwt-") {
			t.Errorf("%+v: %q names no flag", j, reason)
		}
	}
}
