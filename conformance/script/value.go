package script

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Value is JSON text; nil is an absent value.
type Value = arcp.Raw

// kind selects the form of an expr.
type kind int

const (
	constant kind = iota
	exact         // JSON text compared byte by byte
	template      // a string or exact text with insertions
	object
	list
	reference
	call
	operator
	// The kinds below occur in patterns only.
	binding
	wildcard
	missing
	alternatives
	contains
	bound
)

// expr is a value or a pattern.
type expr struct {
	kind  kind
	text  string  // name, operator or template
	value Value   // of a constant
	keys  []*expr // of an object
	args  []*expr
	path  []string
	raw   bool // template: of exact text
}

// scope holds the variables of a check or of a macro call.
type scope struct {
	vars   map[string]Value
	lookup func(name string) (Value, bool) // finds names that are not variables
	funcs  func(name string) func([]Value) (Value, error)
	house  func(wrong *mismatch) // keeps what a house rule forbids
}

func (s *scope) get(name string) (Value, error) {
	if v, ok := s.vars[name]; ok {
		return v, nil
	}
	if v, ok := s.lookup(name); ok {
		return v, nil
	}
	return nil, fmt.Errorf("no variable $%s", name)
}

// eval returns the value of an expression.
func (s *scope) eval(e *expr) (Value, error) {
	switch e.kind {
	case constant, exact:
		return e.value, nil
	case template:
		return s.fill(e)
	case object:
		return s.evalObject(e)
	case list:
		items := make([]Value, 0, len(e.args))
		for _, a := range e.args {
			v, err := s.eval(a)
			if err != nil {
				return nil, err
			}
			items = append(items, orNull(v))
		}
		return array(items), nil
	case reference:
		v, err := s.get(e.text)
		if err != nil {
			return nil, err
		}
		if len(e.path) > 0 && v.Kind() == '"' { // a variable that names a connection
			if c, ok := s.lookup(plain(v)); ok {
				v = c
			}
		}
		return member(v, e.path), nil
	case call, operator:
		args := make([]Value, len(e.args))
		for i, a := range e.args {
			var err error
			if args[i], err = s.eval(a); err != nil {
				return nil, err
			}
		}
		if e.kind == operator {
			return combine(e.text, args[0], args[1])
		}
		v, err := s.funcs(e.text)(args)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.text, err)
		}
		return v, nil
	case missing:
		return nil, nil
	}
	return nil, errors.New("a pattern stands where a value is needed")
}

func (s *scope) evalObject(e *expr) (Value, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, key := range e.keys {
		k, err := s.eval(key)
		if err != nil {
			return nil, err
		}
		v, err := s.eval(e.args[i])
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%s", k, v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// fill replaces each ${name} of a template.
func (s *scope) fill(e *expr) (Value, error) {
	var b strings.Builder
	rest := e.text
	for {
		before, after, found := strings.Cut(rest, "${")
		b.WriteString(before)
		if !found {
			break
		}
		name, tail, _ := strings.Cut(after, "}") // the parser has found it
		path := strings.Split(name, ".")
		v, err := s.get(path[0])
		if err != nil {
			return nil, err
		}
		b.WriteString(plain(member(v, path[1:])))
		rest = tail
	}
	if e.raw {
		return Value(b.String()), nil
	}
	return text(b.String()), nil
}

// member returns the value at a path; nil if there is none. Numbers index lists,
// negative ones from their end.
func member(v Value, path []string) Value {
	for _, name := range path {
		if n, err := strconv.Atoi(name); err == nil {
			items := items(v)
			if n < 0 {
				n += len(items)
			}
			if n < 0 || n >= len(items) {
				return nil
			}
			v = items[n]
			continue
		}
		v = field(members(v), name)
	}
	return v
}

// field returns a member. The code of an error is the specific one, which the wire
// has in its details (RFC 0001 §18.2), and details are those without it.
func field(m map[string]Value, name string) Value {
	if m["code"] == nil || m["details"] == nil || name != "code" && name != "details" {
		return m[name]
	}
	code, details := arcp.SpecificCode(arcp.Code(plain(m["code"])), m["details"])
	if name == "code" {
		return text(string(code))
	}
	return details
}

func marshal(v any) Value {
	raw, err := arcp.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("script: %v", err)) // values are JSON already
	}
	return raw
}

// array writes a list; its items keep their bytes.
func array(list []Value) Value {
	b := []byte{'['}
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, orNull(v)...)
	}
	return append(b, ']')
}

func text(s string) Value { return marshal(s) }

func orNull(v Value) Value {
	if v == nil {
		return Value("null")
	}
	return v
}

// plain is a string's content, or the JSON text of another value.
func plain(v Value) string {
	var s string
	if v.Kind() == '"' && arcp.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

func items(v Value) (list []Value) {
	if v.Kind() == '[' {
		_ = arcp.Unmarshal(v, &list) // only a list has items
	}
	return list
}

func members(v Value) (m map[string]Value) {
	if v.Kind() == '{' {
		_ = arcp.Unmarshal(v, &m) // only an object has members
	}
	return m
}

func number(v Value) (*big.Rat, bool) {
	if v.Kind() != '0' {
		return nil, false
	}
	return new(big.Rat).SetString(string(v))
}

func parseTime(v Value) (time.Time, bool) {
	if v.Kind() != '"' {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, plain(v))
	return t, err == nil
}

func formatNumber(r *big.Rat) Value {
	if r.IsInt() {
		return Value(r.Num().String())
	}
	f, _ := r.Float64()
	return Value(strconv.FormatFloat(f, 'f', -1, 64))
}

// combine applies an operator. An absent or null operand leaves the other one.
func combine(op string, a, b Value) (Value, error) {
	x, xn := number(a)
	y, yn := number(b)
	ta, at := parseTime(a)
	tb, bt := parseTime(b)
	switch {
	case xn && yn && op == "*":
		return formatNumber(x.Mul(x, y)), nil
	case xn && yn && op == "-":
		return formatNumber(x.Sub(x, y)), nil
	case at && bt && op == "-":
		return formatNumber(new(big.Rat).SetFloat64(ta.Sub(tb).Seconds())), nil
	case at && yn:
		seconds, _ := y.Float64()
		if op == "-" {
			seconds = -seconds
		}
		return text(ta.Add(time.Duration(seconds * float64(time.Second))).Format(time.RFC3339Nano)), nil
	case op != "+":
		return nil, fmt.Errorf("%s %s %s has no meaning", show(a), op, show(b))
	case a == nil || a.Kind() == 'n':
		return b, nil
	case b == nil || b.Kind() == 'n':
		return a, nil
	case xn && yn:
		return formatNumber(x.Add(x, y)), nil
	case a.Kind() == '[' && b.Kind() == '[':
		return array(append(items(a), items(b)...)), nil
	case a.Kind() == '{' && b.Kind() == '{':
		m := members(a)
		maps.Copy(m, members(b))
		return join(m), nil
	case a.Kind() == '"' || b.Kind() == '"':
		return text(plain(a) + plain(b)), nil
	}
	return nil, fmt.Errorf("%s + %s has no meaning", show(a), show(b))
}

// join writes an object with its members in the order of their names.
func join(m map[string]Value) Value {
	var b bytes.Buffer
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%s", text(name), m[name])
	}
	return Value("{" + b.String() + "}")
}

// same reports whether two values mean the same.
func same(a, b Value) bool {
	switch {
	case a == nil || b == nil:
		return a == nil && b == nil
	case a.Kind() != b.Kind():
		return false
	}
	switch a.Kind() {
	case '0':
		x, _ := number(a)
		y, _ := number(b)
		return x != nil && y != nil && x.Cmp(y) == 0
	case '"':
		ta, at := parseTime(a)
		tb, bt := parseTime(b)
		return plain(a) == plain(b) || at && bt && ta.Equal(tb)
	case '[':
		return slices.EqualFunc(items(a), items(b), same)
	case '{':
		return maps.EqualFunc(members(a), members(b), same)
	}
	return string(a) == string(b)
}

// order compares numbers, times or strings.
func order(a, b Value) (int, error) {
	x, xn := number(a)
	y, yn := number(b)
	if xn && yn {
		return x.Cmp(y), nil
	}
	ta, at := parseTime(a)
	tb, bt := parseTime(b)
	if at && bt {
		return ta.Compare(tb), nil
	}
	if a.Kind() == '"' && b.Kind() == '"' {
		return strings.Compare(plain(a), plain(b)), nil
	}
	return 0, fmt.Errorf("%s and %s have no order", show(a), show(b))
}

// mismatch says where a value does not fit a pattern.
type mismatch struct {
	path, want string
	got        Value
}

func (m *mismatch) Error() string {
	where := ""
	if m.path != "" {
		where = m.path + " is "
	}
	return fmt.Sprintf("%s%s, want %s", where, show(m.got), m.want)
}

// match compares a value with a pattern and binds the variables of the pattern.
func (s *scope) match(p *expr, v Value, path string) error {
	wrong := func(want string) error { return &mismatch{path, want, v} }
	switch p.kind {
	case binding:
		if v == nil {
			return wrong("a value")
		}
		s.vars[p.text] = v
		return nil
	case wildcard:
		if v == nil {
			return wrong("a value")
		}
		return nil
	case missing:
		if v != nil {
			return wrong("nothing")
		}
		return nil
	case alternatives:
		for _, a := range p.args {
			if same(a.value, v) {
				return nil
			}
		}
		return wrong(p.text)
	case contains:
		part, err := s.eval(p.args[0])
		if err != nil {
			return err
		}
		if v == nil || !strings.Contains(strings.ToLower(plain(v)), strings.ToLower(plain(part))) {
			return wrong("text with " + show(part))
		}
		return nil
	case bound:
		limit, err := s.eval(p.args[0])
		if err != nil {
			return err
		}
		if ok, err := compare(p.text, v, limit); v == nil || err != nil || !ok {
			return wrong(p.text + " " + show(limit))
		}
		return nil
	case object:
		return s.matchObject(p, v, path)
	case list:
		got := items(v)
		if v.Kind() != '[' || len(got) != len(p.args) {
			return wrong(fmt.Sprintf("a list of %d", len(p.args)))
		}
		for i, a := range p.args {
			if err := s.match(a, got[i], path+"."+strconv.Itoa(i)); err != nil {
				return err
			}
		}
		return nil
	}
	want, err := s.eval(p)
	if err != nil {
		return err
	}
	if !same(want, v) {
		return wrong(show(want))
	}
	if p.kind == exact && string(want) != string(v) {
		s.house(&mismatch{path, show(want) + " byte for byte", v})
	}
	return nil
}

func (s *scope) matchObject(p *expr, v Value, path string) error {
	have := members(v)
	if have == nil {
		return &mismatch{path, "an object", v}
	}
	for i, key := range p.keys {
		name, err := s.eval(key)
		if err != nil {
			return err
		}
		at := strings.TrimPrefix(path+"."+plain(name), ".")
		match := s.match
		if plain(name) == "code" {
			match = s.matchCode
		}
		if err := match(p.args[i], field(have, plain(name)), at); err != nil {
			return err
		}
	}
	return nil
}

// matchCode compares an error code. The RFC has a code for each specific one that a pattern names;
// that the specific code is in details is a house rule.
func (s *scope) matchCode(p *expr, v Value, path string) error {
	err := s.match(p, v, path)
	wrong, ok := errors.AsType[*mismatch](err)
	if !ok {
		return err
	}
	named := []*expr{p}
	if p.kind == alternatives {
		named = p.args
	}
	for _, e := range named {
		value := e.value
		if e.kind == reference {
			value, _ = s.eval(e) // match has evaluated it
		}
		if code := arcp.Code(plain(value)); code != "" && string(code.Canonical()) == plain(v) {
			s.house(wrong)
			return nil
		}
	}
	return err
}

// compare applies a comparison of two values.
func compare(op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return same(a, b), nil
	case "!=":
		return !same(a, b), nil
	case "===":
		return string(a) == string(b), nil
	}
	n, err := order(a, b)
	return op == "<" && n < 0 || op == "<=" && n <= 0 || op == ">" && n > 0 || op == ">=" && n >= 0, err
}

// maxShown bounds a value in a message, in bytes.
const maxShown = 400

func show(v Value) string {
	if v == nil {
		return "absent"
	}
	if len(v) > maxShown {
		return strings.ToValidUTF8(string(v[:maxShown]), "") + fmt.Sprintf("… (%d bytes)", len(v))
	}
	return string(v)
}
