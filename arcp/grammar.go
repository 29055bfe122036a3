package arcp

import (
	"fmt"
	"strings"
)

// AgentRef is a parsed agent reference: name or name@version (§2.3).
type AgentRef struct {
	Name    string
	Version string // empty: the default version
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz0123456789"
	letter = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// ParseAgentRef parses name["@"version]. The name matches [a-z0-9][a-z0-9._-]*, the version
// [a-zA-Z0-9.+_-]+. The whole reference has at most MaxIDLen bytes.
func ParseAgentRef(s string) (AgentRef, error) {
	name, version, pinned := strings.Cut(s, "@")
	switch {
	case len(s) > MaxIDLen:
		return AgentRef{}, fmt.Errorf("agent reference is longer than %d bytes", MaxIDLen)
	case name == "" || strings.Trim(name[:1], lower) != "" || strings.Trim(name, lower+"._-") != "":
		return AgentRef{}, fmt.Errorf("agent reference %q: the name must match [a-z0-9][a-z0-9._-]*", s)
	case pinned && (version == "" || strings.Trim(version, letter+".+_-") != ""):
		return AgentRef{}, fmt.Errorf("agent reference %q: the version must match [a-zA-Z0-9.+_-]+", s)
	}
	return AgentRef{name, version}, nil
}

func (r AgentRef) String() string {
	if r.Version == "" {
		return r.Name
	}
	return r.Name + "@" + r.Version
}

// Amount is a parsed amount of money or another unit (§2.4). Value is the decimal text as written.
type Amount struct {
	Currency string
	Value    string
}

// ParseAmount parses currency ":" digits ["." digits]. The currency is any visible ASCII text
// without a colon.
func ParseAmount(s string) (Amount, error) {
	currency, value, ok := strings.Cut(s, ":")
	if !ok || len(s) > MaxIDLen || !ValidID(currency) || !isDecimal(value) {
		return Amount{}, fmt.Errorf(`amount %q: write CURRENCY:DECIMAL, for example "USD:5.00"`, s)
	}
	return Amount{currency, value}, nil
}

func (a Amount) String() string { return a.Currency + ":" + a.Value }

func isDecimal(s string) bool {
	whole, frac, dot := strings.Cut(s, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	return digits(whole) && (!dot || digits(frac))
}
