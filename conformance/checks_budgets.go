package conformance

import (
	"context"
	"fmt"
	"math/big"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// spender is a lease that lets demo.spend spend a budget.
func (c *Conn) spender(budget ...string) arcp.SubmitOptions {
	return c.leased(patterns{"tool.call": {"demo.spend"}, "cost.budget": budget})
}

func (c *Conn) spend(o arcp.SubmitOptions, currency, amount string, times int) *Job {
	return c.Follow(c.submitWith("demo.spend", map[string]any{"currency": currency, "amount": amount, "times": times}, o))
}

// wantMetrics wants a job's metrics to be these, each written "name value unit",
// whatever zeros a value ends with.
func (t *T) wantMetrics(job *Job, expected ...string) {
	var got []string
	for _, f := range job.Of(arcp.Metric) {
		p := payload[arcp.MetricPayload](t, f)
		got = append(got, p.Name+" "+exactly(string(p.Value))+" "+p.Unit)
	}
	for i, e := range expected {
		parts := strings.Fields(e)
		expected[i] = parts[0] + " " + exactly(parts[1]) + " " + parts[2]
	}
	want(t, "the metrics of the job, in their order", strings.Join(got, ", "), strings.Join(expected, ", "))
}

// exactly is the value of a decimal number as one text of all that mean it, or s
// itself if it is none.
func exactly(s string) string {
	if r, ok := new(big.Rat).SetString(s); ok {
		return r.RatString()
	}
	return s
}

const (
	cost = "cost.demo "
	left = "cost.budget.remaining "
)

// wantSpent wants demo.spend to have succeeded.
func (c *Conn) wantSpent(job *Job, spent string) {
	var result struct {
		Spent string `json:"spent"`
	}
	c.result(&result, job)
	want(c.t, "the sum is exact", exactly(result.Spent), exactly(spent))
}

func budgetExact(_ context.Context, t *T) {
	c := t.Open()
	job := c.spend(c.spender("USD:1.00"), "USD", "0.3", 3)
	c.wantSpent(job, "0.9")
	t.wantMetrics(job, cost+"0.3 USD", left+"0.70 USD", cost+"0.3 USD", left+"0.40 USD", cost+"0.3 USD", left+"0.10 USD")
}

func budgetExhausted(_ context.Context, t *T) {
	c := t.Open()
	job := c.spend(c.spender("USD:1.00"), "USD", "0.50", 5)
	end := c.failedWith("nothing is left", job, arcp.CodeBudgetExhausted)
	want(t, "a budget that is used up is final", end.Retryable, false)
	t.wantMetrics(job, cost+"0.50 USD", left+"0.50 USD", cost+"0.50 USD", left+"0.00 USD")
}

func budgetOverspent(_ context.Context, t *T) {
	c := t.Open()
	job := c.spend(c.spender("USD:1.00"), "USD", "0.60", 5)
	c.failedWith("less than nothing is left", job, arcp.CodeBudgetExhausted)
	t.wantMetrics(job, cost+"0.60 USD", left+"0.40 USD", cost+"0.60 USD", left+"-0.20 USD")
	c.wantSpent(c.spend(c.spender("USD:1.00"), "USD", "7", 1), "7")
}

func budgetZero(_ context.Context, t *T) {
	c := t.Open()
	for _, zero := range []string{"USD:0", "USD:0.00"} {
		job := c.spend(c.spender(zero), "USD", "0.01", 1)
		c.failedWith("nothing was there to spend", job, arcp.CodeBudgetExhausted)
		t.wantMetrics(job)
	}
}

func budgetNone(_ context.Context, t *T) {
	c := t.Open()
	job := c.spend(c.leased(patterns{"tool.call": {"demo.spend"}}), "USD", "1000000", 2)
	c.wantSpent(job, "2000000")
	t.wantMetrics(job, cost+"1000000 USD", cost+"1000000 USD")
	t.Want("there is no budget to speak of", payload[arcp.JobAcceptedPayload](t, job.Event(0)).Budget == nil, "job.accepted has one")
}

func budgetOtherCurrency(_ context.Context, t *T) {
	c := t.Open()
	job := c.spend(c.spender("USD:1.00"), "EUR", "1000", 2)
	c.wantSpent(job, "2000")
	t.wantMetrics(job, cost+"1000 EUR", cost+"1000 EUR")
}

func budgetAnyCurrency(_ context.Context, t *T) {
	c := t.Open()
	job := c.spend(c.spender("USD:0", "EUR:5"), "EUR", "1", 1)
	c.failedWith("nothing is left of a currency", job, arcp.CodeBudgetExhausted)
	t.wantMetrics(job)
}

func budgetCase(_ context.Context, t *T) {
	c := t.Open()
	job := c.spend(c.spender("USD:1.00"), "usd", "0.40", 1)
	c.wantSpent(job, "0.40")
	t.wantMetrics(job, cost+"0.40 usd", left+"0.60 USD")
}

func budgetFree(_ context.Context, t *T) {
	c := t.Open()
	job := c.spend(c.spender("USD:1.00"), "USD", "0", 2)
	c.wantSpent(job, "0")
	t.wantMetrics(job, cost+"0 USD", cost+"0 USD")
}

func budgetThinned(_ context.Context, t *T) {
	c := t.Open()
	job := c.spend(c.spender("USD:1.00"), "USD", "0.004", 6)
	c.wantSpent(job, "0.024")
	const each = cost + "0.004 USD"
	t.wantMetrics(job, each, each, each, left+"0.988 USD", each, each, each, left+"0.976 USD")
}

func budgetDeniedFirst(_ context.Context, t *T) {
	c := t.Open()
	c.failedWith("it is not covered", c.spend(c.leased(patterns{"cost.budget": {"USD:0"}}), "USD", "1", 1), arcp.CodePermissionDenied)
}

func budgetAccepted(_ context.Context, t *T) {
	c := t.Open()
	p := c.acceptedWith(c.leased(patterns{"cost_budget": {"USD:0.100000000000000000001", "EUR:5", "tokens:90071992547409931"}}))
	t.wantBudget(p.Budget, map[string]string{"USD": "0.100000000000000000001", "EUR": "5", "tokens": "90071992547409931"})
}

func budgetBeside(_ context.Context, t *T) {
	c := t.Open()
	o := c.leased(patterns{"tool.call": {"demo.spend"}})
	o.CostBudget = []string{"USD:1.00"}
	job := c.spend(o, "USD", "0.25", 1)
	c.wantSpent(job, "0.25")
	t.wantMetrics(job, cost+"0.25 USD", left+"0.75 USD")
	t.wantBudget(payload[arcp.JobAcceptedPayload](t, job.Event(0)).Budget, map[string]string{"USD": "1.00"})
	o = c.leased(patterns{"cost.budget": {"USD:2"}})
	o.CostBudget = []string{"USD:1"}
	c.refusedLease("both places must say the same", o)
}

func budgetMalformed(_ context.Context, t *T) {
	c := t.Open()
	for _, bad := range []string{"", "USD", "USD:", ":1", "USD:-1", "USD:1e3", "USD:1.", "USD:.5", "USD:1,00", "USD:NaN", "USD: 1", "US D:1", "USD:1:2", "USD:0x1", "USD:1_000", "USD:+1", "1.00"} {
		c.refusedLease(fmt.Sprintf("%q is no amount", bad), c.leased(patterns{"cost.budget": {bad}}))
	}
}

func budgetApart(_ context.Context, t *T) {
	c := t.Open()
	for range 2 {
		job := c.spend(c.spender("USD:1.00"), "USD", "0.75", 1)
		t.wantMetrics(job, cost+"0.75 USD", left+"0.25 USD")
	}
}

func budgetRestart(ctx context.Context, t *T) {
	const amount = 100_000
	c := t.Open()
	submit := c.submitWith("demo.spend", map[string]any{"currency": "USD", "amount": "1", "times": 2000}, c.spender(fmt.Sprintf("USD:%d", amount)))
	c.AwaitStarted(submit)
	c.Events("the job spends", 50)
	c = t.restarted(ctx, c)
	for end := false; !end; {
		f := c.next("the job ends")
		end = f.CorrelationID == submit && f.Type.Terminal()
	}
	spent, told := 0, 0
	for _, f := range c.rec.upTo(c.rec.last()) {
		switch {
		case f.Type == arcp.JobFailed:
			t.Failf("the job ends well: got %s", f)
		case f.Type != arcp.Metric:
			continue
		}
		p := payload[arcp.MetricPayload](t, f)
		if p.Name+" " == cost {
			spent++
			continue
		}
		told++
		want(t, "what is left is what was not spent", exactly(string(p.Value)), fmt.Sprint(amount-spent))
	}
	t.Want("the job spends it all", spent >= 2000 && told > 0, "it spent %d, and told of it %d times", spent, told)
}
