// Package toolset reads the setting tools: the commands, MCP servers and workers of a runtime. It
// checks their configuration without starting them. An error contains the entry and the remedy.
package toolset

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/exec"
)

// maxEntries bounds the entries, each of which may have a process or a connection.
const maxEntries = 1024

// Entry is an entry of the setting tools. Exactly one of Exec, MCP and Worker is set.
type Entry struct {
	Where string // name for messages, such as "tools[2] (github)"
	index string // in the list

	Exec   *exec.Config
	MCP    *MCP
	Worker *Worker
}

// MCP is a server of the Model Context Protocol. Either Command or URL is set.
type MCP struct {
	Name        string
	Command     []string // the program and its arguments
	Env         []string // for Command: names of inherited variables, besides PATH and HOME
	Dir         string   // for Command: working directory, an absolute path; "": the directory of this process
	URL         string   // http or https, without a password
	HeadersFile string   // for URL: absolute path of a file with lines "Name: value"
	Filter

	SideEffect tool.SideEffect // of all tools; "": from the hints of the server
	Approval   tool.Approval   // of all tools; zero: ApprovalManual for tools without readOnlyHint
	Limits     tool.Limits     // of each tool
}

// Worker is a program that speaks ARCP as a worker on its standard streams.
type Worker struct {
	Name    string
	Command []string // the program and its arguments
	Env     []string // names of inherited variables, besides PATH
	Dir     string   // working directory, an absolute path; "": the directory of this process
	Allow   []string // patterns of path.Match for the names of tools; not empty
}

// Filter selects the tools of a source and prefixes their names.
type Filter struct {
	Prefix string   // of the published names
	Allow  []string // patterns of path.Match for the names in the source; not empty
}

// Allows reports whether Allow matches the name of a tool in the source.
func (f *Filter) Allows(name string) bool {
	return slices.ContainsFunc(f.Allow, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // the patterns are valid
		return ok
	})
}

// Load reads the setting tools. The error has every mistake, with its position in the file. The entries without a
// mistake are returned also with an error.
func Load(v *settings.Values) ([]Entry, error) {
	items, err := listOf(v, "tools", "- name: …")
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Dir(v.File))
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	var list settings.Mistakes
	all, valid := make([]Entry, len(items)), []Entry(nil)
	for i, item := range items {
		e := &all[i]
		e.index = strconv.Itoa(i)
		found := len(list)
		list.Add(e.parse(item, dir), e.index)
		if len(list) == found {
			valid = append(valid, *e)
		}
	}
	list = append(list, checkDistinct(valid)...)
	return valid, v.Locate(list, "tools", func(index string) string {
		i, _ := strconv.Atoi(index) // it is an index of all
		return all[i].Where
	})
}

// listOf returns the items of a setting with a list of mappings.
func listOf(v *settings.Values, setting, example string) ([]any, error) {
	raw := v.Block(setting)
	if raw == nil || raw == "" {
		return nil, nil
	}
	items, ok := raw.([]any)
	place := settings.Position{Path: []string{setting}}
	switch {
	case !ok:
		return nil, settings.Join(v.Mistake(place, "want a list of mappings: "+example))
	case len(items) > maxEntries:
		return nil, settings.Join(v.Mistake(place, fmt.Sprintf("%d entries: at most %d are supported", len(items), maxEntries)))
	}
	return items, nil
}

// Mistake returns err as a mistake in a key of the entry. An empty key is the entry itself.
func (e *Entry) Mistake(v *settings.Values, key string, err error) settings.Mistake {
	place := settings.Position{Path: []string{"tools", e.index}, Name: e.Where}
	if key != "" {
		place.Path, place.Name = append(place.Path, strings.Split(key, ".")...), e.Where+"."+key
	}
	return v.Mistake(place, strings.Join(strings.Fields(err.Error()), " "))
}

// parse reads the entry at e.index. It sets Where also if it returns an error.
func (e *Entry) parse(item any, dir string) error {
	e.Where = fmt.Sprintf("tools[%s]", e.index)
	m, err := mapping(item)
	if _, ok := item.(map[string]any); !ok {
		return errors.New("want a mapping: a mapping with exec and name, with mcp, or with worker")
	}
	if err != nil {
		e.name(nameIn(item))
		return err
	}
	if _, ok := m["arcp"]; ok {
		return at("arcp", "the key is worker: rename it. The program is a worker now, which opens the session and registers its tools (docs/workers.md)")
	}
	kinds := slices.DeleteFunc([]string{"exec", "mcp", "worker"}, func(k string) bool { _, ok := m[k]; return !ok })
	if len(kinds) != 1 {
		return kindError(m, kinds)
	}
	switch kinds[0] {
	case "exec":
		e.name(m["name"])
		return e.parseExec(m, dir)
	case "mcp":
		e.name(nameIn(m["mcp"]))
		return e.parseMCP(m, dir)
	}
	e.name(nameIn(m["worker"]))
	return e.parseWorker(m, dir)
}

// name adds the name of the entry to Where, if it has one.
func (e *Entry) name(v any) {
	if name, ok := v.(string); ok && name != "" {
		e.Where += fmt.Sprintf(" (%.64s)", name)
	}
}

func nameIn(v any) any {
	m, _ := v.(map[string]any)
	return m["name"]
}

// kindError returns the error for an entry without a kind or with several kinds.
func kindError(m map[string]any, kinds []string) error {
	if len(kinds) > 1 {
		return fmt.Errorf("it has %s: make an entry of each", strings.Join(kinds, " and "))
	}
	known := append(slices.Clone(execKeys), "mcp", "worker", "prefix", "allow")
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, key) {
			return settings.MistakeAt(settings.Position{Path: []string{key}, OnKey: true}, unknown(key, known))
		}
	}
	return errors.New("want one of exec (a command), mcp (a server of the Model Context Protocol) and worker (a program that speaks ARCP)")
}

func (e *Entry) parseMCP(m map[string]any, dir string) error {
	s := &MCP{}
	e.MCP = s
	server := keys{"name": name(&s.Name), "command": argv(&s.Command, dir), "env": variables(&s.Env), "dir": directory(&s.Dir, dir),
		"url": serverURL(&s.URL), "headers_file": file(&s.HeadersFile, dir)}
	fields := s.Filter.keys()
	fields["mcp"] = func(v any) error { return server.read(v, "name") }
	fields["side_effect"] = oneOf(&s.SideEffect, tool.SideEffects)
	fields["approval"] = approval(&s.Approval)
	fields["limits"] = func(v any) error { return callLimits(v, &s.Limits) }
	if err := fields.read(m); err != nil {
		return err
	}
	switch {
	case (s.Command == nil) == (s.URL == ""):
		return at("mcp", "want either command, of a program that is started, or url, of a server that runs")
	case s.HeadersFile != "" && s.URL == "":
		return at("mcp.headers_file", "only a url has headers: remove it")
	case s.URL != "" && (s.Env != nil || s.Dir != ""):
		return at("mcp", "only a command has env and dir: remove them")
	}
	return s.Filter.complete(s.Name)
}

func (e *Entry) parseWorker(m map[string]any, dir string) error {
	w := &Worker{Allow: []string{"*"}}
	e.Worker = w
	program := keys{"name": name(&w.Name), "command": argv(&w.Command, dir), "env": variables(&w.Env), "dir": directory(&w.Dir, dir)}
	if _, ok := m["prefix"]; ok {
		return at("prefix", "a worker names its tools itself: remove it")
	}
	return keys{
		"worker": func(v any) error { return program.read(v, "name", "command") },
		"allow":  globs(&w.Allow),
	}.read(m)
}

func (f *Filter) keys() keys {
	return keys{"prefix": text(&f.Prefix), "allow": globs(&f.Allow)}
}

// complete sets the defaults and checks the prefix.
func (f *Filter) complete(name string) error {
	if f.Prefix == "" {
		f.Prefix = name + "."
	}
	if f.Allow == nil {
		f.Allow = []string{"*"}
	}
	if _, err := arcp.ParseAgentRef(f.Prefix + "x"); err != nil || strings.Contains(f.Prefix, "@") {
		return at("prefix", "%.40q: want lower-case letters, digits, dots, dashes and underscores, as in \"github.\"", f.Prefix)
	}
	for _, reserved := range tool.Reserved {
		if strings.HasPrefix(f.Prefix, reserved) {
			return at("prefix", "names that begin with %q are the runtime's own: choose another", reserved)
		}
	}
	return nil
}

// serverURL reads a URL. It refuses a password, which `arcp config print` would show.
func serverURL(dst *string) func(any) error {
	return func(v any) error {
		if err := text(dst)(v); err != nil {
			return err
		}
		u, err := url.Parse(*dst)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			return errors.New("want a URL: https://host/path")
		case u.User != nil:
			return errors.New("a password does not belong into it: put it into headers_file")
		case u.RawQuery != "" || u.Fragment != "":
			return errors.New("a query or fragment is not supported: put what is secret into headers_file")
		}
		return nil
	}
}

// checkDistinct returns a mistake for each entry with the name, prefix or tool of an earlier one.
func checkDistinct(entries []Entry) (list settings.Mistakes) {
	first := make(map[string]string)
	for i := range entries {
		e := &entries[i]
		for _, id := range e.identity() {
			if other, ok := first[id]; ok {
				list = append(list, settings.MistakeAt(settings.Position{Path: []string{e.index}}, fmt.Sprintf("%s has the same %s: choose another", other, id)))
				break
			}
			first[id] = e.Where
		}
	}
	return list
}

func (e *Entry) identity() []string {
	switch {
	case e.MCP != nil:
		return []string{"name " + e.MCP.Name, "prefix " + e.MCP.Prefix}
	case e.Worker != nil:
		return []string{"name " + e.Worker.Name}
	}
	return []string{"tool " + e.Exec.Ref()}
}
