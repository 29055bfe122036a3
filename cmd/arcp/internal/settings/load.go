package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// Input holds the sources of values.
type Input struct {
	Flags    *pflag.FlagSet    // flags, defined by AddFlags
	Environ  []string          // environment in the form of os.Environ
	Defaults map[string]string // by name; they replace the defaults of Table
	Search   []string          // paths of the file, of which the first existing one is read; nil: SearchPath
}

// ConfigFlag is the flag with the path of the file; ConfigEnv is its variable.
const (
	ConfigFlag = "config"
	ConfigEnv  = EnvPrefix + "CONFIG"
)

// AddFlags adds a flag for each setting, and --config. The help shows defaults in place of those of Sections.
// Flags of Later settings and of other names are hidden. Each flag of a setting has SectionAnnotation.
func AddFlags(f *pflag.FlagSet, defaults map[string]string) {
	f.String(ConfigFlag, "", "configuration file; default ./arcp.yaml, the user's configuration directory, /etc/arcp/")
	for i := range Sections {
		for j := range Sections[i].Settings {
			if s := &Sections[i].Settings[j]; s.Kind != Block {
				s.addFlag(f, defaults)
				flag := f.Lookup(s.Name)
				flag.Hidden = s.Later || s.Alias != ""
				flag.Annotations = map[string][]string{SectionAnnotation: {Sections[i].Title}}
			}
		}
	}
	f.SortFlags = false
}

// SectionAnnotation is the annotation of a flag with the title of its section.
const SectionAnnotation = "section"

// addFlag adds the flag of a setting.
func (s *Setting) addFlag(f *pflag.FlagSet, defaults map[string]string) {
	def, ok := defaults[s.Name]
	if !ok {
		def = s.Default
	}
	switch s.Kind {
	case Switch:
		f.Bool(s.Name, def == "true", s.Help)
	case List:
		f.StringArray(s.Name, nil, s.Help)
	default:
		f.Var(&flagText{def, s.Kind}, s.Name, s.Help)
	}
}

// flagText is the value of a flag. Load parses it.
type flagText struct {
	text string
	kind Kind
}

func (f *flagText) String() string        { return f.text }
func (f *flagText) Set(text string) error { f.text = text; return nil }
func (f *flagText) Type() string          { return f.kind.String() }

// SearchPath lists the paths of the configuration file without --config, in the order of their precedence.
func SearchPath() []string {
	path := []string{"arcp.yaml"}
	if dir, err := os.UserConfigDir(); err == nil {
		path = append(path, filepath.Join(dir, "arcp", "arcp.yaml"))
	}
	return append(path, "/etc/arcp/arcp.yaml")
}

// layer holds the values of one source by the name of the setting.
type layer struct {
	name      Source
	values    map[string]any
	variables map[string]string // FromEnv: names of the variables
}

// Load reads all sources and parses the effective values. An error has every mistake: it is a Mistakes, and the Values
// then have the default of each setting with a mistake, so that the caller can look for more mistakes. The Values are
// nil only if the configuration file cannot be read.
func Load(in Input) (*Values, error) {
	doc, docErr := in.file()
	if docErr != nil && doc == nil {
		return nil, Join(docErr)
	}
	env, warnings, envErr := in.env()
	flags, err := in.flags()
	if err != nil {
		return nil, Join(err)
	}
	v := &Values{Warnings: warnings, doc: doc}
	failures := []error{docErr, envErr}
	var fromFile map[string]any
	if doc != nil {
		v.File, fromFile = doc.file, doc.values
		failures = append(failures, doc.unknownKeys()...)
	}
	layers := []layer{{name: FromFlag, values: flags}, env, {name: FromFile, values: fromFile}}
	for i := range Table {
		failures = append(failures, v.resolve(&Table[i], in.Defaults, layers))
	}
	return v, Join(failures...)
}

// resolve appends the entry of a setting. After an error it is the default.
func (v *Values) resolve(s *Setting, defaults map[string]string, layers []layer) error {
	var raw any = s.Default
	if def, ok := defaults[s.Name]; ok {
		raw = def
	}
	entry := Value{Setting: s, Source: FromDefault, raw: raw}
	standard := entry
	for _, l := range layers {
		if r, ok := l.values[s.Name]; ok {
			entry.raw, entry.Source, entry.variable = r, l.name, l.variables[s.Name]
			break
		}
	}
	value, err := s.parse(entry.raw)
	switch {
	case err != nil && entry.Source == FromFile:
		err = v.Mistake(Position{Path: []string{s.Name}}, err.Error())
	case err != nil:
		err = Mistake{Key: s.Name, Message: err.Error(), text: fmt.Sprintf("%s: %s", v.where(entry), err)}
	case s.Later && !s.hasNoEffect(value):
		v.entries = append(v.entries, entry) // for MistakeIn
		err = v.MistakeIn(s.Name, fmt.Errorf("%s is not supported by this version", v.originText(entry)))
		v.entries = v.entries[:len(v.entries)-1]
	}
	if err != nil {
		entry = standard
		value, _ = s.parse(entry.raw) // a default is valid
	}
	entry.value = value
	v.entries = append(v.entries, entry)
	return err
}

// hasNoEffect reports whether the value of a Later setting is in Accept.
func (s *Setting) hasNoEffect(value any) bool {
	return slices.ContainsFunc(s.Accept, func(text string) bool {
		v, err := s.parse(text)
		return err == nil && v == value
	})
}

func (in Input) flags() (map[string]any, error) {
	k := koanf.New(".")
	if in.Flags == nil {
		return nil, nil
	}
	changed := func(f *pflag.Flag) (string, any) {
		if !f.Changed || Lookup(f.Name) == nil {
			return "", nil
		}
		if text, ok := f.Value.(*flagText); ok {
			return f.Name, text.text
		}
		return f.Name, posflag.FlagVal(in.Flags, f)
	}
	err := k.Load(posflag.ProviderWithFlag(in.Flags, ".", k, changed), nil)
	return k.All(), err
}

// env reads the variables of the settings. A likely typo of a variable is an error. Any other unknown ARCP_
// variable is only a warning, because other programs and platforms share the environment.
func (in Input) env() (layer, []string, error) {
	k := koanf.New(".")
	variables := make(map[string]string)
	var warnings []string
	var failures []error
	read := func(name, text string) (string, any) {
		if s := byEnv(name, text); s != nil && s.Kind != Block {
			if name == s.OldVariable && variables[s.Name] != "" {
				return "", nil
			}
			variables[s.Name] = name
			if s.Kind == List {
				return s.Name, splitList(text)
			}
			return s.Name, text
		}
		if isOtherVariable(name) {
			return "", nil
		}
		key := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, EnvPrefix), "_", "-"))
		if near, distance := nearest(key); distance <= maxTypos(key) {
			failures = append(failures, fmt.Errorf("environment variable %s is not known; did you mean %s?", name, Lookup(near).Env()))
			return "", nil
		}
		warnings = append(warnings, fmt.Sprintf("environment variable %s is not known and has no effect", name))
		return "", nil
	}
	opt := env.Opt{Prefix: EnvPrefix, TransformFunc: read, EnvironFunc: in.newFirst}
	if err := k.Load(env.Provider(".", opt), nil); err != nil {
		return layer{}, nil, err
	}
	return layer{FromEnv, k.All(), variables}, warnings, Join(failures...)
}

// newFirst returns the environment with the former names of variables behind the others.
func (in Input) newFirst() []string {
	list := slices.Clone(in.Environ)
	isOld := func(kv string) int {
		name, _, _ := strings.Cut(kv, "=")
		if slices.ContainsFunc(Table, func(s Setting) bool { return s.OldVariable == name }) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(isOld(a), isOld(b)) })
	return list
}

func splitList(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// isOtherVariable reports whether an ARCP_ variable belongs to the client commands, to programs that a server starts, or to
// Kubernetes, which sets variables for a service named arcp.
func isOtherVariable(name string) bool {
	switch name {
	case ConfigEnv, EnvPrefix + "URL", EnvPrefix + "TOKEN", EnvPrefix + "CONTEXT", EnvPrefix + "DIALECT", EnvPrefix + "CA_FILE", EnvPrefix + "PORT", EnvPrefix + "DEPTH", EnvPrefix + "KEEPER", EnvPrefix + "JOB_ID":
		return true
	}
	return strings.HasPrefix(name, EnvPrefix+"SERVICE_") || strings.HasPrefix(name, EnvPrefix+"PORT_")
}

// file returns the configuration file; nil if no file exists.
func (in Input) file() (*document, error) {
	path, err := in.find()
	if err != nil || path == "" {
		return nil, err
	}
	return readDocument(path)
}

// unknownKeys returns a mistake for each key of the file that is not a setting, and for each mapping where a setting
// has a value or a list.
func (d *document) unknownKeys() (list []error) {
	for _, key := range slices.Sorted(maps.Keys(d.values)) {
		below, nested := d.values[key].(map[string]any)
		s := Lookup(key)
		switch {
		case s == nil && nested && len(below) > 0:
			for _, sub := range slices.Sorted(maps.Keys(below)) {
				list = append(list, d.topMistake([]string{key, sub}, true, unknownText(key+"."+sub)))
			}
		case s == nil:
			list = append(list, d.topMistake([]string{key}, true, unknownText(key)))
		case nested && s.Kind == Block:
			list = append(list, d.mistake(Position{Path: []string{key}}, blockText(below)))
			delete(d.values, key)
		case nested:
			for _, sub := range slices.Sorted(maps.Keys(below))[:min(1, len(below))] {
				list = append(list, d.mistake(Position{Path: []string{key}}, fmt.Sprintf("want a value, and not %q below it", sub)))
				delete(d.values, key)
			}
		}
	}
	return list
}

// topMistake returns a mistake whose message names the key.
func (d *document) topMistake(path []string, onKey bool, message string) Mistake {
	m := d.mistake(Position{Path: path, OnKey: onKey}, message)
	m.text = m.position() + ": " + message
	return m
}

// blockText returns the message for a mapping in place of a list of mappings.
func blockText(below map[string]any) string {
	if len(below) == 0 {
		return "want a list: begin each item with a dash"
	}
	key := slices.Min(slices.Collect(maps.Keys(below)))
	item := key + ": …"
	if _, ok := below[key].(map[string]any); ok {
		item = "name: " + key
	}
	return fmt.Sprintf("want a list, and not %q in it directly: begin each item with a dash: - %s", key, item)
}

// unknownText returns the message for a key that is not a setting. A dot in key separates two levels of the file.
func unknownText(key string) string {
	top, below, nested := strings.Cut(key, ".")
	if nested && Lookup(below) != nil {
		return fmt.Sprintf("unknown key %q; did you mean %q, not below %q?", key, below, top)
	}
	if near, distance := nearest(key); distance <= maxTypos(key) {
		return fmt.Sprintf("unknown key %q; did you mean %q?", key, near)
	}
	return fmt.Sprintf("unknown key %q; `arcp config print` lists them", key)
}

func (in Input) find() (string, error) {
	if named := in.named(); named != "" {
		_, err := os.Stat(named)
		if err != nil {
			remedy := "give the path of another file"
			if errors.Is(err, fs.ErrNotExist) {
				remedy += ", or write it with `arcp config init " + named + "`"
			}
			return "", fmt.Errorf("configuration file %s: %s; %s", named, cause(err), remedy)
		}
		return named, nil
	}
	search := in.Search
	if search == nil {
		search = SearchPath()
	}
	for _, path := range search {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("configuration file %s: %s", path, cause(err))
		}
	}
	return "", nil
}

func (in Input) named() string {
	if in.Flags != nil {
		if f := in.Flags.Lookup(ConfigFlag); f != nil && f.Changed {
			return f.Value.String()
		}
	}
	for _, kv := range in.Environ {
		if path, ok := strings.CutPrefix(kv, ConfigEnv+"="); ok {
			return path
		}
	}
	return ""
}

// cause returns the error in a path error, without the path.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(cause(err).Error()), " ")
}
