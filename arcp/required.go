package arcp

import (
	"errors"
	"reflect"
	"strings"
	"sync"
)

// requiredFields caches the required members of each payload type: the members that encoding never
// omits.
var requiredFields sync.Map // reflect.Type → []requiredField

type requiredField struct {
	index []int
	name  string
}

// DecodeComplete decodes a payload like DecodePayload. A missing or null required member is an
// *Error with CodeInvalidRequest.
func DecodeComplete[P any](env *Envelope) (P, error) {
	var p P
	err := DecodeCompleteTo(env, &p)
	return p, err
}

// DecodeCompleteTo is DecodeComplete into p, which is zero before the call.
func DecodeCompleteTo[P any](env *Envelope, p *P) error {
	if err := decodePayload(env, p); err != nil {
		return err
	}
	if name := MissingMember(env.Payload, p); name != "" {
		return Errorf(CodeInvalidRequest, "payload member %q is required", name)
	}
	return nil
}

// PayloadError returns the refusal of a message of type t because of err, an error of its payload.
// The code is the code of an *Error in err, or else CodeInvalidRequest.
func PayloadError(t Type, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return Errorf(e.Code, "%s: %s", t, e.Message)
	}
	return Errorf(CodeInvalidRequest, "%s: %s", t, err)
}

// MissingMember returns the name of the first required member that is absent or null in raw, or "". p is
// the payload struct decoded from raw, or a pointer to it. Only zero fields of p are looked up in raw, so
// a complete payload is checked fast.
func MissingMember(raw Raw, p any) string {
	v := reflect.Indirect(reflect.ValueOf(p))
	fields := fieldsOf(v.Type())
	for i, f := range fields {
		if v.FieldByIndex(f.index).IsZero() {
			return missingIn(raw, v, fields[i:])
		}
	}
	return ""
}

// missingIn is MissingMember for some fields.
func missingIn(raw Raw, v reflect.Value, fields []requiredField) string {
	var members map[string]Raw
	_ = Unmarshal(raw, &members) // raw was decoded before
	for _, f := range fields {
		member := members[f.name]
		if v.FieldByIndex(f.index).IsZero() && (len(member) == 0 || member.Kind() == 'n') {
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
