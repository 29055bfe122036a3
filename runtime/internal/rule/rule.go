// Package rule compiles and evaluates the rules of approval policies, which are CEL expressions.
package rule

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types/ref"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// Bounds of a rule and of its evaluation. An evaluation that exceeds its bounds does not approve.
const (
	MaxBytes = 4 << 10

	maxCost = 100_000 // in the unit of CEL; some milliseconds
	timeout = 100 * time.Millisecond
)

// Rule is a compiled rule. Many goroutines may use it.
type Rule struct{ program cel.Program }

// environment declares the variables of rules.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("tool", cel.StringType),
		cel.Variable("version", cel.StringType),
		cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("principal", cel.StringType),
		cel.Variable("roles", cel.ListType(cel.StringType)),
		cel.Variable("side_effect", cel.StringType),
		cel.Variable("lease", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("attempt", cel.IntType),
	)
})

// Compile compiles a rule. The error is that the text is invalid or cannot be a bool.
func Compile(text string) (*Rule, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("the rule has %d bytes; at most %d", len(text), MaxBytes)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if err := Mistake(issues); err != nil {
		return nil, err
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("the rule gives %s, not bool", t)
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(64))
	if err != nil {
		return nil, err
	}
	return &Rule{program}, nil
}

// Call holds the variables of a rule.
type Call struct {
	Tool, Version, SideEffect string

	Arguments arcp.Raw
	Principal string
	Roles     []string // nil: unknown; a rule that uses roles does not approve
	Lease     arcp.Raw // in the RFC dialect; empty: no lease
	Attempt   uint32
}

// Approves reports whether the rule is true for a call. A rule that fails or exceeds its bounds does
// not approve; err is the failure.
func (r *Rule) Approves(ctx context.Context, c Call) (approved bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			approved, err = false, fmt.Errorf("the rule panicked: %v", p)
		}
	}()
	args, err := Decode(c.Arguments)
	if err != nil {
		return false, err
	}
	lease, err := Decode(c.Lease)
	if err != nil {
		return false, err
	}
	vars := map[string]any{"tool": c.Tool, "version": c.Version, "args": args, "principal": c.Principal,
		"side_effect": c.SideEffect, "lease": lease, "attempt": int64(c.Attempt)}
	if c.Roles != nil {
		vars["roles"] = c.Roles
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, _, err := r.program.ContextEval(ctx, vars)
	if err != nil {
		return false, err
	}
	return isTrue(out)
}

func isTrue(v ref.Val) (bool, error) {
	yes, err := v.ConvertToNative(reflect.TypeFor[bool]())
	if err != nil {
		return false, fmt.Errorf("the rule gave %s, not bool", v.Type().TypeName())
	}
	return yes == true, nil
}

// Decode decodes JSON for CEL. The error is that CEL cannot represent a number exactly: the expression
// would use another number.
func Decode(raw arcp.Raw) (any, error) {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	return exact(doc)
}

func exact(doc any) (any, error) {
	switch v := doc.(type) {
	case json.Number:
		return exactNumber(string(v))
	case map[string]any:
		for name, m := range v {
			e, err := exact(m)
			if err != nil {
				return nil, err
			}
			v[name] = e
		}
	case []any:
		for i, m := range v {
			e, err := exact(m)
			if err != nil {
				return nil, err
			}
			v[i] = e
		}
	}
	return doc, nil
}

// exactNumber returns an int64, or a float64 whose shortest decimal form has the digits of s. Such
// numbers keep their order.
func exactNumber(s string) (any, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) || !strings.ContainsAny(s, ".eE") || digits(s) != digits(strconv.FormatFloat(f, 'e', -1, 64)) {
		return nil, fmt.Errorf("the number %s is not one that an expression can compare exactly", clip.Ellipsis(s, 64))
	}
	return f, nil
}

// digits returns the significant digits of a number.
func digits(s string) string {
	s, _, _ = strings.Cut(strings.ToLower(s), "e")
	return strings.Trim(strings.NewReplacer(".", "", "-", "", "+", "").Replace(s), "0")
}
