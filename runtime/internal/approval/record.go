package approval

import "net/url"

// IDPrefix is the prefix of the ids of questions.
const IDPrefix = "approval-"

// RecordKey returns the key of the record of a question.
func RecordKey(q *Row) string { return RecordPrefix(q.Principal) + q.ID }

// RecordPrefix returns the common prefix of the keys of a principal's questions; "": of all
// questions.
func RecordPrefix(principal string) string {
	const all = "approval/"
	if principal == "" {
		return all
	}
	return all + url.PathEscape(principal) + "/"
}
