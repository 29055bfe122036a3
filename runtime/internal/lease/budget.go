package lease

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/apd/v3"

	"github.com/arcpd/arcpd/arcp"
)

// Budget counts what is left of amounts, exactly. A nil or zero Budget limits
// nothing. It is not for concurrent use: whoever locks around a Charge makes it
// atomic.
type Budget struct {
	counters []counter // one a currency, in the order of the amounts
}

// counter is one currency of a budget.
type counter struct {
	cap  Amount
	left apd.Decimal
	told apd.Decimal // what was left when it was announced last
}

// NewBudget returns a budget of the amounts; those of one currency are added up.
func NewBudget(amounts []Amount) *Budget {
	b := &Budget{}
	for _, a := range amounts {
		if c := b.find(a.currency); c != nil {
			c.cap.value = add(c.cap.value, a.value)
			c.left, c.told = c.cap.value, c.cap.value
			continue
		}
		b.counters = append(b.counters, counter{a, a.value, a.value})
	}
	return b
}

// Debits reports whether a metric of this name counts against a budget: all
// that begin with "cost.", except those about the budget itself.
func Debits(metric string) bool {
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

// Report counts a cost that has been incurred, also one that leaves less than
// nothing, and returns what is left. announce says that this is to be told: it
// moved by 1 % of the cap or more since it was told last, or fell to 0 or below.
// A unit without a budget is not counted: all results are zero. A value that is
// negative, or not a number of at most 64 digits and an exponent of at most 64
// either way, is INVALID_ARGUMENT and not counted.
func (b *Budget) Report(unit string, value arcp.Number) (left Amount, announce bool, err *arcp.Error) {
	cost, err := parseCost(value)
	c := b.find(unit)
	if err != nil || c == nil {
		return Amount{}, false, err
	}
	return c.take(cost)
}

// Charge is Report for a cost before it is incurred: one that is more than what
// is left is BUDGET_EXHAUSTED and not counted.
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
	return c.take(cost)
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

func (c *counter) amount() Amount { return Amount{c.cap.currency, c.left} }

func (c *counter) take(cost apd.Decimal) (left Amount, announce bool, err *arcp.Error) {
	c.left = sub(c.left, cost)
	return c.amount(), c.tell(), nil
}

// tell reports whether what is left is to be told, which it is then.
func (c *counter) tell() bool {
	announce := c.moved()
	if announce {
		c.told = c.left
	}
	return announce
}

// Announce returns what is left of the currencies in which that is to be told,
// as Report says it of one.
func (b *Budget) Announce() (list []Amount) {
	if b == nil {
		return nil
	}
	for i := range b.counters {
		if c := &b.counters[i]; c.tell() {
			list = append(list, c.amount())
		}
	}
	return list
}

// moved reports whether what is left is to be announced.
func (c *counter) moved() bool {
	if c.left.Sign() <= 0 && c.told.Sign() > 0 {
		return true
	}
	by := sub(c.told, c.left)
	by.Negative = false
	scaled := apd.Decimal{Exponent: by.Exponent + 2} // 100 times as much
	scaled.Coeff.Set(&by.Coeff)
	return !by.IsZero() && scaled.Cmp(&c.cap.value) >= 0
}

// Exhausted reports whether there is a currency of which nothing is left, and
// names the first.
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

// Reserve takes the amounts of a child out of what is left, all of them or none:
// LEASE_SUBSET_VIOLATION if one is more than that. Currencies that are not
// limited here need no reserve.
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

// Return gives back what remains of a child's amounts when it has ended: its
// Remaining. A negative rest, of a child that overspent, is taken out as well.
// No more is left than the cap, whatever is returned.
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

// Remaining returns what is left of each currency; it may be negative.
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

// JSON is what is left as an object of exact numbers by currency; nil if nothing
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
	Currency string      `json:"currency"`
	Cap      arcp.Number `json:"cap"`
	Left     arcp.Number `json:"left"`
	Told     arcp.Number `json:"told"`
}

// Save writes the budget as RestoreBudget reads it, exactly.
func (b *Budget) Save() arcp.Raw {
	saved := []savedCounter{}
	if b != nil {
		for i := range b.counters {
			c := &b.counters[i]
			saved = append(saved, savedCounter{c.cap.currency, c.cap.Number(), number(c.left), number(c.told)})
		}
	}
	raw, err := arcp.Marshal(saved)
	if err != nil { // only visible ASCII and numbers
		panic("lease: " + err.Error())
	}
	return raw
}

func number(d apd.Decimal) arcp.Number { return arcp.Number(d.Text('f')) }

// RestoreBudget reads what Save wrote.
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
		}{{&c.cap.value, s.Cap}, {&c.left, s.Left}, {&c.told, s.Told}} {
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
