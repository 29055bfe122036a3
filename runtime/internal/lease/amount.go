package lease

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/apd/v3"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of a received decimal number. They keep exact sums small.
const (
	maxDigits   = 64
	maxExponent = 64
)

// Amount is an exact decimal number of a currency. Currencies that differ only in case are equal.
// The zero Amount is 0 of no currency.
type Amount struct {
	currency string
	value    apd.Decimal
}

// Currency returns the currency in its first spelling.
func (a Amount) Currency() string { return a.currency }

// Number returns the exact decimal text, without an exponent.
func (a Amount) Number() arcp.Number { return arcp.Number(a.value.Text('f')) }

// String returns the amount in the form of ParseAmount, which refuses a negative one.
func (a Amount) String() string { return a.currency + ":" + string(a.Number()) }

// Cmp compares two amounts of one currency: -1, 0 or +1.
func (a Amount) Cmp(b Amount) int { return a.value.Cmp(&b.value) }

// nonNegative returns a, or 0 if a is negative.
func (a Amount) nonNegative() Amount {
	if a.value.Sign() < 0 {
		return Amount{currency: a.currency}
	}
	return a
}

// reduced returns the shortest text of the value, without trailing zeros.
func (a Amount) reduced() string {
	var d apd.Decimal
	d.Reduce(&a.value)
	return d.Text('f')
}

// ParseAmount parses currency ":" digits ["." digits] with at most 64 digits. The error is
// INVALID_REQUEST.
func ParseAmount(s string) (Amount, *arcp.Error) {
	a, err := parseAmount(s)
	if err != nil {
		return Amount{}, arcp.Errorf(arcp.CodeInvalidRequest, "%v", err)
	}
	return a, nil
}

func parseAmount(s string) (Amount, error) {
	text, err := arcp.ParseAmount(s)
	if err != nil {
		return Amount{}, fmt.Errorf(`%s is not an amount such as "USD:5.00"`, quote(s))
	}
	a := Amount{currency: text.Currency}
	if a.value, err = parseDecimal(text.Value); err != nil {
		return Amount{}, fmt.Errorf("%s: %w", quote(s), err)
	}
	return a, nil
}

// parseDecimal parses a JSON number, also one with leading zeros.
func parseDecimal(s string) (apd.Decimal, error) {
	mantissa, exponent, scaled := strings.Cut(strings.ToLower(s), "e")
	whole, fraction, dot := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	exponent = strings.TrimPrefix(strings.TrimPrefix(exponent, "+"), "-")
	switch {
	case !digits(whole) || dot && !digits(fraction) || scaled && !digits(exponent):
		return apd.Decimal{}, fmt.Errorf("it is not a number")
	case len(whole)+len(fraction) > maxDigits:
		return apd.Decimal{}, fmt.Errorf("it has more than %d digits", maxDigits)
	}
	if exponent = strings.TrimLeft(exponent, "0"); len(exponent) > 2 || len(exponent) == 2 && exponent > fmt.Sprint(maxExponent) {
		return apd.Decimal{}, fmt.Errorf("its exponent is beyond %d", maxExponent)
	}
	d, _, err := apd.NewFromString(s)
	if err != nil {
		return apd.Decimal{}, fmt.Errorf("it is not a number")
	}
	d.Negative = d.Negative && !d.IsZero()
	return *d, nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// sum parses amounts and returns the sum for each currency.
func sum(list []string) ([]Amount, error) {
	var sums []Amount
	for _, s := range list {
		a, err := parseAmount(s)
		if err != nil {
			return nil, err
		}
		if i := indexAmount(sums, a.currency); i >= 0 {
			sums[i].value = add(sums[i].value, a.value)
			continue
		}
		sums = append(sums, a)
	}
	return sums, nil
}

// indexAmount returns the index of the amount of a currency, or -1.
func indexAmount(list []Amount, currency string) int {
	for i := range list {
		if strings.EqualFold(list[i].currency, currency) {
			return i
		}
	}
	return -1
}

func findAmount(list []Amount, currency string) (Amount, bool) {
	if i := indexAmount(list, currency); i >= 0 {
		return list[i], true
	}
	return Amount{}, false
}

func amountTexts(list []Amount) []string {
	out := make([]string, 0, len(list))
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}

// add and sub are exact: no precision is set, and the bounds of received numbers keep every sum
// below the limits of the library.
func add(a, b apd.Decimal) (d apd.Decimal) {
	if _, err := apd.BaseContext.Add(&d, &a, &b); err != nil {
		panic("lease: " + err.Error())
	}
	return withoutNegativeZero(d)
}

func sub(a, b apd.Decimal) (d apd.Decimal) {
	if _, err := apd.BaseContext.Sub(&d, &a, &b); err != nil {
		panic("lease: " + err.Error())
	}
	return withoutNegativeZero(d)
}

// withoutNegativeZero returns d, or 0 for -0.
func withoutNegativeZero(d apd.Decimal) apd.Decimal {
	d.Negative = d.Negative && !d.IsZero()
	return d
}
