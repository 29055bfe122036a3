package proxy

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// jwtFaults break the rules for JWTs.
var jwtFaults = []Fault{
	{Name: "believe nobody", Says: "no JWT opens a session", Shows: []string{"jwt.accepted"},
		newRewriter: asked(arcp.SessionOpen, func(f frame) frame { return f.showing("x.y.z") })},
	{Name: "want a beginning", Says: "a JWT without nbf opens nothing", Shows: []string{"jwt.accepted"},
		newRewriter: asked(arcp.SessionOpen, func(f frame) frame {
			if token := f.jwt(); token.claims != nil && !token.has("nbf") {
				f = f.showing("x.y.z")
			}
			return f
		})},
	{Name: "one audience", Says: "a JWT for several servers opens nothing", Shows: []string{"jwt.accepted"},
		newRewriter: asked(arcp.SessionOpen, func(f frame) frame {
			if _, several := f.jwt().claims["aud"].([]any); several {
				f = f.showing("x.y.z")
			}
			return f
		})},
	{Name: "any audience", Says: "a JWT for another server opens a session", Shows: []string{"jwt.audience"},
		across: believes(func(token, good jwt) bool { return token.has("aud") && !token.same("aud", good) })},
	{Name: "no audience", Says: "a JWT for nobody opens a session", Shows: []string{"jwt.audience"},
		across: believes(func(token, _ jwt) bool { return !token.has("aud") })},
	{Name: "any issuer", Says: "a JWT of another issuer opens a session", Shows: []string{"jwt.issuer"},
		across: believes(func(token, good jwt) bool { return token.has("iss") && !token.same("iss", good) })},
	{Name: "no issuer", Says: "a JWT of no issuer opens a session", Shows: []string{"jwt.issuer"},
		across: believes(func(token, _ jwt) bool { return !token.has("iss") })},
	{Name: "believe for ever", Says: "a JWT that has expired opens a session", Shows: []string{"jwt.expired"},
		across: believes(func(token, _ jwt) bool { return token.has("exp") && token.seconds("exp") < float64(time.Now().Unix()) })},
	{Name: "believe too early", Says: "a JWT that is not valid yet opens a session", Shows: []string{"jwt.not-yet"},
		across: believes(func(token, _ jwt) bool { return token.seconds("nbf") > float64(time.Now().Unix()) })},
	{Name: "believe without an end", Says: "a JWT without exp opens a session", Shows: []string{"jwt.no-exp"},
		across: believes(func(token, _ jwt) bool { return !token.has("exp") })},
	{Name: "believe of nobody", Says: "a JWT without sub opens a session", Shows: []string{"jwt.no-sub"},
		across: believes(func(token, _ jwt) bool { return !token.has("sub") })},
	{Name: "verify nothing", Says: "any signature is right", Shows: []string{"jwt.key"},
		across: believes(func(token, good jwt) bool { return token.algorithm == good.algorithm && token.body == good.body })},
	{Name: "no signature", Says: "algorithm none is allowed", Shows: []string{"jwt.unsigned"},
		across: believes(func(token, _ jwt) bool { return token.algorithm == "none" })},
	{Name: "any algorithm", Says: "the token chooses the algorithm", Shows: []string{"jwt.algorithm"},
		across: believes(func(token, good jwt) bool { return token.algorithm != "none" && token.algorithm != good.algorithm })},
	{Name: "outlive the credential", Says: "the lease of a session is longer than its JWT", Shows: []string{"jwt.expires"},
		newRewriter: every(arcp.SessionAccepted, func(f frame) frame {
			return f.nested("lease", func(o map[string]json.RawMessage) { o["expires_at"] = encode(time.Now().UTC().Add(time.Hour)) })
		})},
	{Name: "no challenge for JWTs", Says: "who shows no JWT is refused at once", Shows: []string{"jwt.challenge"},
		newRewriter: every(arcp.SessionChallenge, func(f frame) frame {
			return f.with("type", arcp.SessionUnauthenticated).with("payload", arcp.Errorf(arcp.CodeUnauthenticated, "a token is required"))
		})},
	{Name: "any nonce", Says: "a JWT that was made for something else answers a challenge", Shows: []string{"jwt.challenge-nonce"},
		across: takes(func(answer jwt, nonce string) bool { return answer.claims["nonce"] != nonce })},
	{Name: "look at the nonce only", Says: "a JWT that would open nothing answers a challenge", Shows: []string{"jwt.challenge-invalid"},
		across: takes(func(answer jwt, nonce string) bool { return answer.claims["nonce"] == nonce })},
	{Name: "any principal", Says: "a JWT of another principal answers a challenge", Shows: []string{"jwt.challenge-principal"},
		across: takes(func(answer jwt, _ string) bool { return answer.claims["sub"] == "conformance-somebody-else" })},
	{Name: "one challenge for all JWTs", Says: "a challenge is given again", Shows: []string{"jwt.challenge-nonce"},
		newRewriter: every(arcp.SessionChallenge, func(f frame) frame { return f.withPayload("challenge", "as always") })},
}

// jwt is a token as it is read without trusting it; its claims are nil if it is none.
type jwt struct {
	text, body string
	algorithm  string
	claims     map[string]any
}

func parseJWT(text string) jwt {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return jwt{}
	}
	t := jwt{text: text, body: parts[1]}
	var header map[string]any
	for i, v := range []*map[string]any{&header, &t.claims} {
		raw, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(raw, v) != nil {
			return jwt{}
		}
	}
	t.algorithm, _ = header["alg"].(string)
	return t
}

func (t jwt) has(claim string) bool {
	v, ok := t.claims[claim]
	return ok && v != ""
}

func (t jwt) same(claim string, as jwt) bool {
	return slices.Equal(encode(t.claims[claim]), encode(as.claims[claim]))
}

func (t jwt) seconds(claim string) float64 {
	n, _ := t.claims[claim].(float64)
	return n
}

// jwt is the token of a session.open with the scheme signed_jwt.
func (f frame) jwt() jwt {
	p, err := arcp.DecodePayload[arcp.SessionOpenPayload](&f.Envelope)
	if err != nil || p.Auth.Scheme != "signed_jwt" {
		return jwt{}
	}
	return parseJWT(p.Auth.Token)
}

// showing returns a session.open with another JWT.
func (f frame) showing(token string) frame {
	if f.jwt().claims == nil {
		return f
	}
	return f.nested("auth", func(o map[string]json.RawMessage) { o["token"] = encode(token) })
}

// believes makes stages that put the first token of a check, which is good, in the
// place of those with something wrong.
func believes(wrong func(token, good jwt) bool) func() func() rewriter {
	return func() func() rewriter {
		var good jwt
		return asked(arcp.SessionOpen, func(f frame) frame {
			token := f.jwt()
			switch {
			case token.claims == nil:
			case good.claims == nil:
				good = token
			case wrong(token, good):
				f = f.showing(good.text)
			}
			return f
		})
	}
}

// takes makes stages that accept an answer to a challenge, as the first session of
// the check was accepted, although it is wrong.
func takes(wrong func(answer jwt, nonce string) bool) func() func() rewriter {
	return func() func() rewriter {
		var accepted frame
		return func() rewriter {
			nonce, spared := "", map[arcp.MessageID]bool{}
			return rewriter{
				out: func(f frame) []frame {
					if f.Type == arcp.SessionAuthenticate && wrong(parseJWT(f.word("response")), nonce) {
						spared[f.ID] = true
					}
					return []frame{f}
				},
				in: func(f frame) []frame {
					switch {
					case f.Type == arcp.SessionChallenge:
						nonce = f.word("challenge")
					case f.Type == arcp.SessionAccepted && accepted.ID == "":
						accepted = f
					case f.Type == arcp.SessionUnauthenticated && spared[f.CorrelationID]:
						f = accepted.withNewID().with("correlation_id", f.CorrelationID).with("session_id", f.SessionID).withPayload("session_id", f.SessionID)
					}
					return []frame{f}
				},
			}
		}
	}
}

// oneAnswer accepts the answer with which the first session of the check was opened in
// each other one.
func oneAnswer() func() rewriter {
	var good string
	accepted := frame{}
	return func() rewriter {
		spared := map[arcp.MessageID]bool{}
		return rewriter{
			out: func(f frame) []frame {
				if f.Type == arcp.SessionAuthenticate {
					spared[f.ID] = f.word("response") == good
					good = cmp.Or(good, f.word("response"))
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				switch {
				case f.Type == arcp.SessionAccepted && accepted.ID == "":
					accepted = f
				case f.Type == arcp.SessionUnauthenticated && spared[f.CorrelationID]:
					f = accepted.withNewID().with("correlation_id", f.CorrelationID).with("session_id", f.SessionID).withPayload("session_id", f.SessionID)
				}
				return []frame{f}
			},
		}
	}
}

// acceptAgain answers the second answer of a connection to a challenge as the first.
func acceptAgain() rewriter {
	var accepted frame
	var again arcp.MessageID
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == arcp.SessionAuthenticate && accepted.ID != "" {
				again = f.ID
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type == arcp.SessionAccepted {
				accepted = f
			}
			if again == "" {
				return []frame{f}
			}
			answer := accepted.withNewID().with("correlation_id", again)
			again = ""
			return []frame{answer, f}
		},
	}
}
