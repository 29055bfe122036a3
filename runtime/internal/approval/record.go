package approval

import "net/url"

// IDPrefix begins the ids of questions.
const IDPrefix = "approval-"

// RecordKey returns the key of a question. The keys of one principal have a common prefix.
func RecordKey(q *Row) string { return RecordPrefix(q.Principal) + q.ID }

// RecordPrefix returns the prefix of the keys of a principal's questions; of all questions if the
// principal is empty.
func RecordPrefix(principal string) string {
	const all = "approval/"
	if principal == "" {
		return all
	}
	return all + url.PathEscape(principal) + "/"
}
