package approval

import "net/url"

// IDPrefix begins the ids of questions.
const IDPrefix = "approval-"

// RecordKey is where a question is kept; those of one principal lie together.
func RecordKey(q *Row) string { return RecordPrefix(q.Principal) + q.ID }

// RecordPrefix begins the keys of a principal's questions; of "" everybody's.
func RecordPrefix(principal string) string {
	const all = "approval/"
	if principal == "" {
		return all
	}
	return all + url.PathEscape(principal) + "/"
}
