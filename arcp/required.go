package arcp

import (
	"errors"
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

// DecodeComplete decodes the payload of an envelope as DecodePayload does. A required member
// that is missing is an error.
func DecodeComplete[P any](env *Envelope) (P, error) {
	p, err := DecodePayload[P](env)
	if err != nil {
		return p, err
	}
	if name := Missing(env.Payload, p); name != "" {
		return p, Errorf(CodeInvalidRequest, "payload member %q is required", name)
	}
	return p, nil
}

// PayloadError returns the error with which a message of type t is refused because of err,
// which says what is wrong with its payload.
func PayloadError(t Type, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return Errorf(e.Code, "%s: %s", t, e.Message)
	}
	return Errorf(CodeInvalidRequest, "%s: %s", t, err)
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
