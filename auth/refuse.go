package auth

import (
	"errors"
	"strconv"
)

// wrongAnswer is the refusal of every wrong answer to a challenge. It does not reveal whether the
// principal exists. The detail is for the log.
func wrongAnswer(detail error) *Error {
	return &Error{Reason: ReasonResponse, Message: "challenge response did not validate", Err: detail}
}

func missingToken(scheme string) *Error {
	return &Error{Reason: ReasonMissing, Message: scheme + " scheme requires a token"}
}

func notConfigured(scheme string) *Error {
	return &Error{
		Reason:  ReasonNotConfigured,
		Message: "auth scheme " + shown(scheme) + " is not configured",
		Final:   true,
	}
}

func cannotChallenge(scheme string) *Error {
	return &Error{Reason: ReasonUnsupported, Message: "auth scheme " + scheme + " cannot be challenged", Final: true}
}

func refuseAnonymous(message string) *Error {
	return &Error{Reason: ReasonAnonymous, Message: message, Final: true}
}

var errNoChallenge = errors.New("no challenge was sent")

// maxShown bounds a word of a peer that an error may repeat, in bytes. The longest keyword has 13
// bytes, a generated token at least 26.
const maxShown = 20

// shown quotes a word that resembles a keyword. Any other word may be a misplaced credential and is
// not repeated.
func shown(word string) string {
	if word == "" || len(word) > maxShown {
		return "(not shown)"
	}
	for _, c := range []byte(word) {
		if !nameByte(c) {
			return "(not shown)"
		}
	}
	return strconv.Quote(word)
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.'
}
