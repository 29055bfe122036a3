package conformance

import (
	"reflect"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// member is one member of a payload struct as declared by its tag.
type member struct {
	name     string
	required bool // no omitempty or omitzero: always written
	typ      reflect.Type
}

// membersOf lists the members of a struct, including those of embedded structs.
func membersOf(typ reflect.Type) []member {
	var list []member
	for f := range typ.Fields() {
		name, options, tagged := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			list = append(list, membersOf(f.Type)...)
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		optional := tagged && strings.Contains(options, "omit")
		list = append(list, member{name, !optional, f.Type})
	}
	return list
}

// structOf returns the struct type behind pointers and slices. A struct without tags, such as
// time.Time, has no members.
func structOf(typ reflect.Type) (reflect.Type, bool) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	return typ, typ.Kind() == reflect.Struct
}

// missingMembers returns the paths of the required members that raw lacks. raw is a value of type
// typ.
func missingMembers(typ reflect.Type, raw arcp.Raw, path string) []string {
	if raw.Kind() == '[' {
		return missingInItems(typ, raw, path)
	}
	s, ok := structOf(typ)
	if !ok || raw.Kind() != '{' {
		return nil
	}
	var have map[string]arcp.Raw
	if arcp.Unmarshal(raw, &have) != nil {
		return []string{path}
	}
	var missing []string
	for _, m := range membersOf(s) {
		value, ok := have[m.name]
		switch {
		case ok:
			missing = append(missing, missingMembers(m.typ, value, path+"."+m.name)...)
		case m.required:
			missing = append(missing, path+"."+m.name)
		}
	}
	return missing
}

func missingInItems(typ reflect.Type, raw arcp.Raw, path string) []string {
	var items []arcp.Raw
	if _, ok := structOf(typ); !ok || arcp.Unmarshal(raw, &items) != nil {
		return nil
	}
	var missing []string
	for _, item := range items {
		missing = append(missing, missingMembers(typ, item, path+"[]")...)
	}
	return missing
}

// hasMember reports whether the object raw has the member name.
func hasMember(raw arcp.Raw, name string) bool {
	var have map[string]arcp.Raw
	return arcp.Unmarshal(raw, &have) == nil && have[name] != nil
}

// foreign are the members whose content a tool or its caller chooses. They may contain null.
var foreign = []string{"value", "data", "details", "attributes", "dims", "event", "arguments", "default",
	"response_schema"}

// findNull returns the path of a null in raw outside of foreign members, or "".
func findNull(raw arcp.Raw, path string) string {
	switch raw.Kind() {
	case 'n':
		return path
	case '{':
		var have map[string]arcp.Raw
		if arcp.Unmarshal(raw, &have) != nil {
			return ""
		}
		for name, value := range have {
			if slices.Contains(foreign, name) {
				continue
			}
			if found := findNull(value, path+"."+name); found != "" {
				return found
			}
		}
	case '[':
		var items []arcp.Raw
		if arcp.Unmarshal(raw, &items) != nil {
			return ""
		}
		for _, item := range items {
			if found := findNull(item, path+"[]"); found != "" {
				return found
			}
		}
	}
	return ""
}
