package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

const (
	// Grace is how long after its time an occurrence still fires, if the runtime was down.
	Grace = time.Hour

	// onTime is how long after its time an occurrence counts as fired in time.
	onTime = time.Minute

	// maxAhead is how far ahead at and after may be.
	maxAhead = horizon * 366 * day
)

// Plan is a schedule: one time, or the times of a rule.
type Plan struct {
	rule *Rule // nil: one time
}

// New returns the plan of a schedule that is made at a time, and its first occurrence. Exactly one member
// of w is set. The errors have the code INVALID_ARGUMENT.
func New(w *arcp.When, now time.Time) (Plan, Occurrence, *arcp.Error) {
	p, o, err := parseWhen(w, now)
	if err == nil && p.Repeats() {
		o, err = p.rule.first(now, &Budget{maxSteps})
	}
	return p, o, refusal(err)
}

// Read returns the plan of a schedule that New has made at a time. It makes the checks of New, but does
// not search for an occurrence.
func Read(w *arcp.When, created time.Time) (Plan, *arcp.Error) {
	p, _, err := parseWhen(w, created)
	return p, refusal(err)
}

func refusal(err error) *arcp.Error {
	if err == nil {
		return nil
	}
	return arcp.Errorf(arcp.CodeInvalidArgument, "when: %v", err)
}

// parseWhen returns the plan, and its occurrence if it has one time.
func parseWhen(w *arcp.When, now time.Time) (p Plan, o Occurrence, err error) {
	at, every, after := !w.At.IsZero(), w.Every != "", w.After != nil
	switch {
	case at && !every && !after:
		o.At = w.At.UTC()
	case every && !at && !after:
		p.rule, err = Parse(w.Every, now)
		return p, o, err
	case after && !at && !every:
		seconds, err := strconv.ParseFloat(string(*w.After), 64)
		if err != nil || !(seconds >= 0) || seconds > maxAhead.Seconds() {
			return p, o, fmt.Errorf("after must be a number of seconds from 0 to %.0f", maxAhead.Seconds())
		}
		o.At = now.Add(time.Duration(seconds * float64(time.Second))).UTC()
	default:
		return p, o, errors.New("exactly one of at, every and after must be set")
	}
	if o.At.Before(now) || o.At.After(now.Add(maxAhead)) {
		return p, o, fmt.Errorf("%s is in the past, or more than %d years ahead", o.At.Format(time.RFC3339), horizon)
	}
	return p, o, nil
}

// Repeats reports whether the plan has the times of a rule.
func (p Plan) Repeats() bool { return p.rule != nil }

// next returns the occurrence after o; At is zero if there is none, or if the budget is used up.
func (p Plan) next(o Occurrence, b *Budget) Occurrence {
	if p.rule == nil {
		return Occurrence{}
	}
	search := Budget{min(b.left, maxSteps)}
	b.left -= search.left
	o, _ = p.rule.next(o, &search)
	b.left += search.left
	return o
}

// Upcoming returns o and up to n-1 occurrences after it; none if the time of o is zero. They are fewer if
// the budget is used up.
func (p Plan) Upcoming(o Occurrence, n int, b *Budget) []time.Time {
	list := []time.Time{}
	for !o.At.IsZero() {
		list = append(list, o.At)
		if len(list) >= n {
			break
		}
		o = p.next(o, b)
	}
	return list
}

// Action says what a Decision does.
type Action uint8

const (
	Wait   Action = iota // for the next occurrence
	Fire                 // start a job for the occurrence Decision.Due
	Skip                 // store the next occurrence and decide again
	Finish               // there are no more occurrences
)

// Decision is the action and the changes of a schedule's record.
type Decision struct {
	Action  Action
	Due     Occurrence // with Fire
	InTime  bool       // with Fire: Due is not late
	Next    Occurrence // the next occurrence after the action; At is zero: none
	Missed  int        // occurrences that are skipped because they are late
	Overlap int        // occurrences that are skipped because the previous job runs
}

// Decide decides about a schedule whose next occurrence is next. running says that the job of the
// previous occurrence has not ended.
//
// Of several occurrences that are due only the last one fires. It does not fire if it is more than an
// hour late, or while the previous job runs. No occurrence fires again when the clock is set back,
// because the occurrences of a record only move forward.
func (p Plan) Decide(now time.Time, next Occurrence, running bool) Decision {
	d := Decision{Next: next}
	switch {
	case next.At.IsZero():
		d.Action = Finish
		return d
	case now.Before(next.At):
		return d
	}
	due := 0
	var last Occurrence
	b := Budget{decisionSteps}
	for !d.Next.At.IsZero() && !now.Before(d.Next.At) && b.left >= maxSteps { // enough for the next search
		last, d.Next = d.Next, p.next(d.Next, &b)
		due++
	}
	behind := !d.Next.At.IsZero() && !now.Before(d.Next.At)
	switch {
	case behind || now.Sub(last.At) > Grace:
		d.Action, d.Missed = Skip, due
	case running:
		d.Action, d.Missed, d.Overlap = Skip, due-1, 1
	default:
		d.Action, d.Missed, d.Due, d.InTime = Fire, due-1, last, now.Sub(last.At) <= onTime
	}
	return d
}
