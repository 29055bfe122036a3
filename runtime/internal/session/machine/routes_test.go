package machine

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// A client may send every type that has a route, and once the session is
// accepted.
func TestRoutesAreForClients(t *testing.T) {
	for typ := range routes {
		s := arcp.Lookup(typ)
		if s == nil || s.From&arcp.FromClient == 0 || s.Phase&arcp.InAccepted == 0 {
			t.Errorf("%s has a route, but its row says that no client sends it in a session", typ)
		}
		if !Served(typ) {
			t.Errorf("Served(%s) = false", typ)
		}
	}
	if Served(arcp.JobCompleted) || Served("nonsense") {
		t.Error("a type without a route is served")
	}
}

// Every route decodes what the catalogue says the payload is: each member of
// that, given a value of another type, is refused by name.
func TestRoutesDecodeTheCataloguesPayload(t *testing.T) {
	for typ := range routes {
		if typ == arcp.SessionAuthenticate { // dropped unread
			continue
		}
		for _, f := range members(reflect.TypeOf(arcp.Lookup(typ).NewPayload()).Elem()) {
			refusal := refusalOf(t, typ, f.name, f.wrong)
			if !strings.Contains(refusal, fmt.Sprintf("%q", f.name)) {
				t.Errorf("%s with %s:%s is refused with %q, want a word about that member", typ, f.name, f.wrong, refusal)
			}
		}
	}
}

type member struct{ name, wrong string }

// members lists the members of a payload that have a type.
func members(t reflect.Type) (list []member) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case f.Anonymous:
			list = append(list, members(ft)...)
		case ft == reflect.TypeFor[arcp.Raw]():
		case ft.Kind() == reflect.String && ft != reflect.TypeFor[arcp.Number](), ft == reflect.TypeFor[time.Time]():
			list = append(list, member{name, "7"})
		default:
			list = append(list, member{name, `"x"`})
		}
	}
	return list
}

// refusalOf sends a frame with one wrong member and returns what is said about it.
func refusalOf(t *testing.T, typ arcp.Type, name, wrong string) string {
	t.Helper()
	m := reach(t, Accepted)
	env, err := envelope(fmt.Sprintf(`msg_x %s%s {%q:%s}`, typ, scopeOf(typ), name, wrong))
	if err != nil {
		t.Fatal(err)
	}
	m.Receive(t0, env)
	out := m.Take()
	for _, c := range out.Commands {
		if inv, ok := c.(*Invoke); ok && inv.Refused != nil {
			return inv.Refused.Message
		}
	}
	for i := range out.Send {
		if e, err := arcp.DecodePayload[arcp.Error](&out.Send[i]); err == nil && out.Send[i].Type == arcp.Nack {
			return e.Message
		}
	}
	return ""
}
