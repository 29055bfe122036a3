package arcp

import (
	"reflect"
	"strings"
	"sync"
)

// requiredFields are, by payload type, the index paths and names of the members
// that must be present: those that are never left out when encoded.
var requiredFields sync.Map // reflect.Type → []requiredField

type requiredField struct {
	index []int
	name  string
}

// Missing returns the name of a required member that the payload p, decoded from
// raw, does not have; empty if it has all. A member that is null is missing.
// Only a member whose value is zero is looked for, so a complete payload costs
// next to nothing.
func Missing(raw Raw, p any) string {
	v := reflect.ValueOf(p)
	var present map[string]Raw
	for _, f := range fieldsOf(v.Type()) {
		if !v.FieldByIndex(f.index).IsZero() {
			continue
		}
		if present == nil {
			if err := Unmarshal(raw, &present); err != nil {
				return f.name // it was decoded before: it is an object
			}
		}
		if member := present[f.name]; len(member) == 0 || member.Kind() == 'n' {
			return f.name
		}
	}
	return ""
}

func fieldsOf(t reflect.Type) []requiredField {
	if cached, ok := requiredFields.Load(t); ok {
		return cached.([]requiredField)
	}
	var fields []requiredField
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" || name == "-" || strings.Contains(options, "omit") {
			continue
		}
		fields = append(fields, requiredField{f.Index, name})
	}
	requiredFields.Store(t, fields)
	return fields
}
