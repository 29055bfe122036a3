package auth

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/yamlsyntax"
)

const maxFile = 16 << 20 // bytes of an auth file: some 50,000 principals

// Load reads an auth file in YAML and the key files that it names, relative to the directory of the
// auth file. An unknown key or value is an error with the line, the path and the remedy (SPEC.md
// §5.12). The error has every mistake, one on each line, and FileErrors returns them.
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
		return NewConfig(opts), nil
	}
	f := &file{cfg: NewConfig(opts), dir: dir}
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
		return nil, syntaxError(data, err)
	}
	if err := d.Decode(&rest); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has a second document: remove it")
	}
	if a := findAlias(&doc); a != nil {
		return nil, errorAt(a, "", "aliases are not supported: write the value out")
	}
	return doc.Content[0], nil
}

// syntaxError returns an error of the library with the line of the mistake, and without an anchor of the file.
func syntaxError(data []byte, err error) error {
	line, text := yamlsyntax.Mistake(data, err)
	if strings.Contains(text, "anchor") {
		text = "aliases are not supported: write the value out"
	}
	return &FileError{Line: line, Column: 1, Text: text}
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
	cfg *Config
	dir string
}

func (f *file) read(root *yaml.Node) error {
	return object(map[string]reader{
		"principals":    sequence(f.principal),
		"issuers":       sequence(f.issuer),
		"introspection": unsupported("oauth2 introspection"),
		"challenge": object(map[string]reader{
			Bearer:    f.policy(Bearer),
			SignedJWT: f.policy(SignedJWT),
		}),
		"anonymous": object(map[string]reader{"enabled": flag(&f.cfg.anonymous)}),
	})(root, "")
}

func (f *file) policy(scheme string) reader {
	return word("challenge policy", allPolicies, func(p ChallengePolicy) error { return f.cfg.SetChallenge(scheme, p) })
}

// principal reads an element of the key principals. The error has the position of each value that
// is not allowed. Values that could be read are checked also beside others with mistakes.
func (f *file) principal(n *yaml.Node, at string) error {
	var p Principal
	err := object(map[string]reader{
		"name":   textInto(&p.Name),
		"tokens": sequence(text(func(s string) error { p.TokenHashes = append(p.TokenHashes, Secret(s)); return nil })),
		"certs":  unsupported("mtls with client certificates"),
		"roles":  sequence(word("role", allRoles, func(r Role) error { p.Roles = append(p.Roles, r); return nil })),
		"trust":  word("trust", arcp.TrustLevels, func(l arcp.TrustLevel) error { p.Trust = l; return nil }),
		"lease":  jsonObject(&p.Lease),
		"limits": object(map[string]reader{
			"sessions":     count(&p.Limits.Sessions),
			"jobs":         count(&p.Limits.Jobs),
			"rate_per_min": count(&p.Limits.RatePerMin),
		}),
		"sees":   sequence(text(func(s string) error { p.Sees = append(p.Sees, s); return nil })),
		"serves": sequence(text(func(s string) error { p.Serves = append(p.Serves, s); return nil })),
	})(n, at)
	if err != nil && p.Name == "" { // the unknown key may be the name
		return err
	}
	added, invalid := f.cfg.checkPrincipal(p)
	if p.Name != "" {
		f.cfg.store(added) // also an invalid one: a later entry may have its name or tokens
	}
	return errors.Join(err, locate(n, at, invalid))
}

const hashHelp = "`arcp token hash` prints them"

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

// issuer reads an element of the key issuers and its key files. An error about a key has the
// position of the name of its file. Values that could be read are checked also beside others with
// mistakes.
func (f *file) issuer(n *yaml.Node, at string) error {
	var i Issuer
	keyFiles := map[string]position{} // by the member of i that has the content
	addFile := func(n *yaml.Node, at string) error {
		return text(func(name string) error {
			data, err := f.readKeyFile(name)
			if err != nil {
				return err
			}
			keyFiles[fmt.Sprintf("keys[%d]", len(i.Keys))] = position{n, at}
			i.Keys = append(i.Keys, Secret(data))
			return nil
		})(n, at)
	}
	err := object(map[string]reader{
		"issuer":    textInto(&i.Name),
		"audience":  textInto(&i.Audience),
		"jwks":      addFile,
		"key_files": sequence(addFile),
		"algorithms": sequence(word("algorithm", algorithms, func(a string) error {
			i.Algorithms = append(i.Algorithms, a)
			return nil
		})),
		"claim":       textInto(&i.Claim),
		"prefix":      prefix(&i.Prefix),
		"roles_claim": textInto(&i.RolesClaim),
	})(n, at)
	added, invalid := f.cfg.checkIssuer(i)
	if i.Name != "" {
		f.cfg.storeIssuer(added) // also an invalid one: a later entry may have its name
	}
	list := []error{err}
	for _, invalid := range separate(invalid) {
		e, isMember := errors.AsType[*memberError](invalid)
		switch {
		case isMember && keyFiles[e.member].node != nil:
			k := keyFiles[e.member]
			list = append(list, errorAt(k.node, k.at, keyFileError(e.err).Error()))
		case isMember || err == nil: // else a member that is missing may be the one of err
			list = append(list, locate(n, at, invalid))
		}
	}
	return errors.Join(list...)
}

// position is a value of the auth file and its path.
type position struct {
	node *yaml.Node
	at   string
}

func keyFileError(err error) error {
	return fmt.Errorf("key file (paths start at the auth file): %w", err)
}

// readKeyFile returns the content of the file. A relative name starts at the directory of the auth
// file.
func (f *file) readKeyFile(name string) ([]byte, error) {
	if strings.Contains(name, "://") {
		return nil, errors.New("a key set at a URL is not supported by this version: save it to a file and name that")
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(f.dir, name)
	}
	data, err := readFile(name, maxKeyFile)
	if err != nil {
		return nil, keyFileError(err)
	}
	return data, nil
}

func prefix(dst *string) reader {
	return text(func(s string) error {
		if s == "" {
			return errors.New("the prefix is empty: remove it")
		}
		*dst = s
		return nil
	})
}

// locate adds the position of n, or of the member of n that err names. It does so for each error that err joins.
func locate(n *yaml.Node, at string, err error) error {
	var list []error
	for _, err := range separate(err) {
		if e, ok := errors.AsType[*memberError](err); ok {
			list = append(list, errorAt(lookup(n, e.member), joinPath(at, e.member), e.err.Error()))
			continue
		}
		list = append(list, errorAt(n, at, err.Error()))
	}
	return errors.Join(list...)
}

// separate returns the errors that err joins.
func separate(err error) (list []error) {
	several, ok := err.(interface{ Unwrap() []error })
	switch {
	case ok:
		for _, err := range several.Unwrap() {
			list = append(list, separate(err)...)
		}
	case err != nil:
		list = append(list, err)
	}
	return list
}

// lookup returns the member of n at a path such as roles[0] or limits.jobs.
func lookup(n *yaml.Node, path string) *yaml.Node {
	for _, part := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch n.Kind {
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(part); err == nil && i < len(n.Content) {
				n = n.Content[i]
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == part {
					n = n.Content[i+1]
				}
			}
		}
	}
	return n
}
