package arcp_test

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestAgentRefIsNameAndOptionalVersion(t *testing.T) {
	for in, want := range map[string]arcp.AgentRef{
		"demo.echo": {Name: "demo.echo"}, "a": {Name: "a"}, "0a-_.": {Name: "0a-_."}, "a@1.0.0": {Name: "a", Version: "1.0.0"},
		"a@V1+b_c-d": {Name: "a", Version: "V1+b_c-d"}, strings.Repeat("a", 256): {Name: strings.Repeat("a", 256)},
	} {
		got, err := arcp.ParseAgentRef(in)
		if err != nil || got != want || got.String() != in {
			t.Errorf("ParseAgentRef(%q) = %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "@1", "a@", "a@1@2", "A", "-a", ".a", "a b", "a/b", "é", "a@é", "a@1 ", "a\n", strings.Repeat("a", 257)} {
		if got, err := arcp.ParseAgentRef(in); err == nil {
			t.Errorf("ParseAgentRef(%q) = %+v", in, got)
		}
	}
}

func TestAmountIsCurrencyAndDecimal(t *testing.T) {
	for in, want := range map[string]arcp.Amount{
		"USD:5.00": {"USD", "5.00"}, "usd:0": {"usd", "0"}, "tokens:12345678901234567890.000000001": {"tokens", "12345678901234567890.000000001"}, "$:1": {"$", "1"},
	} {
		got, err := arcp.ParseAmount(in)
		if err != nil || got != want || got.String() != in {
			t.Errorf("ParseAmount(%q) = %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "USD", "USD:", ":5", "USD:-5", "USD:+5", "USD:5.", "USD:.5", "USD:1e3", "USD:NaN", "USD:Inf", "USD:5.0.0", "USD:5:0", "U D:5", "€:5", "USD: 5", "USD:５", "USD:" + strings.Repeat("1", 256)} {
		if got, err := arcp.ParseAmount(in); err == nil {
			t.Errorf("ParseAmount(%q) = %+v", in, got)
		}
	}
}
