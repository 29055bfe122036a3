package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// A client without credentials is accepted if the configuration and both sides allow it. It is
// a principal of its own, and other clients are told whether anonymous access is possible.
func TestAnonymous(t *testing.T) {
	inJWTBubble(t, "", nil, func(b *fixture, k *tokens) {
		const none, both = `{"scheme":"none"}`, `"anonymous":true`
		jwt := fmt.Sprintf(`{"scheme":"signed_jwt","token":%q}`, k.of("alice", 1e12, ""))
		try := func(why, auth, capabilities, want string) *peer {
			t.Helper()
			p := b.connect(remote)
			p.send("session.open", fmt.Sprintf(`{"auth":%s,"client":{"kind":"test","version":"1"},"capabilities":{%s}}`, auth, capabilities))
			if env := p.read(); !strings.Contains(string(env.Type)+" "+string(env.Payload), want) {
				t.Errorf("%s: %s %s, want %s", why, env.Type, env.Payload, want)
			}
			return p
		}
		try("off", none, both, "anonymous access is off")
		try("off, said by somebody else", jwt, both, `"anonymous":false`)
		try("off, required", jwt, `"required":["anonymous"]`, "required capability not supported: anonymous")

		b.cfg.Auth.Reload(k.load("home", "anonymous: {enabled: true}\n"))
		try("on, not negotiated", none, "", "scheme none requires capabilities.anonymous")
		try("on, said by somebody else", jwt, both, `"anonymous":true`)
		try("on, required", jwt, `"required":["anonymous"]`, "session.accepted")
		one, other := try("on", none, both, `"trust_level":"untrusted"`), try("on", none, both, `"anonymous":true`)
		job := one.submit("demo.sleep", `{"ms":1000}`)
		other.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, job))
		refused, err := arcp.DecodePayload[arcp.CancelRefusedPayload](new(other.expect("cancel.refused")))
		if err != nil || refused.Code != arcp.CodeJobNotFound {
			t.Errorf("another anonymous session's job: %+v, %v", refused, err)
		}
		one.until("job.completed")
	})
}
