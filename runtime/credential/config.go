package credential

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The kinds of provisioners.
const (
	KindStatic = "static"
	KindHTTP   = "http"
	KindExec   = "exec"
)

// maxSources bounds the provisioners: each has a goroutine.
const maxSources = 64

// Config is one entry of provisioners in the configuration file.
type Config struct {
	Name      string   `yaml:"name"`
	Kind      string   `yaml:"kind"`       // static, http or exec
	For       []string `yaml:"for"`        // patterns of tool names
	File      string   `yaml:"file"`       // static: the values, one a line
	URL       string   `yaml:"url"`        // http: where virtual keys are made
	TokenFile string   `yaml:"token_file"` // http: the bearer token to make them with
	Command   []string `yaml:"command"`    // exec: the program and its arguments
	Endpoint  string   `yaml:"endpoint"`   // of the credentials; static needs it
	Profile   string   `yaml:"profile"`    // of the credentials
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

const nameHelp = "want a name of at most 64 lower-case letters, digits, dots, dashes and underscores, which does not change: credentials are kept under it"

func validName(s string) bool { return namePattern.MatchString(s) }

// configError is a mistake in the value of a key. An empty key is the entry.
type configError struct {
	key, text string
	missing   bool // the entry does not have the key
}

// Error returns the key, which a dot precedes, and the text.
func (e configError) Error() string {
	if e.key == "" {
		return ": " + e.text
	}
	return "." + e.key + ": " + e.text
}

// ParseConfigs reads the decoded YAML value of provisioners: a list of mappings, with dashes
// or underscores in the keys. An unknown key is an error, which names its path and the remedy.
// The error joins every mistake. No error repeats a value.
func ParseConfigs(raw any) ([]Config, error) {
	if raw == nil || raw == "" {
		return nil, nil
	}
	items, ok := raw.([]any)
	if !ok {
		return nil, errors.New("provisioners: want a list of mappings: - name: …")
	}
	if len(items) > maxSources {
		return nil, tooMany(len(items))
	}
	list := make([]Config, len(items))
	var all []error
	first := make(map[string]int)
	for i, item := range items {
		c := &list[i]
		found := c.parse(item)
		if _, ok := item.(map[string]any); ok {
			found = append(found, c.mistakesBeside(found)...)
			if k, ok := first[c.Name]; ok && c.Name != "" {
				found = append(found, takenName(k))
			} else {
				first[c.Name] = i
			}
		}
		for _, err := range found {
			all = append(all, fmt.Errorf("provisioners[%d]%w", i, err))
		}
	}
	if len(all) > 0 {
		return nil, errors.Join(all...)
	}
	return list, nil
}

func tooMany(n int) error {
	return fmt.Errorf("provisioners: %d of them: at most %d are supported", n, maxSources)
}

// takenName is the mistake of an entry with the name of entry k.
func takenName(k int) configError {
	return configError{key: "name", text: fmt.Sprintf("provisioners[%d] has it already: choose another", k)}
}

// mistakesBeside returns the mistakes in the values that parse could read. found are the mistakes of parse. A key that
// is missing may be an unknown one.
func (c *Config) mistakesBeside(found []configError) []configError {
	unknown := slices.ContainsFunc(found, func(e configError) bool { return e.key == "" })
	return slices.DeleteFunc(c.mistakes(), func(m configError) bool {
		return m.missing && unknown || slices.ContainsFunc(found, func(e configError) bool { return e.key != "" && strings.ReplaceAll(e.key, "-", "_") == m.key })
	})
}

func (c *Config) parse(item any) (found []configError) {
	m, ok := item.(map[string]any)
	if !ok {
		return []configError{{text: "want a mapping with name, kind and for"}}
	}
	texts := map[string]*string{"name": &c.Name, "kind": &c.Kind, "file": &c.File, "url": &c.URL, "token_file": &c.TokenFile,
		"endpoint": &c.Endpoint, "profile": &c.Profile}
	lists := map[string]*[]string{"for": &c.For, "command": &c.Command}
	seen := make(map[string]bool)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		name := strings.ReplaceAll(key, "-", "_")
		if seen[name] {
			found = append(found, configError{key: key, text: "it is there twice: remove one"})
			continue
		}
		seen[name] = true
		ok, want := false, "want a text: put it in quotes"
		if dst := texts[name]; dst != nil {
			*dst, ok = m[key].(string)
		} else if dst := lists[name]; dst != nil {
			*dst, ok = stringList(m[key])
			want = "want a list of texts: [...]"
		} else {
			known := slices.Sorted(maps.Keys(texts))
			known = slices.Sorted(slices.Values(slices.AppendSeq(known, maps.Keys(lists))))
			found = append(found, configError{text: fmt.Sprintf("unknown key %.40q: want one of %s", key, strings.Join(known, ", "))})
			continue
		}
		if !ok {
			found = append(found, configError{key: key, text: want})
		}
	}
	return found
}

func stringList(v any) ([]string, bool) {
	items, ok := v.([]any)
	list := make([]string, len(items))
	for i, item := range items {
		s, isText := item.(string)
		list[i], ok = s, ok && isText
	}
	return list, ok
}

// ValidateConfigs checks a list of provisioners.
func ValidateConfigs(list []Config) error {
	if len(list) > maxSources {
		return tooMany(len(list))
	}
	first := make(map[string]int)
	for i := range list {
		c := &list[i]
		if err := c.Validate(); err != nil {
			return fmt.Errorf("provisioners[%d]%w", i, err)
		}
		if k, ok := first[c.Name]; ok {
			return fmt.Errorf("provisioners[%d]%w", i, takenName(k))
		}
		first[c.Name] = i
	}
	return nil
}

// Validate returns the first mistake, which begins with the invalid key and ends with the remedy.
func (c *Config) Validate() error {
	if found := c.mistakes(); len(found) > 0 {
		return found[0]
	}
	return nil
}

// mistakes returns every mistake in the values.
func (c *Config) mistakes() (found []configError) {
	add := func(missing bool, key, text string) { found = append(found, configError{key, text, missing}) }
	if !validName(c.Name) {
		add(c.Name == "", "name", nameHelp)
	}
	if len(c.For) == 0 {
		add(true, "for", `name the tools whose jobs get credentials; ["*"] is all of them`)
	}
	for _, p := range c.For {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			add(false, "for", `a pattern is empty or has a bracket without its end: close it or put a \ before it`)
			break
		}
	}
	own, ok := map[string][]string{KindStatic: {"file"}, KindHTTP: {"url", "token_file"}, KindExec: {"command"}}[c.Kind]
	if !ok {
		add(c.Kind == "", "kind", "want static, http or exec")
		return append(found, c.mistakesOfValues()...)
	}
	set := map[string]bool{"file": c.File != "", "url": c.URL != "", "token_file": c.TokenFile != "", "command": len(c.Command) > 0}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		switch mine := slices.Contains(own, key); {
		case mine && !set[key]:
			add(true, key, fmt.Sprintf("kind %s needs it: fill it in", c.Kind))
		case !mine && set[key]:
			add(false, key, fmt.Sprintf("kind %s has no use for it: remove it", c.Kind))
		}
	}
	if c.Kind == KindStatic && c.Endpoint == "" {
		add(true, "endpoint", "kind static needs it: say where the credentials are good")
	}
	useless := func(e configError) bool { return !slices.Contains(own, e.key) }
	return append(found, slices.DeleteFunc(c.mistakesOfValues(), useless)...)
}

// mistakesOfValues returns the mistakes in command and url, whatever the kind.
func (c *Config) mistakesOfValues() (found []configError) {
	if len(c.Command) > 0 && !filepath.IsAbs(c.Command[0]) {
		found = append(found, configError{key: "command", text: "the program needs its absolute path: the search path is not used"})
	}
	if c.URL != "" {
		if _, err := gatewayURL(c.URL); err != nil {
			found = append(found, configError{key: "url", text: err.Error()})
		}
	}
	return found
}

// gatewayURL accepts https, and http to this host.
func gatewayURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return nil, errors.New("want a URL: https://host/path")
	case u.User != nil:
		return nil, errors.New("a password does not belong into it: put the token into a file and name that as token_file")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, errors.New("a query or fragment is not supported: remove it")
	case u.Scheme == "http" && !loopbackHost(u.Hostname()):
		return nil, errors.New("http is for this host only: use https")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("want https, or http to this host")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	return u, nil
}

func loopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Open makes the provisioner of a valid entry. Its files have to be there.
func (c *Config) Open() (Source, error) {
	if err := c.Validate(); err != nil {
		return Source{}, fmt.Errorf("provisioner%w", err)
	}
	var p Provisioner
	var err error
	switch c.Kind {
	case KindStatic:
		p, err = OpenStaticPool(c.File, c.Endpoint, c.Profile)
	case KindHTTP:
		p, err = OpenGateway(c.URL, c.TokenFile, c.Endpoint, c.Profile)
	default:
		p = NewCommand(c.Command, c.Endpoint, c.Profile)
	}
	if err != nil {
		return Source{}, fmt.Errorf("provisioner %s: %w", c.Name, err)
	}
	return Source{Name: c.Name, For: c.For, Provisioner: p}, nil
}
