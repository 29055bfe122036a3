package script

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// functions are the functions of the language, by name.
var functions = map[string]func(args []Value) (Value, error){
	"len": func(a []Value) (Value, error) { // of a list, an object, or a string in bytes
		switch a[0].Kind() {
		case '[':
			return count(len(items(a[0]))), nil
		case '{':
			return count(len(members(a[0]))), nil
		}
		return count(len(plain(a[0]))), nil
	},
	"size": func(a []Value) (Value, error) { return count(len(a[0])), nil }, // of the JSON text, in bytes
	"of": func(a []Value) (Value, error) { // frames of the types
		return filter(a[0], func(f Value) bool {
			return slices.ContainsFunc(a[1:], func(typ Value) bool { return same(members(f)["type"], typ) })
		}), nil
	},
	"types": func(a []Value) (Value, error) { return pluck(a[0], "type"), nil },
	"pluck": func(a []Value) (Value, error) { return pluck(a[0], plain(a[1])), nil },
	"where": func(a []Value) (Value, error) { // items whose member has the value
		return filter(a[0], func(v Value) bool { return same(member(v, strings.Split(plain(a[1]), ".")), a[2]) }), nil
	},
	"among": func(a []Value) (Value, error) { // items whose member has one of the values
		path, values := strings.Split(plain(a[1]), "."), items(a[2])
		return filter(a[0], func(v Value) bool {
			found := member(v, path)
			return slices.ContainsFunc(values, func(value Value) bool { return same(found, value) })
		}), nil
	},
	"has": func(a []Value) (Value, error) { // whether a list has the item
		return marshal(slices.ContainsFunc(items(a[0]), func(v Value) bool { return same(v, a[1]) })), nil
	},
	"at": func(a []Value) (Value, error) { return member(a[0], []string{plain(a[1])}), nil },
	"slice": func(a []Value) (Value, error) {
		list := items(a[0])
		from, to := index(a[1], len(list)), len(list)
		if len(a) > 2 {
			to = index(a[2], len(list))
		}
		return array(list[min(from, to):to]), nil
	},
	"cut": func(a []Value) (Value, error) { // the first bytes of a string
		s := plain(a[0])
		return text(s[:index(a[1], len(s))]), nil
	},
	"reverse": func(a []Value) (Value, error) {
		list := items(a[0])
		slices.Reverse(list)
		return array(list), nil
	},
	"sort": func(a []Value) (Value, error) {
		list := items(a[0])
		slices.SortFunc(list, func(a, b Value) int { return strings.Compare(plain(a), plain(b)) })
		return array(list), nil
	},
	"range": func(a []Value) (Value, error) {
		n, err := integer(a[0])
		list := []int{}
		for i := range n {
			list = append(list, i)
		}
		return marshal(list), err
	},
	"repeat": func(a []Value) (Value, error) { // a string, n times
		n, err := integer(a[1])
		return text(strings.Repeat(plain(a[0]), max(n, 0))), err
	},
	"text": func(a []Value) (Value, error) { return text(string(a[0])), nil }, // the JSON text as a string
	"replace": func(a []Value) (Value, error) { // each part of a string
		return text(strings.ReplaceAll(plain(a[0]), plain(a[1]), plain(a[2]))), nil
	},
	"chunks": func(a []Value) (Value, error) { // the data of job.result_chunk frames
		var b []byte
		for _, f := range items(a[0]) {
			data := plain(member(f, []string{"payload", "data"}))
			if plain(member(f, []string{"payload", "encoding"})) == "base64" {
				part, err := base64.StdEncoding.DecodeString(data)
				if err != nil {
					return nil, err
				}
				data = string(part)
			}
			b = append(b, data...)
		}
		return text(string(b)), nil
	},
	"lower": func(a []Value) (Value, error) { return text(strings.ToLower(plain(a[0]))), nil },
	"json": func(a []Value) (Value, error) { // a string that is JSON text
		return Value(plain(a[0])), nil
	},
	"min": func(a []Value) (Value, error) {
		n, err := order(a[0], a[1])
		if n <= 0 {
			return a[0], err
		}
		return a[1], err
	},
	"or": func(a []Value) (Value, error) { // the first that is there
		for _, v := range a {
			if v != nil && v.Kind() != 'n' {
				return v, nil
			}
		}
		return nil, nil
	},
	"merge":     func(a []Value) (Value, error) { return merge(a[0], a[1]), nil },
	"canonical": func(a []Value) (Value, error) { return arcp.Canonical(a[0]) },
	"matches": func(a []Value) (Value, error) { // a string and a regular expression
		ok, err := regexp.MatchString(plain(a[1]), plain(a[0]))
		return marshal(ok), err
	},
	"flip": func(a []Value) (Value, error) { // a string with another letter at a position
		s := []byte(plain(a[0]))
		s[index(a[1], len(s))] ^= 'A' ^ 'B'
		return text(string(s)), nil
	},
	"unix": func(a []Value) (Value, error) { // so many seconds from now
		n, err := integer(a[0])
		return marshal(time.Now().Unix() + int64(n)), err
	},
	"object": func(a []Value) (Value, error) { return join(map[string]Value{plain(a[0]): a[1]}), nil },
	"except": func(a []Value) (Value, error) {
		m := members(a[0])
		delete(m, plain(a[1]))
		return join(m), nil
	},
	"id":  func(a []Value) (Value, error) { return text(arcp.NewID(plain(a[0]))), nil },
	"now": func([]Value) (Value, error) { return text(time.Now().UTC().Format(time.RFC3339Nano)), nil },
	"today": func([]Value) (Value, error) {
		return text(time.Now().UTC().Truncate(time.Second).Format(time.RFC3339)), nil
	}, // now, in whole seconds
}

func count(n int) Value { return Value(strconv.Itoa(n)) }

func integer(v Value) (int, error) { return strconv.Atoi(string(v)) }

// index is a position from 0 to n; a negative one counts from the end.
func index(v Value, n int) int {
	i, _ := integer(v) // not a number: 0, the beginning
	if i < 0 {
		i += n
	}
	return min(max(i, 0), n)
}

func filter(v Value, keep func(Value) bool) Value {
	var list []Value
	for _, item := range items(v) {
		if keep(item) {
			list = append(list, item)
		}
	}
	return array(list)
}

// pluck lists the value at a path of each item.
func pluck(v Value, path string) Value {
	var list []Value
	for _, item := range items(v) {
		list = append(list, orNull(member(item, strings.Split(path, "."))))
	}
	return array(list)
}
