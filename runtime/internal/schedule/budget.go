package schedule

// Each loop of this package counts its steps. A step takes some 10 ns.
const (
	// maxSteps is the number of steps of one search for an occurrence, and of one count of the
	// occurrences from DTSTART to the present. A daily rule of the last 100 years needs 1.9 million.
	maxSteps = 2_000_000

	// decisionSteps is the number of steps of a decision: a decision skips some 10,000 occurrences.
	decisionSteps = maxSteps + maxSteps/4

	// listSteps is the number of steps of a Budget. 1,000 daily or weekly schedules with 100 times each
	// need less.
	listSteps = 12_000_000

	timeStep     = 1  // a time of a timeSet that is compared
	positionStep = 2  // a time of a timeSet that is in BYSETPOS
	dayStep      = 6  // a day, or a month that is left out
	periodStep   = 8  // a period, or what is left out of it
	searchStep   = 10 // a search
	instantStep  = 24 // a wall clock time that is converted to an instant
	gapStep      = 24 // a second try to convert it, because the clocks change
)

// Budget bounds the work of all searches that share it. A search that uses it up finds nothing. A Budget
// is not safe for concurrent use. The zero Budget is used up.
type Budget struct{ left int }

// NewBudget returns the budget of one list of upcoming occurrences.
func NewBudget() *Budget { return &Budget{listSteps} }

// spend takes n steps. If there are fewer it takes those that are left, and returns false.
func (b *Budget) spend(n int) bool {
	ok := n <= b.left
	b.left -= min(n, b.left)
	return ok
}

func (b *Budget) empty() bool { return b.left == 0 }
