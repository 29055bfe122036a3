package workflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/rule"
)

// Bounds of an expression and of its evaluation.
const (
	maxExpression = 4 << 10   // bytes of the text
	maxCost       = 1_000_000 // in the unit of CEL
	maxNodes      = 1 << 20   // members, items and bytes of texts of a value
)

// scope selects the variables that an expression may use, beside input.
type scope struct {
	steps   map[string]*step
	item    bool
	attempt bool
	value   bool
}

// environment declares the variables that every expression has.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.CustomTypeAdapter(sortedMaps),
		cel.Variable("input", cel.DynType),
		cel.Variable("steps", cel.MapType(cel.StringType, cel.MapType(cel.StringType, cel.DynType))),
	)
})

// expression is a compiled expression. Many goroutines may use it.
type expression struct{ program cel.Program }

// compileExpression compiles an expression. A condition has a bool.
func compileExpression(text string, sc scope, condition bool) (*expression, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("the expression has %d bytes; at most %d", len(text), maxExpression)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	var options []cel.EnvOption
	if sc.item {
		options = append(options, cel.Variable("item", cel.DynType))
	}
	if sc.attempt {
		options = append(options, cel.Variable("attempt", cel.IntType))
	}
	if sc.value {
		options = append(options, cel.Variable("value", cel.DynType))
	}
	if env, err = env.Extend(options...); err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if err := rule.Mistake(issues); err != nil {
		return nil, err
	}
	if t := ast.OutputType(); condition && !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("the expression gives %s, not bool", t)
	}
	if err := checkSteps(ast, sc.steps); err != nil {
		return nil, err
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.CustomDecoratorV2(sortMade), cel.InterruptCheckFrequency(64))
	if err != nil {
		return nil, err
	}
	return &expression{program}, nil
}

// checkSteps returns an error if an expression names a step that it must not use.
func checkSteps(ast *cel.Ast, steps map[string]*step) (err error) {
	celast.PostOrderVisit(ast.NativeRep().Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() != celast.SelectKind {
			return
		}
		of := e.AsSelect().Operand()
		if of.Kind() != celast.IdentKind || of.AsIdent() != "steps" {
			return
		}
		if name := e.AsSelect().FieldName(); steps[name] == nil {
			err = fmt.Errorf("steps.%s: not a step that comes before: add it to needs", name)
		}
	}))
	return err
}

// eval returns the value of an expression as decoded JSON.
func (e *expression) eval(ctx context.Context, vars map[string]any) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("the expression panicked: %v", p)
		}
	}()
	out, _, err := e.program.ContextEval(ctx, vars)
	if err != nil {
		return nil, err
	}
	c := converter{left: maxNodes}
	return c.convert(out)
}

// converter converts values of CEL to decoded JSON.
type converter struct{ left int }

func (c *converter) convert(v ref.Val) (any, error) {
	if c.left--; c.left < 0 {
		return nil, errors.New("the value is too large")
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		return uint64(v), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, errors.New("the value has a number that JSON has not")
		}
		return float64(v), nil
	case types.String:
		c.left -= len(v)
		return string(v), nil
	case traits.Mapper:
		return c.object(v)
	case traits.Lister:
		return c.list(v)
	}
	if err, ok := v.(*types.Err); ok {
		return nil, err
	}
	return nil, fmt.Errorf("the value has a %s, which JSON has not", v.Type().TypeName())
}

func (c *converter) object(m traits.Mapper) (any, error) {
	object := make(map[string]any)
	for it := m.Iterator(); it.HasNext() == types.True; {
		key, ok := it.Next().(types.String)
		if !ok {
			return nil, errors.New("the value has a key that is no text")
		}
		v, err := c.convert(m.Get(key))
		if err != nil {
			return nil, err
		}
		c.left -= len(key)
		object[string(key)] = v
	}
	return object, nil
}

func (c *converter) list(l traits.Lister) (any, error) {
	list := []any{}
	for it := l.Iterator(); it.HasNext() == types.True; {
		v, err := c.convert(it.Next())
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// decodeValue decodes JSON for expressions. An expression that uses a value with a number that CEL would
// round fails.
func decodeValue(raw arcp.Raw) any {
	if len(raw) == 0 {
		return nil
	}
	v, err := rule.Decode(raw)
	if err != nil {
		return types.NewErr("%s", err)
	}
	return v
}

// template is JSON with an *expression in the place of each text that begins with =.
type template struct{ doc any }

func compileTemplate(doc any, sc scope) (template, error) {
	compiled, err := compileNode(doc, sc)
	return template{compiled}, err
}

func compileNode(doc any, sc scope) (any, error) {
	switch v := doc.(type) {
	case string:
		if text, ok := strings.CutPrefix(v, "="); ok {
			e, err := compileExpression(text, sc, false)
			if err != nil {
				return nil, fmt.Errorf("%.40q: %w", v, err)
			}
			return e, nil
		}
	case map[string]any:
		object := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			m, err := compileNode(v[name], sc)
			if err != nil {
				return nil, keyError(name, err)
			}
			object[name] = m
		}
		return object, nil
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			var err error
			if list[i], err = compileNode(item, sc); err != nil {
				return nil, keyError(strconv.Itoa(i), err)
			}
		}
		return list, nil
	}
	if _, err := arcp.Marshal(doc); err != nil {
		return nil, errors.New("a value that JSON has not")
	}
	return doc, nil
}

// render returns the JSON of a template.
func (t template) render(ctx context.Context, vars map[string]any) (arcp.Raw, error) {
	doc, err := renderNode(ctx, t.doc, vars)
	if err != nil {
		return nil, err
	}
	return arcp.Marshal(doc)
}

func renderNode(ctx context.Context, doc any, vars map[string]any) (any, error) {
	switch v := doc.(type) {
	case *expression:
		return v.eval(ctx, vars)
	case map[string]any:
		object := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			m, err := renderNode(ctx, v[name], vars)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			object[name] = m
		}
		return object, nil
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			var err error
			if list[i], err = renderNode(ctx, item, vars); err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return list, nil
	}
	return doc, nil
}
