package auth

import "testing"

// A session of a JWT whose key was removed, for example because the key has leaked, is not renewed. A session of a
// key that the issuer still has is renewed, in whatever order the keys are now.
func TestSessionsEndWithTheirKey(t *testing.T) {
	const next = "another secret of thirty-two bytes"
	config := func(files string, content map[string]string) *Config {
		return parse(t, writeFiles(t, content), `
issuers: [{issuer: "https://issuer.example", key_files: [`+files+`], algorithms: [HS256]}]`)
	}
	set := NewSet(hmacConfig(t, ""))
	id := begin(t, set, jwtRequest(signedToken(t, nil)))
	set.Reload(config("next, old", map[string]string{"next": next, "old": string(signers()["secret"].private.([]byte))}))
	renewed, err := set.Revalidate(id, Request{Now: now})
	if err != nil || renewed.KeyFingerprint != id.KeyFingerprint || id.KeyFingerprint == "" {
		t.Errorf("with both keys: Revalidate = %+v, %v", renewed, err)
	}
	set.Reload(config("next", map[string]string{"next": next}))
	if _, _, err := set.Begin(t.Context(), jwtRequest(signedToken(t, nil))); err == nil {
		t.Error("a JWT of a removed key opens a session")
	}
	wantRevoked(t, "the key is gone", set, renewed)
}

// keyFingerprint identifies the key of hmacConfig.
func keyFingerprint() string {
	return fingerprint("key", signers()["secret"].private.([]byte))
}
