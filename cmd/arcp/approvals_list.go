package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// questionList lists questions: the pending ones from the oldest, then the others from the newest. The runtime lists the
// questions of each principal by age. fetch reads that whole list for each page, so that a question that is answered in
// the meantime is listed once in a page.
type questionList struct{ allKinds bool }

// fetch reads the rows after the cursor, at most q.limit.
func (ql *questionList) fetch(ctx context.Context, c *client.Client, q *query) (got arcp.Page[arcp.QuestionView], err error) {
	after, err := parseQuestionCursor(q.cursor)
	if err != nil {
		return got, err
	}
	all := *q
	all.cursor, all.page = "", maxRows
	for more := true; more; {
		page, err := ask[arcp.Page[arcp.QuestionView]](ctx, c, "approval.list", all.args())
		if err != nil {
			return got, err
		}
		for i := range page.Items {
			if item := &page.Items[i]; ql.lists(item) && (after == nil || questionOrder(item, after) > 0) {
				got.Items = append(got.Items, *item)
			}
		}
		slices.SortFunc(got.Items, func(a, b arcp.QuestionView) int { return questionOrder(&a, &b) })
		if q.limit > 0 && len(got.Items) > int(q.limit) {
			got.Items = got.Items[:q.limit]
			got.NextCursor = questionCursor(&got.Items[q.limit-1])
		}
		all.cursor, more = page.NextCursor, page.NextCursor != ""
	}
	return got, nil
}

func (ql *questionList) lists(q *arcp.QuestionView) bool {
	return ql.allKinds || q.Kind == arcp.QuestionGate || q.Kind == arcp.QuestionOwned
}

// questionOrder compares the positions of two questions in the list.
func questionOrder(a, b *arcp.QuestionView) int {
	age := cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ApprovalID, b.ApprovalID))
	switch aPending, bPending := a.Status == arcp.QuestionPending, b.Status == arcp.QuestionPending; {
	case aPending && bPending:
		return age
	case aPending:
		return -1
	case bPending:
		return 1
	}
	return -age
}

// questionCursor returns the position of a question in the list.
func questionCursor(q *arcp.QuestionView) string {
	return string(q.Status) + "/" + q.CreatedAt.UTC().Format(time.RFC3339Nano) + "/" + q.ApprovalID
}

// parseQuestionCursor returns a question at the position of a cursor; nil if the cursor is empty.
func parseQuestionCursor(cursor string) (*arcp.QuestionView, error) {
	if cursor == "" {
		return nil, nil
	}
	status, rest, _ := strings.Cut(cursor, "/")
	created, id, _ := strings.Cut(rest, "/")
	at, err := time.Parse(time.RFC3339Nano, created)
	if err != nil || id == "" {
		return nil, usagef("--cursor %q: give the cursor that the previous page printed", cursor)
	}
	return &arcp.QuestionView{ApprovalID: id, Status: arcp.QuestionStatus(status), CreatedAt: at}, nil
}
