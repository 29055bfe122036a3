package lease

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/apd/v3"

	"github.com/arcpd/arcpd/arcp"
)

// Budget has the remaining amounts of a job, as exact numbers. A nil or zero Budget limits nothing.
// It is not for concurrent use.
type Budget struct {
	counters []counter // one for each currency, in the order of the amounts
}

// counter is one currency of a budget.
type counter struct {
	cap       Amount
	left      apd.Decimal
	announced apd.Decimal // value of left at the last announcement
}

// NewBudget returns a budget with the sum of the amounts of each currency.
func NewBudget(amounts []Amount) *Budget {
	b := &Budget{}
	for _, a := range amounts {
		if c := b.find(a.currency); c != nil {
			c.cap.value = add(c.cap.value, a.value)
			c.left, c.announced = c.cap.value, c.cap.value
			continue
		}
		b.counters = append(b.counters, counter{cap: a, left: a.value, announced: a.value})
	}
	return b
}

// IsCost reports whether a metric of this name is subtracted from a budget. The names begin with
// "cost.", but not with "cost.budget", which are metrics of the budget itself.
func IsCost(metric string) bool {
	rest, ok := strings.CutPrefix(metric, "cost.")
	return ok && rest != "budget" && !strings.HasPrefix(rest, "budget.")
}

// find returns the counter of a currency, or nil.
func (b *Budget) find(currency string) *counter {
	if b == nil {
		return nil
	}
	for i := range b.counters {
		if strings.EqualFold(b.counters[i].cap.currency, currency) {
			return &b.counters[i]
		}
	}
	return nil
}

// Report subtracts an incurred cost, even below zero, and returns the remaining amount. announce is
// true if the amount has changed by at least 1 % of the cap since the last announcement, or has
// fallen to 0 or below. A unit without a budget is ignored: all results are zero.
//
// The error is INVALID_ARGUMENT, and nothing is subtracted, for a value that is negative, not a
// number, or has more than 64 digits or an exponent beyond ±64.
func (b *Budget) Report(unit string, value arcp.Number) (left Amount, announce bool, err *arcp.Error) {
	cost, err := parseCost(value)
	c := b.find(unit)
	if err != nil || c == nil {
		return Amount{}, false, err
	}
	return c.subtract(cost)
}

// Charge is Report for a cost before it is incurred. A cost above the remaining amount is
// BUDGET_EXHAUSTED and not subtracted.
func (b *Budget) Charge(unit string, value arcp.Number) (left Amount, announce bool, err *arcp.Error) {
	cost, err := parseCost(value)
	c := b.find(unit)
	if err != nil || c == nil {
		return Amount{}, false, err
	}
	if cost.Cmp(&c.left) > 0 {
		return c.amount(), false, arcp.Errorf(arcp.CodeBudgetExhausted,
			"%s of %s is more than the %s left", cost.Text('f'), c.cap.currency, c.left.Text('f'))
	}
	return c.subtract(cost)
}

func parseCost(value arcp.Number) (apd.Decimal, *arcp.Error) {
	if value == "" {
		value = "0"
	}
	d, err := parseDecimal(string(value))
	switch {
	case err != nil:
		return d, arcp.Errorf(arcp.CodeInvalidArgument, "cost %s: %v", quote(string(value)), err)
	case d.Negative:
		return d, arcp.Errorf(arcp.CodeInvalidArgument, "cost %s: it is negative", quote(string(value)))
	}
	return d, nil
}

func (c *counter) amount() Amount { return Amount{currency: c.cap.currency, value: c.left} }

func (c *counter) subtract(cost apd.Decimal) (left Amount, announce bool, err *arcp.Error) {
	c.left = sub(c.left, cost)
	return c.amount(), c.announce(), nil
}

// announce reports whether the remaining amount is due to be announced, and records the
// announcement.
func (c *counter) announce() bool {
	due := c.due()
	if due {
		c.announced = c.left
	}
	return due
}

// Announce returns the remaining amounts that are due to be announced, by the rule of Report.
func (b *Budget) Announce() (list []Amount) {
	if b == nil {
		return nil
	}
	for i := range b.counters {
		if c := &b.counters[i]; c.announce() {
			list = append(list, c.amount())
		}
	}
	return list
}

// due reports whether the remaining amount is due to be announced.
func (c *counter) due() bool {
	if c.left.Sign() <= 0 && c.announced.Sign() > 0 {
		return true
	}
	by := sub(c.announced, c.left)
	by.Negative = false
	scaled := apd.Decimal{Exponent: by.Exponent + 2} // multiplied by 100
	scaled.Coeff.Set(&by.Coeff)
	return !by.IsZero() && scaled.Cmp(&c.cap.value) >= 0
}

// Exhausted reports whether the remaining amount of a currency is 0 or negative, and returns the
// first such currency.
func (b *Budget) Exhausted() (currency string, yes bool) {
	if b == nil {
		return "", false
	}
	for i := range b.counters {
		if c := &b.counters[i]; c.left.Sign() <= 0 {
			return c.cap.currency, true
		}
	}
	return "", false
}

// Reserve subtracts the amounts of a child, all or none. The error is LEASE_SUBSET_VIOLATION if an
// amount is above the remaining one. Currencies without a limit are ignored.
func (b *Budget) Reserve(child []Amount) *arcp.Error {
	for _, a := range child {
		if c := b.find(a.currency); c != nil && a.value.Cmp(&c.left) > 0 {
			return arcp.Errorf(arcp.CodeLeaseSubsetViolation,
				"the child's %s is more than the %s left of its parent's", quote(a.String()), c.left.Text('f'))
		}
	}
	for _, a := range child {
		if c := b.find(a.currency); c != nil {
			c.left = sub(c.left, a.value)
		}
	}
	return nil
}

// Return adds the Remaining amounts of an ended child, up to the cap. The amounts of a child that
// has overspent are negative.
func (b *Budget) Return(rest []Amount) {
	for _, a := range rest {
		c := b.find(a.currency)
		if c == nil {
			continue
		}
		if c.left = add(c.left, a.value); c.left.Cmp(&c.cap.value) > 0 {
			c.left = c.cap.value
		}
	}
}

// Remaining returns the remaining amount of each currency, which may be negative.
func (b *Budget) Remaining() []Amount {
	if b == nil {
		return nil
	}
	var list []Amount
	for i := range b.counters {
		list = append(list, b.counters[i].amount())
	}
	return list
}

// JSON returns the remaining amounts as an object of exact numbers by currency; nil if no currency
// is limited.
func (b *Budget) JSON() arcp.Raw {
	if b == nil || len(b.counters) == 0 {
		return nil
	}
	dst := arcp.Raw("{")
	for i := range b.counters {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(arcp.AppendString(dst, b.counters[i].cap.currency), ':')
		dst = b.counters[i].left.Append(dst, 'f')
	}
	return append(dst, '}')
}

// savedCounter is a counter as it is stored.
type savedCounter struct {
	Currency  string      `json:"currency"`
	Cap       arcp.Number `json:"cap"`
	Left      arcp.Number `json:"left"`
	Announced arcp.Number `json:"told"`
}

// Save encodes the budget for RestoreBudget, without a loss.
func (b *Budget) Save() arcp.Raw {
	saved := []savedCounter{}
	if b != nil {
		for i := range b.counters {
			c := &b.counters[i]
			saved = append(saved, savedCounter{
				Currency:  c.cap.currency,
				Cap:       c.cap.Number(),
				Left:      numberOf(c.left),
				Announced: numberOf(c.announced),
			})
		}
	}
	raw, err := arcp.Marshal(saved)
	if err != nil { // visible ASCII and numbers
		panic("lease: " + err.Error())
	}
	return raw
}

func numberOf(d apd.Decimal) arcp.Number { return arcp.Number(d.Text('f')) }

// RestoreBudget decodes the result of Save.
func RestoreBudget(raw arcp.Raw) (*Budget, error) {
	var saved []savedCounter
	if err := arcp.Unmarshal(raw, &saved); err != nil {
		return nil, fmt.Errorf("budget: %w", err)
	}
	b := &Budget{}
	for _, s := range saved {
		c := counter{cap: Amount{currency: s.Currency}}
		for _, f := range []struct {
			to   *apd.Decimal
			text arcp.Number
		}{{&c.cap.value, s.Cap}, {&c.left, s.Left}, {&c.announced, s.Announced}} {
			d, _, err := apd.NewFromString(string(f.text))
			if err != nil {
				return nil, fmt.Errorf("budget of %s: %w", s.Currency, err)
			}
			*f.to = *d
		}
		b.counters = append(b.counters, c)
	}
	return b, nil
}
