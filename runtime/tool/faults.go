package tool

import (
	"cmp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// fault is a violation of a schema.
type fault struct {
	path    string // JSON pointer into the value
	keyword string // of the schema
	want    string // requirement as a predicate, such as "must be at least 1"
}

// text returns a sentence about the fault. root names the whole value, part a part of the value.
func (f *fault) text(root, part string) string {
	if f.path == "" {
		return root + " " + f.want
	}
	return part + " " + clip.Ellipsis(f.path, arcp.MaxIDLen) + " " + f.want
}

// maxFaults bounds the faults that an error tells. More would not be read, and a value may have one in each of
// its items.
const maxFaults = 10

// faults are the first violations of a schema by location.
type faults struct {
	list  []fault  // at least one, at most maxFaults
	more  bool     // there are others
	known []string // names of the known members, for a fault about an unknown one
}

func oneFault(f fault) *faults { return &faults{list: []fault{f}} }

// text returns a part of a sentence about each fault; see fault.text. Each fault has an equal share of
// maxMessageBytes.
func (fs *faults) text(root, part string) string {
	var texts []string
	for i := range fs.list {
		texts = append(texts, clip.Ellipsis(fs.list[i].text(root, part), maxMessageBytes/len(fs.list)))
	}
	if fs.more {
		texts = append(texts, "and more")
	}
	if len(fs.known) > 0 {
		texts = append(texts, "known are "+clip.Ellipsis(strings.Join(fs.known, ", "), maxMessageBytes))
	}
	return strings.Join(texts, "; ")
}

func (fs *faults) invalidArgument() *arcp.Error {
	type location struct {
		Path    string `json:"path"`
		Keyword string `json:"keyword"`
	}
	var all []location
	for _, f := range fs.list {
		all = append(all, location{clip.Ellipsis(f.path, arcp.MaxIDLen), f.keyword})
	}
	return arcp.Errorf(arcp.CodeInvalidArgument, "%s", fs.text("the arguments", "argument")).WithDetails(struct {
		location
		Others []location `json:"others,omitempty"`
	}{all[0], all[1:]})
}

// faultsOf returns the first violations in an error tree.
func faultsOf(e *jsonschema.ValidationError) *faults {
	var first firstLeaves
	walkLeaves(e, first.add)
	fs := &faults{more: first.more}
	for i := range first.list {
		l := &first.list[i]
		fs.list = append(fs.list, fault{pointer(l.at), l.keyword(), l.want()})
	}
	return fs
}

// leaf is a violation in an error tree. A tree may have 100,000 leaves with long locations, and a million names of
// members: texts are made only for those that are told.
type leaf struct {
	at   []string                      // location of the value, or of a member that is missing or unknown
	errs []*jsonschema.ValidationError // more than one for alternatives of the same value
}

// keyword returns the keyword of the schema, as a path.
func (l *leaf) keyword() string {
	if _, never := l.errs[0].ErrorKind.(*kind.FalseSchema); never {
		return "false"
	}
	return strings.Join(l.errs[0].ErrorKind.KeywordPath(), "/")
}

// want returns the requirement as a predicate.
func (l *leaf) want() string {
	wants := make([]string, 0, len(l.errs))
	for _, e := range l.errs {
		wants = append(wants, wantOf(e))
	}
	slices.Sort(wants)
	return strings.Join(slices.Compact(wants), ", or ")
}

func wantOf(e *jsonschema.ValidationError) string {
	switch e.ErrorKind.(type) {
	case *kind.Required:
		return "is required"
	case *kind.AdditionalProperties:
		return "is not known"
	case *kind.FalseSchema:
		return "is not allowed"
	}
	if want := requirement(e.ErrorKind); want != "" {
		return "must " + want
	}
	return "breaks the schema: " + describe(e)
}

// sameRule reports whether two violations are of the same keyword of the same schema.
func sameRule(a, b *jsonschema.ValidationError) bool {
	return a.SchemaURL == b.SchemaURL && slices.Equal(a.ErrorKind.KeywordPath(), b.ErrorKind.KeywordPath())
}

func compareLeaves(a, b leaf) int {
	if c := slices.Compare(a.at, b.at); c != 0 || len(a.errs) == 1 && len(b.errs) == 1 && sameRule(a.errs[0], b.errs[0]) {
		return c
	}
	return cmp.Or(strings.Compare(a.keyword(), b.keyword()), strings.Compare(a.want(), b.want()))
}

// firstLeaves are the first maxFaults leaves by location, without repetitions.
type firstLeaves struct {
	list []leaf // sorted
	more bool   // there are others
}

func (f *firstLeaves) add(l leaf) {
	i, found := slices.BinarySearchFunc(f.list, l, compareLeaves)
	if found {
		return
	}
	if len(f.list) == maxFaults {
		f.more = true
		if i == maxFaults {
			return
		}
		f.list = f.list[:maxFaults-1]
	}
	l.at = slices.Clone(l.at)
	f.list = slices.Insert(f.list, i, l)
}

// walkLeaves calls visit for the leaves of an error tree. For anyOf and oneOf it is only the leaf that is deepest in
// the value. visit must not keep the location of a leaf.
func walkLeaves(e *jsonschema.ValidationError, visit func(leaf)) {
	var deepest deepestLeaf
	next := visit
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		next = deepest.add
	}
	for _, cause := range e.Causes {
		walkLeaves(cause, next)
	}
	switch {
	case len(deepest.errs) > 0:
		visit(deepest.leaf)
	case len(e.Causes) == 0:
		visitLeaf(e, visit)
	}
}

// visitLeaf calls visit for an error without causes, or for each member that it is about.
func visitLeaf(e *jsonschema.ValidationError, visit func(leaf)) {
	l := leaf{at: e.InstanceLocation, errs: []*jsonschema.ValidationError{e}}
	var members []string
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		members = k.Missing
	case *kind.AdditionalProperties:
		members = k.Properties
	default:
		visit(l)
		return
	}
	l.at = append(slices.Clip(l.at), "")
	for _, name := range members {
		l.at[len(l.at)-1] = name
		visit(l)
	}
}

// deepestLeaf is the leaf of some alternatives that is deepest in the value, of several the one with the first
// location. It has the violations of all at that location.
type deepestLeaf struct{ leaf }

func (d *deepestLeaf) add(l leaf) {
	c := 1
	if len(d.errs) > 0 {
		c = cmp.Or(cmp.Compare(len(l.at), len(d.at)), slices.Compare(d.at, l.at))
	}
	switch {
	case c > 0:
		d.at, d.errs = slices.Clone(l.at), slices.Clone(l.errs)
	case c == 0:
		for _, e := range l.errs {
			if !slices.ContainsFunc(d.errs, func(known *jsonschema.ValidationError) bool { return sameRule(known, e) }) {
				d.errs = append(d.errs, e)
			}
		}
	}
}
