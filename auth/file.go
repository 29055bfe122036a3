package auth

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/arcpd/arcpd/arcp"
)

const maxFile = 16 << 20 // bytes of an auth file: some 50,000 principals

// DefaultRuntimeID is the default of Options.RuntimeID.
const DefaultRuntimeID = "arcp"

// Options of Load.
type Options struct {
	// RuntimeID is the audience of an issuer that sets none; "": DefaultRuntimeID.
	RuntimeID string
	// CheckLease validates the lease of a principal; nil: leases are not validated.
	CheckLease func(lease []byte) error
}

// Load reads an auth file in YAML and the key files that it names, relative to the directory of the
// auth file. An unknown key or value is an error with the line, the path and the remedy (SPEC.md
// §5.12).
func Load(name string, opts Options) (*Config, error) {
	data, err := readFile(name, maxFile)
	if err != nil {
		return nil, fmt.Errorf("auth file %s: %w", name, err)
	}
	c, err := parseFile(data, filepath.Dir(name), opts)
	if err != nil {
		return nil, fmt.Errorf("auth file %s: %w", name, err)
	}
	return c, nil
}

func parseFile(data []byte, dir string, opts Options) (*Config, error) {
	root, err := parseYAML(data)
	switch {
	case err != nil:
		return nil, err
	case root == nil:
		return new(Config), nil
	}
	if opts.RuntimeID == "" {
		opts.RuntimeID = DefaultRuntimeID
	}
	f := &file{cfg: new(Config), dir: dir, opts: opts}
	if err := f.read(root); err != nil {
		return nil, err
	}
	return f.cfg, nil
}

// parseYAML returns nil for a file without a value. It refuses aliases, with which a small file can expand
// without bound.
func parseYAML(data []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, rest yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, syntaxError(err)
	}
	if err := d.Decode(&rest); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has a second document: remove it")
	}
	if a := findAlias(&doc); a != nil {
		return nil, complain(a, "", "aliases are not supported: write the value out")
	}
	return doc.Content[0], nil
}

// syntaxError removes the text of the file that the library quotes, such as anchors.
func syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.Contains(text, "anchor") {
		return errors.New("aliases are not supported: write the value out")
	}
	return errors.New(text)
}

func findAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n
	}
	for _, e := range n.Content {
		if a := findAlias(e); a != nil {
			return a
		}
	}
	return nil
}

// file is the state of reading an auth file.
type file struct {
	cfg  *Config
	dir  string
	opts Options
}

func (f *file) read(root *yaml.Node) error {
	c := f.cfg
	c.policies = map[string]policy{}
	return object(map[string]reader{
		"principals":    sequence(f.principal),
		"issuers":       sequence(f.issuer),
		"introspection": unsupported("oauth2 introspection"),
		"challenge": object(map[string]reader{
			Bearer:    f.policy(Bearer),
			SignedJWT: f.policy(SignedJWT),
		}),
		"anonymous": object(map[string]reader{"enabled": flag(&c.anonymous)}),
	})(root, "")
}

func (f *file) policy(scheme string) reader {
	return word("challenge policy", allPolicies, func(p policy) { f.cfg.policies[scheme] = p })
}

// principal reads one entry and then its tokens, so the order of the keys does not matter.
func (f *file) principal(n *yaml.Node, at string) error {
	p := newPrincipal("", nil)
	id := &p.identity
	var tokens []located
	err := object(map[string]reader{
		"name":   into(&id.Principal),
		"tokens": sequence(collect(&tokens)),
		"certs":  unsupported("mtls with client certificates"),
		"roles":  sequence(role(&id.Roles)),
		"trust":  word("trust", arcp.TrustLevels, func(l arcp.TrustLevel) { id.Trust = l }),
		"lease":  jsonObject(&id.Lease),
		"limits": object(map[string]reader{
			"sessions":     count(&id.Limits.Sessions),
			"jobs":         count(&id.Limits.Jobs),
			"rate_per_min": count(&id.Limits.RatePerMin),
		}),
		"sees":   sequence(glob(&id.Sees)),
		"serves": sequence(glob(&id.Serves)),
	})(n, at)
	if err != nil {
		return err
	}
	if len(id.Roles) == 0 {
		id.Roles = clientRoles
	}
	if err := f.cfg.addPrincipal(p); err != nil {
		return complain(n, at, err.Error())
	}
	if f.opts.CheckLease != nil && id.Lease != nil {
		if err := f.opts.CheckLease(id.Lease); err != nil {
			return complain(n, join(at, "lease"), fmt.Sprintf("of %s: %v", id.Principal, err))
		}
	}
	return f.tokens(p, tokens)
}

// located is a value that is read later.
type located struct {
	node *yaml.Node
	at   string
}

func collect(dst *[]located) reader {
	return func(n *yaml.Node, at string) error {
		*dst = append(*dst, located{n, at})
		return nil
	}
}

func (f *file) tokens(p *principal, tokens []located) error {
	read := text(func(s string) error {
		hash, err := parseHash(s)
		if err != nil {
			return err
		}
		return f.cfg.addHash(p, hash)
	})
	for _, t := range tokens {
		if err := read(t.node, t.at); err != nil {
			return err
		}
	}
	return nil
}

const hashHelp = `printf %s "$TOKEN" | sha256sum prints them`

// parseHash parses the output of FileHash.
func parseHash(s string) (hash [32]byte, err error) {
	digits, ok := strings.CutPrefix(s, hashPrefix)
	if !ok || len(digits) != hex.EncodedLen(len(hash)) {
		return hash, errors.New("want sha256: and 64 hex digits, the hash of the token: " + hashHelp)
	}
	if _, err := hex.Decode(hash[:], []byte(digits)); err != nil {
		return hash, errors.New("the text after sha256: has other characters than hex digits: " + hashHelp)
	}
	return hash, nil
}

func role(dst *[]Role) reader {
	return word("role", allRoles, func(r Role) {
		if !slices.Contains(*dst, r) {
			*dst = append(*dst, r)
		}
	})
}

func glob(dst *[]string) reader {
	return text(func(s string) error {
		if s == "" {
			return errors.New("an empty pattern matches no principal: remove it")
		}
		if _, err := path.Match(s, ""); err != nil {
			return errors.New(`the pattern has an unclosed bracket: close it or put a \ before it`)
		}
		*dst = append(*dst, s)
		return nil
	})
}

func (f *file) issuer(n *yaml.Node, at string) error {
	i := &issuer{audience: f.opts.RuntimeID, claim: "sub"}
	err := object(map[string]reader{
		"issuer":      into(&i.name),
		"audience":    into(&i.audience),
		"jwks":        text(f.keySet(i)),
		"key_files":   sequence(text(f.keyFile(i))),
		"algorithms":  sequence(algorithm(&i.algorithms)),
		"claim":       into(&i.claim),
		"prefix":      text(i.setPrefix),
		"roles_claim": into(&i.rolesClaim),
	})(n, at)
	if err != nil {
		return err
	}
	if err := f.cfg.addIssuer(i); err != nil {
		return complain(n, at, err.Error())
	}
	return nil
}

func (f *file) keySet(i *issuer) func(string) error {
	return func(name string) error {
		if strings.Contains(name, "://") {
			return errors.New("a key set at a URL is not supported by this version: save it to a file and name that")
		}
		return f.keyFile(i)(name)
	}
}

func (f *file) keyFile(i *issuer) func(string) error {
	return func(name string) error {
		if !filepath.IsAbs(name) {
			name = filepath.Join(f.dir, name)
		}
		keys, err := readKeys(name)
		if err != nil {
			return fmt.Errorf("key file (paths start at the auth file): %w", err)
		}
		i.keys = append(i.keys, keys...)
		return nil
	}
}

func algorithm(dst *[]string) reader {
	known := word("algorithm", algorithms, func(a string) { *dst = append(*dst, a) })
	return func(n *yaml.Node, at string) error {
		if strings.EqualFold(n.Value, "none") {
			return complain(n, at, "a JWT without a signature is never accepted: name the algorithm the issuer signs with")
		}
		return known(n, at)
	}
}
