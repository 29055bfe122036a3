package main

import (
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// clock returns a time in the local time zone.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// localTimes returns a message of the runtime with its times as clock writes them. The protocol has these times only in
// the message. A word that is no time in RFC 3339, but for punctuation behind it, is unchanged.
func localTimes(message string) string {
	words := strings.Split(message, " ")
	for i, word := range words {
		bare := strings.TrimRight(word, ".,:;)")
		if at, err := time.Parse(time.RFC3339, bare); err == nil {
			words[i] = clock(at) + word[len(bare):]
		}
	}
	return strings.Join(words, " ")
}

// failureText returns the message of an error, with local times if it is of a code whose messages the runtime writes
// with a time.
func failureText(code arcp.Code, message string) string {
	if code == arcp.CodeLeaseExpired || code == arcp.CodeDeadlineExceeded {
		return localTimes(message)
	}
	return message
}
