package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/yamlsyntax"
)

// ReadMapping reads a mapping file in YAML. env returns the value of an environment variable. The
// error has a line for each mistake, with its position.
func ReadMapping(file string, env func(string) string) (*Mapping, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("mapping file: %w", err)
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("mapping file %s: %w", file, err)
	}
	r := &mappingReader{file: file, env: env, m: &Mapping{Dir: dir}}
	var top yaml.Node
	if err := yaml.Unmarshal(content, &top); err != nil {
		line, text := yamlsyntax.Mistake(content, err)
		return nil, fmt.Errorf("%s:%d:1: %s", file, line, text)
	}
	if len(top.Content) > 0 {
		r.document(top.Content[0])
	}
	return r.m, errors.Join(r.mistakes...)
}

// mappingReader reads a mapping file and collects the mistakes.
type mappingReader struct {
	file     string
	env      func(string) string
	m        *Mapping
	mistakes []error
}

func (r *mappingReader) mistake(n *yaml.Node, key, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if key != "" {
		message = key + ": " + message
	}
	r.mistakes = append(r.mistakes, fmt.Errorf("%s:%d:%d: %s", r.file, n.Line, n.Column, message))
}

// readNode reads the value of a key.
type readNode func(n *yaml.Node, key string)

// document reads the whole file.
func (r *mappingReader) document(n *yaml.Node) {
	m := r.m
	r.object(n, "", map[string]readNode{
		"tools":          r.tools,
		"known":          r.list(r.known),
		"url":            r.url,
		"principal":      r.text(&m.Principal),
		"token":          r.secret(&m.Token),
		"other_token":    r.secret(&m.OtherToken),
		"observer_token": r.secret(&m.ObserverToken),
		"start":          r.command(&m.Start),
		"restart":        r.restart,
		"frame_limit":    r.number(func(n int) { m.FrameLimit = int64(n) }),
		"ack_window":     r.number(func(n int) { m.AckWindow = n }),
	})
	if m.Rerun && m.Start == nil {
		r.mistake(n, "restart", "there is no command to start again: give `start` too")
	}
}

// object reads a mapping with known keys.
func (r *mappingReader) object(n *yaml.Node, key string, members map[string]readNode) {
	r.pairs(n, key, func(k, value *yaml.Node) {
		read := members[k.Value]
		if read == nil {
			r.mistake(k, key, "unknown key %q: %s", k.Value, suggest(k.Value, slices.Sorted(maps.Keys(members))))
			return
		}
		read(value, joinKeys(key, k.Value))
	})
}

// pairs visits the keys and values of a mapping.
func (r *mappingReader) pairs(n *yaml.Node, key string, visit func(k, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.mistake(n, key, "want a mapping of keys to values")
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if first := lines[k.Value]; first != 0 {
			r.mistake(k, key, "key %q is also in line %d: remove one of them", k.Value, first)
			continue
		}
		lines[k.Value] = k.Line
		visit(k, n.Content[i+1])
	}
}

func joinKeys(key, member string) string {
	if key == "" {
		return member
	}
	return key + "." + member
}

// suggest names the nearest word, or all words.
func suggest(word string, words []string) string {
	best := slices.MinFunc(words, func(a, b string) int {
		return cmp.Compare(levenshtein.ComputeDistance(word, a), levenshtein.ComputeDistance(word, b))
	})
	if levenshtein.ComputeDistance(word, best) <= max(2, len(word)/3) {
		return fmt.Sprintf("did you mean %q?", best)
	}
	const most = 20
	if len(words) > most {
		return "give one that `arcp conformance list` shows"
	}
	return "give one of " + strings.Join(words, ", ")
}

// scalar returns a non-empty text or number.
func (r *mappingReader) scalar(n *yaml.Node, key string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || n.Value == "" {
		r.mistake(n, key, "want a text")
		return "", false
	}
	return n.Value, true
}

func (r *mappingReader) text(dst *string) readNode {
	return func(n *yaml.Node, key string) { *dst, _ = r.scalar(n, key) }
}

func (r *mappingReader) number(set func(int)) readNode {
	return func(n *yaml.Node, key string) {
		v, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || v <= 0 {
			r.mistake(n, key, "want a number above 0; leave the key out if the value is not known")
			return
		}
		set(v)
	}
}

// list reads the items of a list.
func (r *mappingReader) list(item readNode) readNode {
	return func(n *yaml.Node, key string) {
		if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
			r.mistake(n, key, "want a list that is not empty")
			return
		}
		for i, e := range n.Content {
			item(e, fmt.Sprintf("%s[%d]", key, i))
		}
	}
}

// command reads a program and its arguments.
func (r *mappingReader) command(dst *[]string) readNode {
	word := func(n *yaml.Node, key string) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
			r.mistake(n, key, "want a text")
			return
		}
		*dst = append(*dst, n.Value)
	}
	return func(n *yaml.Node, key string) {
		if n.Kind == yaml.ScalarNode {
			r.mistake(n, key, "want a list with the program and its arguments, as in [their-server, --port, \"7777\"]")
			return
		}
		r.list(word)(n, key)
		if len(*dst) > 0 && (*dst)[0] == "" {
			r.mistake(n, key, "the program has no name")
		}
	}
}

// restart reads a command, or the word start.
func (r *mappingReader) restart(n *yaml.Node, key string) {
	if n.Kind == yaml.ScalarNode && n.Value == "start" {
		r.m.Rerun = true
		return
	}
	if n.Kind == yaml.ScalarNode {
		r.mistake(n, key, "want a list with the program and its arguments, or the word start, which runs `start` again")
		return
	}
	r.command(&r.m.Restart)(n, key)
}

func (r *mappingReader) url(n *yaml.Node, key string) {
	text, ok := r.scalar(n, key)
	u, err := url.Parse(text)
	switch {
	case !ok:
	case err == nil && (u.Scheme == "ws" || u.Scheme == "wss") && u.Host != "", err == nil && u.Scheme == "unix" && u.Path != "":
		r.m.URL = text
	default:
		r.mistake(n, key, "%q is no ws://, wss:// or unix:// URL", text)
	}
}

// secret reads a token from a variable or from a file: {env: NAME} or {file: PATH}.
func (r *mappingReader) secret(dst *string) readNode {
	return func(n *yaml.Node, key string) {
		if n.Kind != yaml.MappingNode {
			r.mistake(n, key, "want {env: NAME} or {file: PATH}: a token is not written into this file")
			return
		}
		var name, path string
		before := len(r.mistakes)
		r.object(n, key, map[string]readNode{"env": r.text(&name), "file": r.text(&path)})
		switch {
		case len(r.mistakes) > before:
		case (name == "") == (path == ""):
			r.mistake(n, key, "want one of {env: NAME} and {file: PATH}")
		case name != "":
			if *dst = r.env(name); *dst == "" {
				r.mistake(n, key, "the environment variable %s is not set", name)
			}
		default:
			r.secretFile(n, key, path, dst)
		}
	}
}

func (r *mappingReader) secretFile(n *yaml.Node, key, path string, dst *string) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.m.Dir, path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		r.mistake(n, key, "%v", err)
		return
	}
	if *dst = strings.TrimSpace(string(content)); *dst == "" {
		r.mistake(n, key, "%s is empty", path)
	}
}

// toolReference is the form of the name of a tool, with or without a version.
var toolReference = regexp.MustCompile(`^[^@\s]+(@[^@\s]+)?$`)

func (r *mappingReader) tools(n *yaml.Node, key string) {
	r.m.Tools = map[string]string{}
	known := mappableTools()
	mapped := map[string]string{} // name in the checks, by name on the server
	r.pairs(n, key, func(k, value *yaml.Node) {
		theirs, ok := r.scalar(value, joinKeys(key, k.Value))
		base, _, _ := strings.Cut(k.Value, "@")
		switch {
		case !ok:
		case !slices.Contains(known, base):
			r.mistake(k, key, "no check calls a tool %q: %s", base, suggest(base, known))
		case !toolReference.MatchString(theirs):
			r.mistake(value, joinKeys(key, k.Value), "%q is no name of a tool", theirs)
		case strings.Contains(k.Value, "@") != strings.Contains(theirs, "@"):
			r.mistake(value, joinKeys(key, k.Value), "give both names a version, or none")
		case mapped[theirs] != "":
			r.mistake(value, joinKeys(key, k.Value), "%s is also named for %s: an answer could not be told apart", theirs, mapped[theirs])
		default:
			r.m.Tools[k.Value], mapped[theirs] = theirs, k.Value
		}
	})
}

// mappableTools returns the names of the tools that checks need, sorted.
func mappableTools() []string {
	var names []string
	for _, c := range slices.Concat(Checks(arcp.DialectRFC), Checks(arcp.DialectDraft)) {
		for _, need := range c.Needs {
			if name, ok := strings.CutPrefix(need, toolPrefix); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (r *mappingReader) known(n *yaml.Node, key string) {
	var d Deviation
	before := len(r.mistakes)
	r.object(n, key, map[string]readNode{"check": r.text(&d.Check), "reason": r.text(&d.Reason)})
	if len(r.mistakes) > before {
		return
	}
	var ids []string
	for _, c := range slices.Concat(Checks(arcp.DialectRFC), Checks(arcp.DialectDraft)) {
		ids = append(ids, c.ID)
	}
	same := func(other Deviation) bool { return other.Check == d.Check }
	switch {
	case d.Check == "" || d.Reason == "":
		r.mistake(n, key, "want {check: ID, reason: TEXT}")
	case !slices.Contains(ids, d.Check):
		r.mistake(n, key, "there is no check %q: %s", d.Check, suggest(d.Check, ids))
	case slices.ContainsFunc(r.m.Known, same):
		r.mistake(n, key, "%s is in the list twice", d.Check)
	default:
		r.m.Known = append(r.m.Known, d)
	}
}
