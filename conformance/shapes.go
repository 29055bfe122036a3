package conformance

import (
	"maps"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// shapes are the members of the frames that one run of a check received, by type.
type shapes map[string]*shape

// shape has the members of the frames of one type, by their path.
type shape struct {
	objects map[string]int            // number of objects at a path; the frame itself is at ""
	members map[string]map[string]int // number of each value of a member
	parents map[string]string         // path of the object that has a member: names may have dots
}

// Bounds of a shape. What exceeds them is not compared.
const (
	maxShapeDepth   = 5
	maxShapeMembers = 300
)

// enumerated are the members whose texts are compared.
var enumerated = []string{"code", "status", "current_status", "final_status", "state", "kind", "level", "encoding", "priority"}

// uncompared are the members whose presence and type depend on how much a server has stored.
var uncompared = []string{"cursor", "next_cursor"}

// opaque are members with the content of tools and callers, and lists of what other checks register too.
var opaque = append([]string{"result", "input", "body", "metadata", "extensions", "tools", "agents", "jobs"}, foreign...)

// add adds a frame, and the event inside it.
func (s shapes) add(text []byte) {
	env, err := script.DecodeLoosely(text)
	if err != nil {
		return // the frames rules are about it
	}
	s.addFrame(shapeName(&env), text)
	if inside := (&judged{Envelope: env}).inside(); inside != nil {
		var p arcp.SubscribeEventPayload
		_ = arcp.Unmarshal(env.Payload, &p) // inside has decoded it
		s.addFrame(shapeName(&env)+" of "+shapeName(&inside.Envelope), p.Event)
	}
}

// shapeName returns the type of a frame, with the kind of a job.event.
func shapeName(env *arcp.Envelope) string {
	if kind := (&received{Envelope: *env}).text("kind"); env.Type == script.JobEvent && kind != "" {
		return string(env.Type) + " " + kind
	}
	return string(env.Type)
}

func (s shapes) addFrame(name string, text arcp.Raw) {
	if s[name] == nil {
		s[name] = &shape{objects: map[string]int{}, members: map[string]map[string]int{}, parents: map[string]string{}}
	}
	s[name].object("", text, 0)
}

func (s *shape) object(path string, text arcp.Raw, depth int) {
	var members map[string]arcp.Raw
	if depth > maxShapeDepth || arcp.Unmarshal(text, &members) != nil {
		return
	}
	s.objects[path]++
	for name, value := range members {
		if slices.Contains(uncompared, name) {
			continue
		}
		member := joinKeys(path, messageID.ReplaceAllString(name, "*"))
		s.parents[member] = path
		s.value(member, name, value, depth)
	}
}

func (s *shape) value(path, name string, text arcp.Raw, depth int) {
	if s.members[path] == nil {
		if len(s.members) == maxShapeMembers {
			return
		}
		s.members[path] = map[string]int{}
	}
	s.members[path][compared(name, text)]++
	if slices.Contains(opaque, name) {
		return
	}
	switch text.Kind() {
	case '{':
		s.object(path, text, depth+1)
	case '[':
		var items []arcp.Raw
		_ = arcp.Unmarshal(text, &items) // a list
		for _, item := range items {
			if item.Kind() == '{' {
				s.object(path+"[]", item, depth+1)
			}
		}
	}
}

// compared returns what is compared of a value: a boolean, the text of an enumerated member, or the JSON type.
func compared(name string, text arcp.Raw) string {
	switch text.Kind() {
	case '"':
		if slices.Contains(enumerated, name) {
			return string(text)
		}
		return "text"
	case '{':
		return "object"
	case '[':
		return "list"
	case 't', 'f', 'n':
		return string(text)
	}
	return "number"
}

// values returns what is compared of a member of the object at parent, with "absent" if such an object lacks it. The
// path "" is the type.
func (s *shape) values(path, parent string) map[string]bool {
	set := map[string]bool{}
	if s == nil {
		set["not sent"] = true
		return set
	}
	if path == "" {
		set["sent"] = true
		return set
	}
	present := 0
	for v, n := range s.members[path] {
		set[v] = true
		present += n
	}
	if present < s.objects[parent] {
		set["absent"] = true
	}
	return set
}

// valueSeparator is between the values of a member.
const valueSeparator = ", "

// shapeDifference is a member, or a type, that two servers have in different ways.
type shapeDifference struct {
	aspect string
	values [2]string
}

// compareShapes compares the runs with two servers. A value makes a difference if it is in each run with one server
// and in no run with the other. A boolean or an enumerated text makes none if both servers have another such value in
// common: which of them a run has may depend on its timing. Of nested members the outermost one is reported.
func compareShapes(a, b []shapes) []shapeDifference {
	var list []shapeDifference
	for _, name := range sortedUnion(a, b, func(s shapes) []string { return slices.Collect(maps.Keys(s)) }) {
		typed := func(runs []shapes) []*shape {
			of := make([]*shape, len(runs))
			for i := range runs {
				of[i] = runs[i][name]
			}
			return of
		}
		list = append(list, compareType(name, typed(a), typed(b))...)
	}
	return list
}

// byClock are the types of frames that a server sends at its own times: a check may end before or after one.
var byClock = []string{string(arcp.SessionPing), string(arcp.JobHeartbeat)}

func compareType(name string, a, b []*shape) (list []shapeDifference) {
	all := sortedUnion(a, b, func(s *shape) []string {
		if s == nil {
			return nil
		}
		return slices.Collect(maps.Keys(s.members))
	})
	outer := "\x00" // path of the last difference
	for _, path := range append([]string{""}, all...) {
		if path == "" && slices.Contains(byClock, name) {
			continue
		}
		if strings.HasPrefix(path, outer+".") || strings.HasPrefix(path, outer+"[]") {
			continue
		}
		values, differ := compareValues(path, a, b)
		if !differ {
			continue
		}
		outer = path
		list = append(list, shapeDifference{strings.TrimSpace(name + " " + path), values})
		if path == "" {
			break
		}
	}
	return list
}

// compareValues returns the values of a member with each server, and whether they differ. Runs in which the type was
// not sent say nothing about its members.
func compareValues(path string, a, b []*shape) (values [2]string, differ bool) {
	parent := parentOf(path, slices.Concat(a, b))
	var every, any [2]map[string]bool
	for i, runs := range [2][]*shape{a, b} {
		any[i] = map[string]bool{}
		for _, s := range runs {
			if s == nil && path != "" {
				continue
			}
			set := s.values(path, parent)
			if every[i] == nil {
				every[i] = maps.Clone(set)
			}
			maps.DeleteFunc(every[i], func(v string, _ bool) bool { return !set[v] })
			maps.Copy(any[i], set)
		}
		values[i] = strings.Join(slices.Sorted(maps.Keys(any[i])), valueSeparator)
	}
	common := false // a value that varies, with both servers
	for v := range any[0] {
		common = common || any[1][v] && varies(v)
	}
	only := func(i, j int) bool {
		for v := range every[i] {
			if !any[j][v] && !(common && varies(v)) {
				return true
			}
		}
		return false
	}
	return values, len(any[0]) > 0 && len(any[1]) > 0 && (only(0, 1) || only(1, 0))
}

// varies reports whether what is compared of a member is its value, and not its type or presence.
func varies(value string) bool {
	return value == "true" || value == "false" || strings.HasPrefix(value, `"`)
}

// parentOf returns the path of the object that has a member in one of the shapes.
func parentOf(path string, list []*shape) string {
	for _, s := range list {
		if s == nil {
			continue
		}
		if parent, known := s.parents[path]; known {
			return parent
		}
	}
	return ""
}

// sortedUnion returns the keys of all items, in order and once.
func sortedUnion[T any](a, b []T, keys func(T) []string) []string {
	var all []string
	for _, item := range slices.Concat(a, b) {
		all = append(all, keys(item)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
