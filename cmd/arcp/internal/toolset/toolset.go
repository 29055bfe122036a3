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
	Where   string // name for messages, such as "tools[2] (github)"
	Partial bool   // it has mistakes; members that could not be read are zero
	index   string // in the list

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

// Load reads the setting tools. The error has every mistake, with its position in the file. With an error the entries
// whose program or URL could be read are returned, so that the caller can look for more mistakes.
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
	all, read := make([]Entry, len(items)), []Entry(nil)
	for i, item := range items {
		e := &all[i]
		e.index = strconv.Itoa(i)
		err := e.parse(item, dir)
		list.Add(err, e.index)
		e.Partial = err != nil
		if e.hasProgram() {
			read = append(read, *e)
		}
	}
	list = append(list, checkDistinct(all)...)
	return read, v.Locate(list, "tools", func(index string) string {
		i, _ := strconv.Atoi(index) // it is an index of all
		return all[i].Where
	})
}

// hasProgram reports whether the program or the URL of the entry is known.
func (e *Entry) hasProgram() bool {
	switch {
	case e.Exec != nil:
		return len(e.Exec.Command) > 0
	case e.MCP != nil:
		return (len(e.MCP.Command) > 0) != (e.MCP.URL != "")
	}
	return e.Worker != nil && len(e.Worker.Command) > 0
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
	if m == nil {
		return errors.New("want a mapping: a mapping with exec and name, with mcp, or with worker")
	}
	list := settings.Mistakes{}
	list.Add(err)
	list.Add(e.parseKind(m, dir))
	return list.OrNil()
}

// parseKind reads the entry with the reader of its kind.
func (e *Entry) parseKind(m map[string]any, dir string) error {
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
	var list settings.Mistakes
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, key) {
			list.Add(unknown(key, known))
		}
	}
	if len(list) > 0 {
		return list
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
	var list settings.Mistakes
	list.Add(fields.read(m))
	list.Add(checkServer(m["mcp"], hasMistake(list, "mcp")))
	if !hasMistake(list, "prefix") && (s.Name != "" || s.Prefix != "") {
		list.Add(s.Filter.complete(s.Name))
	}
	if !hasMistake(list, "approval") {
		list.Add(tryTool(tool.Capability{Name: unnamed, Approval: s.Approval}))
	}
	return list.OrNil()
}

// checkServer returns an error for keys of mcp that exclude or need each other. partial reports that the mapping has
// mistakes, so that a missing key may be one of them.
func checkServer(v any, partial bool) error {
	m, _ := mapping(v) // a mistake in it is reported
	has := func(key string) bool { _, ok := m[key]; return ok }
	var list settings.Mistakes
	if both := has("command") && has("url"); both || !partial && !has("command") && !has("url") {
		list.Add(at("mcp", "want either command, of a program that is started, or url, of a server that runs"))
	}
	if has("headers_file") && !has("url") && (has("command") || !partial) {
		list.Add(at("mcp.headers_file", "only a url has headers: remove it"))
	}
	if has("url") && !has("command") && (has("env") || has("dir")) {
		list.Add(at("mcp", "only a command has env and dir: remove them"))
	}
	return list.OrNil()
}

func (e *Entry) parseWorker(m map[string]any, dir string) error {
	w := &Worker{Allow: []string{"*"}}
	e.Worker = w
	program := keys{"name": name(&w.Name), "command": argv(&w.Command, dir), "env": variables(&w.Env), "dir": directory(&w.Dir, dir)}
	var list settings.Mistakes
	if _, ok := m["prefix"]; ok {
		list.Add(at("prefix", "a worker names its tools itself: remove it"))
		delete(m, "prefix")
	}
	list.Add(keys{
		"worker": func(v any) error { return program.read(v, "name", "command") },
		"allow":  globs(&w.Allow),
	}.read(m))
	return list.OrNil()
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

// identity returns what no other entry has. It leaves out what could not be read.
func (e *Entry) identity() (list []string) {
	add := func(kind, value string) {
		if value != "" {
			list = append(list, kind+" "+value)
		}
	}
	switch {
	case e.MCP != nil:
		add("name", e.MCP.Name)
		add("prefix", e.MCP.Prefix)
	case e.Worker != nil:
		add("name", e.Worker.Name)
	case e.Exec != nil && e.Exec.Name != "" && e.Exec.Version != "":
		add("tool", e.Exec.Ref())
	}
	return list
}
