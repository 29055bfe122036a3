package proxy

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// jwtFaults are defects of JWT authentication.
var jwtFaults = []Fault{
	{Defect: "every JWT is refused", Checks: []string{"jwt.accepted"},
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame { return f.withToken("x.y.z") })},
	{Defect: "a JWT without nbf is refused", Checks: []string{"jwt.accepted"},
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame {
			if token := f.jwt(); token.claims != nil && !token.has("nbf") {
				f = f.withToken("x.y.z")
			}
			return f
		})},
	{Defect: "a JWT with several audiences is refused", Checks: []string{"jwt.accepted"},
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame {
			if _, several := f.jwt().claims["aud"].([]any); several {
				f = f.withToken("x.y.z")
			}
			return f
		})},
	{Defect: "a JWT for another audience is accepted", Checks: []string{"jwt.audience"},
		newShared: acceptJWT(func(token, good jwt) bool { return token.has("aud") && !token.same("aud", good) })},
	{Defect: "a JWT without an audience is accepted", Checks: []string{"jwt.audience"}, House: true,
		newShared: acceptJWT(func(token, _ jwt) bool { return !token.has("aud") })},
	{Defect: "a JWT of another issuer is accepted", Checks: []string{"jwt.issuer"}, House: true,
		newShared: acceptJWT(func(token, good jwt) bool { return token.has("iss") && !token.same("iss", good) })},
	{Defect: "a JWT without an issuer is accepted", Checks: []string{"jwt.issuer"}, House: true,
		newShared: acceptJWT(func(token, _ jwt) bool { return !token.has("iss") })},
	{Defect: "an expired JWT is accepted", Checks: []string{"jwt.expired"}, House: true,
		newShared: acceptJWT(func(token, _ jwt) bool { return token.has("exp") && token.seconds("exp") < float64(time.Now().Unix()) })},
	{Defect: "a JWT is accepted before its nbf", Checks: []string{"jwt.not-yet"}, House: true,
		newShared: acceptJWT(func(token, _ jwt) bool { return token.seconds("nbf") > float64(time.Now().Unix()) })},
	{Defect: "a JWT without exp is accepted", Checks: []string{"jwt.no-exp"}, House: true,
		newShared: acceptJWT(func(token, _ jwt) bool { return !token.has("exp") })},
	{Defect: "a JWT without sub is accepted", Checks: []string{"jwt.no-sub"}, House: true,
		newShared: acceptJWT(func(token, _ jwt) bool { return !token.has("sub") })},
	{Defect: "a JWT with a wrong signature is accepted", Checks: []string{"jwt.key"},
		newShared: acceptJWT(func(token, good jwt) bool { return token.algorithm == good.algorithm && token.claimsAs(good) })},
	{Defect: "a JWT with the algorithm none is accepted", Checks: []string{"jwt.unsigned"},
		newShared: acceptJWT(func(token, _ jwt) bool { return token.algorithm == "none" })},
	{Defect: "a JWT with another algorithm than the key is accepted", Checks: []string{"jwt.algorithm"},
		newShared: acceptJWT(func(token, good jwt) bool { return token.algorithm != "none" && token.algorithm != good.algorithm })},
	{Defect: "the lease of a session ends later than its JWT", Checks: []string{"jwt.expires"}, House: true,
		newRewriter: editReceived(arcp.SessionAccepted, func(f frame) frame {
			return f.editObject("lease", func(o map[string]json.RawMessage) { o["expires_at"] = encode(time.Now().UTC().Add(time.Hour)) })
		})},
	{Defect: "session.open without a JWT is refused instead of challenged", Checks: []string{"jwt.challenge"}, House: true,
		newRewriter: editReceived(arcp.SessionChallenge, func(f frame) frame {
			return f.with("type", arcp.SessionUnauthenticated).with("payload", arcp.Errorf(arcp.CodeUnauthenticated, "a token is required"))
		})},
	{Defect: "a JWT with another nonce answers a challenge", Checks: []string{"jwt.challenge-nonce"}, House: true,
		newShared: acceptAnswer(func(answer jwt, nonce string) bool { return answer.claims["nonce"] != nonce })},
	{Defect: "a JWT that fails verification answers a challenge", Checks: []string{"jwt.challenge-invalid"}, House: true,
		newShared: acceptAnswer(func(answer jwt, nonce string) bool { return answer.claims["nonce"] == nonce })},
	{Defect: "a JWT of another principal answers a challenge", Checks: []string{"jwt.challenge-principal"}, House: true,
		newShared: acceptAnswer(func(answer jwt, _ string) bool { return answer.claims["sub"] == "conformance-somebody-else" })},
	{Defect: "the deadline of session.refresh has passed", Checks: []string{"jwt.refresh"},
		newRewriter: editReceived(arcp.SessionRefresh, func(f frame) frame { return f.withPayload("deadline", past) })},
	{Defect: "the answer to session.refresh is refused", Checks: []string{"jwt.renewed"},
		newRewriter: editSent(arcp.SessionAuthenticate, func(f frame) frame { return f.withPayload("auth", nil).withPayload("response", "x.y.z") })},
	{Defect: "a session ends with its first credential", Checks: []string{"jwt.renewed"}, newRewriter: evictAtDeadline},
	{Defect: "a session whose credential has ended is closed without session.evicted", Checks: []string{"jwt.unrenewed"},
		newRewriter: dropReceived(arcp.SessionEvicted)},
	{Defect: "every challenge to a JWT holder is the same", Checks: []string{"jwt.challenge-nonce"}, House: true,
		newRewriter: editReceived(arcp.SessionChallenge, func(f frame) frame { return f.withPayload("challenge", "constant") })},
}

// jwt is a decoded token. The signature is not verified. The claims are nil if the token is
// malformed.
type jwt struct {
	text      string
	algorithm string
	claims    map[string]any
}

func parseJWT(text string) jwt {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return jwt{}
	}
	t := jwt{text: text}
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

func (j jwt) has(claim string) bool {
	v, ok := j.claims[claim]
	return ok && v != ""
}

func (j jwt) same(claim string, as jwt) bool {
	return slices.Equal(encode(j.claims[claim]), encode(as.claims[claim]))
}

// claimsAs reports whether a token has the claims of another one except for exp, which has not passed.
// The tokens of a check end at different times, because they are signed at different times.
func (j jwt) claimsAs(other jwt) bool {
	mine, theirs := maps.Clone(j.claims), maps.Clone(other.claims)
	delete(mine, "exp")
	delete(theirs, "exp")
	return slices.Equal(encode(mine), encode(theirs)) && j.seconds("exp") > float64(time.Now().Unix())
}

func (j jwt) seconds(claim string) float64 {
	n, _ := j.claims[claim].(float64)
	return n
}

// jwt returns the token of a session.open with the scheme signed_jwt; the zero value for other
// frames.
func (f frame) jwt() jwt {
	p, err := arcp.DecodePayload[arcp.SessionOpenPayload](&f.Envelope)
	if err != nil || p.Auth.Scheme != "signed_jwt" {
		return jwt{}
	}
	return parseJWT(p.Auth.Token)
}

// withToken returns a copy of the session.open f with another JWT.
func (f frame) withToken(token string) frame {
	if f.jwt().claims == nil {
		return f
	}
	return f.editObject("auth", func(o map[string]json.RawMessage) { o["token"] = encode(token) })
}

// acceptJWT returns rewriters that replace each invalid token by the first, valid token of the
// check.
func acceptJWT(wrong func(token, good jwt) bool) func() func() rewriter {
	return func() func() rewriter {
		var good jwt
		return editSent(arcp.SessionOpen, func(f frame) frame {
			token := f.jwt()
			switch {
			case token.claims == nil:
			case good.claims == nil:
				good = token
			case wrong(token, good):
				f = f.withToken(good.text)
			}
			return f
		})
	}
}

// acceptAnswer returns rewriters that accept an invalid answer to a challenge. The answer is copied
// from the first accepted session of the check.
func acceptAnswer(wrong func(answer jwt, nonce string) bool) func() func() rewriter {
	return func() func() rewriter {
		var accepted frame
		return func() rewriter {
			nonce, accepts := "", map[arcp.MessageID]bool{}
			return rewriter{
				out: func(f frame) []frame {
					if f.Type == arcp.SessionAuthenticate && wrong(parseJWT(f.stringMember("response")), nonce) {
						accepts[f.ID] = true
					}
					return []frame{f}
				},
				in: func(f frame) []frame {
					switch {
					case f.Type == arcp.SessionChallenge:
						nonce = f.stringMember("challenge")
					case f.Type == arcp.SessionAccepted && accepted.ID == "":
						accepted = f
					case f.Type == arcp.SessionUnauthenticated && accepts[f.CorrelationID]:
						f = accepted.withNewID().with("correlation_id", f.CorrelationID).with("session_id", f.SessionID).withPayload("session_id", f.SessionID)
					}
					return []frame{f}
				},
			}
		}
	}
}

// acceptFirstAnswer accepts the answer that opened the first session of the check on every
// connection.
func acceptFirstAnswer() func() rewriter {
	var good string
	accepted := frame{}
	return func() rewriter {
		accepts := map[arcp.MessageID]bool{}
		return rewriter{
			out: func(f frame) []frame {
				if f.Type == arcp.SessionAuthenticate {
					accepts[f.ID] = f.stringMember("response") == good
					good = cmp.Or(good, f.stringMember("response"))
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				switch {
				case f.Type == arcp.SessionAccepted && accepted.ID == "":
					accepted = f
				case f.Type == arcp.SessionUnauthenticated && accepts[f.CorrelationID]:
					f = accepted.withNewID().with("correlation_id", f.CorrelationID).with("session_id", f.SessionID).withPayload("session_id", f.SessionID)
				}
				return []frame{f}
			},
		}
	}
}

// acceptSecondAnswer accepts the second answer to a challenge on one connection.
func acceptSecondAnswer() rewriter {
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

// evictAtDeadline evicts a session at the first pong after the deadline of session.refresh.
func evictAtDeadline() rewriter {
	var refresh frame
	var deadline time.Time
	return rewriter{in: func(f frame) []frame {
		if p, err := arcp.DecodePayload[arcp.SessionRefreshPayload](&f.Envelope); err == nil && f.Type == arcp.SessionRefresh {
			refresh, deadline = f, p.Deadline
		}
		if f.Type != arcp.Pong || deadline.IsZero() || time.Now().Before(deadline) {
			return []frame{f}
		}
		evicted := arcp.SessionEvictedPayload{Code: arcp.CodeUnauthenticated, Reason: "the credential has expired"}
		return []frame{refresh.withNewID().with("type", arcp.SessionEvicted).with("payload", evicted), f}
	}}
}
