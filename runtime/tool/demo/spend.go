package demo

import (
	"context"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// spendSchema is written by hand because an amount is a text or a number.
const spendSchema = `{"type":"object","properties":{` +
	`"currency":{"type":"string","minLength":1,"maxLength":64,"pattern":"^[!-9;-~]+$"},` +
	`"amount":{"type":["string","number"],"maxLength":65,"pattern":"^-?[0-9]+([.][0-9]+)?$","description":"What is spent each time. A negative cost is refused when it is reported."},` +
	`"times":{"type":"integer","minimum":0,"maximum":10000}},` +
	`"required":["currency","amount","times"],"additionalProperties":false}`

const spendName = "demo.spend"

type spendArgs struct {
	Currency string   `json:"currency"`
	Amount   arcp.Raw `json:"amount"`
	Times    int      `json:"times"`
}

type spendResult struct {
	Spent    string `json:"spent"`
	Currency string `json:"currency"`
	Times    int    `json:"times"`
}

func newSpend() (*tool.Tool, error) {
	c := capability("spend", "Reports costs, and asks before each whether it may.")
	c.InputSchema = arcp.Raw(spendSchema)
	return tool.New(c, spend)
}

// spend checks its authority before each cost. The check after the budget is used up
// fails; costs until then count.
func spend(ctx context.Context, job tool.Job, a spendArgs) (spendResult, error) {
	each, err := parseAmount(a.Amount)
	if err != nil {
		return spendResult{}, err
	}
	cost := arcp.MetricPayload{Name: "cost.demo", Value: arcp.Number(each.times(1)), Unit: a.Currency}
	for range a.Times {
		if ctx.Err() != nil {
			return spendResult{}, context.Cause(ctx)
		}
		if err := job.Authority().Allow(arcp.NamespaceToolCall, spendName); err != nil {
			return spendResult{}, err
		}
		if err := job.Metric(cost); err != nil {
			return spendResult{}, err
		}
	}
	return spendResult{each.times(a.Times), a.Currency, a.Times}, nil
}

// amount is an exact decimal number and the number of its decimals.
type amount struct {
	value    *big.Rat
	decimals int
}

// parseAmount reads an amount of spendSchema: a number of JSON, or digits in a string.
func parseAmount(raw arcp.Raw) (a amount, err error) {
	text := string(raw)
	if raw.Kind() == '"' {
		if err := arcp.Unmarshal(raw, &text); err != nil {
			return a, err
		}
	}
	mantissa, exponent, scaled := strings.Cut(strings.ToLower(text), "e")
	_, fraction, _ := strings.Cut(mantissa, ".")
	shift := 0
	if scaled {
		if shift, err = strconv.Atoi(exponent); err != nil {
			return a, fmt.Errorf("amount: %w", err)
		}
	}
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		return a, arcp.Errorf(arcp.CodeInvalidArgument, "the amount is not a number")
	}
	return amount{value, max(0, len(fraction)-shift)}, nil
}

// times returns the decimal text of n times the amount.
func (a amount) times(n int) string {
	return new(big.Rat).Mul(a.value, big.NewRat(int64(n), 1)).FloatString(a.decimals)
}
