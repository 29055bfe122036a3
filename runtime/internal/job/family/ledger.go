package family

import (
	"cmp"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

// Ledger has the children of a job, in the order of the calls, and the part of the job's budget
// that each of them holds. A child's entry is stored before the child is created. A changed entry is
// stored together with the budget, so no amount is debited or credited twice.
type Ledger struct {
	children []*Child
	changed  []*Child // their entries are to be stored
}

// Child is a child of a job.
type Child struct {
	Entry
	Stored     bool   // there is a record
	Rev        uint64 // of the record; 0: unknown
	Reverted   bool   // the record is to be deleted
	NotCreated bool   // there is no job, and the entry will be reverted

	calledBy uint32 // the latest attempt that called the child
	knownTo  uint32 // the latest attempt that knows the outcome
}

// Entry is the record of a child.
type Entry struct {
	N        uint64     `json:"n"` // of the job, from 1
	Job      arcp.JobID `json:"job_id"`
	Request  string     `json:"request"`           // digest of the call
	Failed   int        `json:"failed,omitzero"`   // attempts of the parent that had failed before the call
	Created  bool       `json:"made,omitzero"`     // there was a job; written together with the job
	Open     bool       `json:"open,omitzero"`     // the rest of its budget has not been returned
	Reserved []string   `json:"reserved,omitzero"` // amounts, while it is open
}

// Texts returns the text of each amount.
func Texts(list []lease.Amount) (texts []string) {
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return texts
}

// reserved returns the amounts of an open entry.
func (e *Entry) reserved() (list []lease.Amount) {
	for _, text := range e.Reserved {
		if a, err := lease.ParseAmount(text); err == nil { // it was written from one
			list = append(list, a)
		}
	}
	return list
}

// RecordOutcome records that an attempt knows the outcome of the child.
func (c *Child) RecordOutcome(attempt uint32) { c.knownTo = attempt }

// Stale reports whether an attempt creates the child anew: the child has failed, and so has the
// attempt that called it. failed is the number of attempts that have failed, and state the state of
// the child.
func (c *Child) Stale(failed int, state arcp.JobState) bool {
	return c.Failed < failed && state.Terminal() && state != arcp.StateCompleted
}

// Load adds the stored entries of an earlier process, in any order.
func (l *Ledger) Load(stored []*Child) {
	l.children = stored
	slices.SortFunc(l.children, func(a, b *Child) int { return cmp.Compare(a.N, b.N) })
}

// Children returns a copy of the list of children.
func (l *Ledger) Children() []*Child { return slices.Clone(l.children) }

// Empty reports whether the job has no children.
func (l *Ledger) Empty() bool { return len(l.children) == 0 }

// Find returns the entry of a child; nil: there is none.
func (l *Ledger) Find(id arcp.JobID) *Child {
	if i := slices.IndexFunc(l.children, func(c *Child) bool { return c.Job == id }); i >= 0 {
		return l.children[i]
	}
	return nil
}

// Match returns the first child of a request that an attempt has not called, and records the call;
// nil: there is none.
func (l *Ledger) Match(request string, attempt uint32) *Child {
	for _, c := range l.children {
		if c.Request == request && c.calledBy != attempt {
			c.calledBy = attempt
			return c
		}
	}
	return nil
}

// Known returns the children whose outcome an attempt knows, a bit each.
func (l *Ledger) Known(attempt uint32) (bits []byte) {
	for _, c := range l.children {
		if c.knownTo != attempt {
			continue
		}
		if i := int(c.N / 8); i >= len(bits) {
			bits = append(bits, make([]byte, i+1-len(bits))...)
		}
		bits[c.N/8] |= 1 << (c.N % 8)
	}
	return bits
}

// RestoreKnown records that an attempt knows the children of bits, as Known has returned them.
func (l *Ledger) RestoreKnown(bits []byte, attempt uint32) {
	for _, c := range l.children {
		if i := int(c.N / 8); i < len(bits) && bits[i]&(1<<(c.N%8)) != 0 {
			c.calledBy, c.knownTo = attempt, attempt
		}
	}
}

// Changed returns the children whose entries are to be stored with the next write.
func (l *Ledger) Changed() []*Child { return l.changed }

// Unsaved reports whether the entry of a child is to be stored.
func (l *Ledger) Unsaved(c *Child) bool { return slices.Contains(l.changed, c) }

// Committed records that the changed entries are stored. It increments the known revisions.
func (l *Ledger) Committed() {
	for _, c := range l.changed {
		if c.Stored = true; c.Rev != 0 {
			c.Rev++
		}
	}
	l.changed = nil
}

func (l *Ledger) change(c *Child) {
	if !l.Unsaved(c) {
		l.changed = append(l.changed, c)
	}
}

// remove removes a child whose record is to be deleted.
func (l *Ledger) remove(c *Child) {
	c.Reverted = true
	l.children = slices.DeleteFunc(l.children, func(o *Child) bool { return o == c })
}
