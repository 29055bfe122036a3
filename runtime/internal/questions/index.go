package questions

import (
	"cmp"
	"strings"

	"github.com/RaduBerinde/btreemap"

	"github.com/arcpd/arcpd/arcp"
)

// index has the pending questions. Its methods need the lock of the Broker, except those of a
// clone of a tree. A Question of the index does not change: a change of the question replaces it.
type index struct {
	byID      *tree
	byOwner   map[string]*tree             // by principal; no tree is empty
	requests  map[arcp.MessageID]*Question // by the id of the event
	approvals *approvalTree                // the questions without a job
}

// tree has questions by id. A clone costs the same for any number of questions, and is read
// without the lock.
type tree = btreemap.BTreeMap[string, *Question]

// approvalTree has questions by session, then id.
type approvalTree = btreemap.BTreeMap[approvalKey, *Question]

type approvalKey struct {
	session arcp.SessionID
	id      string
}

func (k approvalKey) compare(other approvalKey) int {
	return cmp.Or(cmp.Compare(k.session, other.session), cmp.Compare(k.id, other.id))
}

// treeDegree is the degree of the trees: a change after a clone copies a few nodes of some 32
// questions.
const treeDegree = 16

func newTree() *tree { return btreemap.New[string, *Question](treeDegree, strings.Compare) }

func newIndex() index {
	return index{
		byID:      newTree(),
		byOwner:   make(map[string]*tree),
		requests:  make(map[arcp.MessageID]*Question),
		approvals: btreemap.New[approvalKey, *Question](treeDegree, approvalKey.compare),
	}
}

// find returns a question by its id; nil: there is none.
func (ix *index) find(id string) *Question {
	_, q, _ := ix.byID.Get(id)
	return q
}

// put adds a question or replaces the one of the same id.
func (ix *index) put(q *Question) {
	ix.remove(q.Row.ID)
	ix.byID.ReplaceOrInsert(q.Row.ID, q)
	own := ix.byOwner[q.Row.Principal]
	if own == nil {
		own = newTree()
		ix.byOwner[q.Row.Principal] = own
	}
	own.ReplaceOrInsert(q.Row.ID, q)
	if q.Request != "" {
		ix.requests[q.Request] = q
	}
	if q.Row.Job == "" {
		ix.approvals.ReplaceOrInsert(approvalKey{q.Row.Session, q.Row.ID}, q)
	}
}

// remove removes a question, and reports whether it was there.
func (ix *index) remove(id string) bool {
	_, q, ok := ix.byID.Delete(id)
	if !ok {
		return false
	}
	own := ix.byOwner[q.Row.Principal]
	if own.Delete(id); own.Len() == 0 {
		delete(ix.byOwner, q.Row.Principal)
	}
	delete(ix.requests, q.Request)
	if q.Row.Job == "" {
		ix.approvals.Delete(approvalKey{q.Row.Session, id})
	}
	return true
}

// countOf returns the number of questions of a principal.
func (ix *index) countOf(principal string) int {
	if own := ix.byOwner[principal]; own != nil {
		return own.Len()
	}
	return 0
}

// cloneOf returns a clone of the questions of a principal.
func (ix *index) cloneOf(principal string) *tree {
	if own := ix.byOwner[principal]; own != nil {
		return own.Clone()
	}
	return newTree()
}
