package workflow

import (
	"cmp"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// adapter converts values for expressions. Its maps iterate in the order of their keys: an attempt after a
// crash evaluates the expressions again, and has to get the same items in the same order.
type adapter struct{ types.Adapter }

var sortedMaps = adapter{types.DefaultTypeAdapter}

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case []any:
		return types.NewDynamicList(a, v)
	case []ref.Val:
		return types.NewRefValList(a, v)
	case map[string]any:
		return sortedMap{types.NewStringInterfaceMap(a, v)}
	}
	return a.Adapter.NativeToValue(v)
}

// sortMade has the maps that an expression makes sorted, too.
func sortMade(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if c, ok := i.(interpreter.InterpretableConstructor); ok && c.Type() == types.MapType {
		return madeMap{i}, nil
	}
	return i, nil
}

// madeMap is the part of an expression that makes a map.
type madeMap struct{ interpreter.InterpretableV2 }

// Exec implements interpreter.InterpretableV2.
func (m madeMap) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := m.InterpretableV2.Exec(frame)
	if made, ok := v.(traits.Mapper); ok {
		return sortedMap{made}
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (m madeMap) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}

// sortedMap is a map that iterates in the order of its keys.
type sortedMap struct{ traits.Mapper }

// Iterator implements traits.Iterable.
func (m sortedMap) Iterator() traits.Iterator {
	var keys []ref.Val
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, compareKeys)
	return types.NewRefValList(sortedMaps, keys).Iterator()
}

// compareKeys orders keys by their type and their value.
func compareKeys(a, b ref.Val) int {
	if c := cmp.Compare(a.Type().TypeName(), b.Type().TypeName()); c != 0 {
		return c
	}
	if a, ok := a.(traits.Comparer); ok {
		if n, ok := a.Compare(b).(types.Int); ok {
			return int(n)
		}
	}
	return 0
}
