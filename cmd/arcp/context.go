package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/osfile"
)

// contexts is the content of the file of contexts, which client commands read.
type contexts struct {
	Current  string                   `yaml:"current,omitempty"` // name of the context that is used by default
	Contexts map[string]clientContext `yaml:"contexts"`
}

// clientContext has the values of flags of client commands for one runtime. It has no secrets.
type clientContext struct {
	URL       string `yaml:"url" json:"url"`
	TokenFile string `yaml:"token-file,omitempty" json:"token_file,omitzero"` // file with the token
	CAFile    string `yaml:"ca-file,omitempty" json:"ca_file,omitzero"`       // file with certificates of authorities
	Dialect   string `yaml:"dialect,omitempty" json:"dialect,omitzero"`
}

// contextName is the form of the names of contexts.
var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// contextsFile returns the file of contexts.
func contextsFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", failf("contexts: %w", err)
	}
	return filepath.Join(dir, "arcp", "contexts.yaml"), nil
}

// readContexts reads the file of contexts. Without a file there are none.
func readContexts() (c contexts, err error) {
	file, err := contextsFile()
	if err != nil {
		return c, err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		err = decoder.Decode(&c)
	}
	if err != nil {
		return c, failf("contexts: %s: %w; correct the file, or remove it", file, err)
	}
	return c, nil
}

// write replaces the file of contexts.
func (c *contexts) write() error {
	file, err := contextsFile()
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(c)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = osfile.Replace(file, text)
	}
	if err != nil {
		return failf("contexts: %w", err)
	}
	return nil
}

// named returns a context.
func (c *contexts) named(name string) (clientContext, error) {
	if ctx, ok := c.Contexts[name]; ok {
		return ctx, nil
	}
	if len(c.Contexts) == 0 {
		return clientContext{}, usagef("context %q does not exist: there are no contexts; `arcp context add %s --url URL` adds it", name, name)
	}
	return clientContext{}, usagef("context %q does not exist; there are %s", name, strings.Join(c.names(), ", "))
}

func (c *contexts) names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// applyContext fills the empty members of the target from the context of --context or $ARCP_CONTEXT, or else
// from the current context. The current context is not used with a URL of the command line or of the
// environment: its token is for its own URL only. For the same reason it precedes $ARCP_TOKEN.
func (tg *target) applyContext(a *app) error {
	name := cmp.Or(tg.context, a.env("ARCP_CONTEXT"))
	switch {
	case tg.context != "" && tg.url != "":
		return usagef("--context and --url exclude each other: give one")
	case tg.url != "":
		return nil
	}
	c, name, err := selectedContext(a, name)
	if err != nil || name == "" {
		return err
	}
	tg.usedContext = name
	tg.url, tg.dialect, tg.caFile = c.URL, cmp.Or(tg.dialect, c.Dialect), cmp.Or(tg.caFile, c.CAFile)
	if c.TokenFile != "" && tg.token == "" {
		tg.token, err = readTokenFile(c.TokenFile)
		tg.tokenFrom = fmt.Sprintf("the token is the one in %s, of the context %s: give --token, or write a token of this runtime there", c.TokenFile, name)
	}
	return err
}

// selectedContext returns the context with a name, or without one the current context unless $ARCP_URL is set. It
// returns an empty name if no context is selected.
func selectedContext(a *app, name string) (c clientContext, selected string, err error) {
	if name == "" && a.env("ARCP_URL") != "" {
		return c, "", nil
	}
	all, err := readContexts()
	if err != nil {
		return c, "", err
	}
	if name = cmp.Or(name, all.Current); name == "" {
		return c, "", nil
	}
	c, err = all.named(name)
	return c, name, err
}

// readTokenFile reads a token from a file that only its owner can read.
func readTokenFile(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", usagef("token file %s: %w", file, cause(err))
	}
	if osfile.Shared(info) {
		return "", usagef("token file %s: other users can read it (mode %04o); run chmod 600", file, info.Mode().Perm())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usagef("token file %s: %w", file, cause(err))
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\n") {
		return "", usagef("token file %s: it must have one token", file)
	}
	return token, nil
}

func newContext(a *app) *cobra.Command {
	cmd := newGroup("context", "Name the runtimes that client commands connect to")
	cmd.Long = "A context is a name for the URL of a runtime and the file with its token. Client commands\n" +
		"use the context of --context or $ARCP_CONTEXT, or else the current one. A URL in --url or\n" +
		"$ARCP_URL takes precedence over the current context."
	cmd.Example = "  arcp context add prod --url wss://arcp.example.com/arcp --token-file ~/.prod-token\n" +
		"  arcp context use prod\n  arcp jobs ls --context prod"
	cmd.AddCommand(newContextAdd(a), newContextUse(a), newContextList(a), newContextRemove(a))
	return cmd
}

func newContextAdd(a *app) *cobra.Command {
	var c clientContext
	cmd := &cobra.Command{Use: "add NAME", Short: "Add or replace a context; the first becomes the current one", Args: argsBetween(1, 1)}
	f := cmd.Flags()
	f.StringVar(&c.URL, "url", "", "URL of the runtime")
	f.StringVar(&c.TokenFile, "token-file", "", "file with the token, which only its owner can read")
	f.StringVar(&c.CAFile, "ca-file", "", "file with certificates of authorities that are trusted for wss://")
	f.StringVar(&c.Dialect, "dialect", "", "dialect that commands speak: rfc, draft or auto")
	completeWords(cmd, "dialect", arcp.DialectRFC.String(), arcp.DialectDraft.String(), autoDialect)
	cmd.RunE = action(func(_ *cobra.Command, args []string) error {
		name := args[0]
		if err := c.check(name); err != nil {
			return err
		}
		return changeContexts(func(all *contexts) error {
			if all.Contexts == nil {
				all.Contexts = make(map[string]clientContext)
			}
			all.Contexts[name] = c
			all.Current = cmp.Or(all.Current, name)
			_, err := fmt.Fprintf(a.stdout, "context %s is added; the current context is %s\n", name, all.Current)
			return err
		})
	})
	return cmd
}

// check checks a new context, and makes the names of its files absolute.
func (c *clientContext) check(name string) error {
	if !contextName.MatchString(name) {
		return usagef("context %q: give a name of letters, digits, '.', '_' and '-'", name)
	}
	switch u, err := url.Parse(c.URL); {
	case err == nil && u.User != nil:
		return usagef("--url %s: a context has no secrets: remove the user and the password, and give the token with --token-file", u.Redacted())
	case err != nil || !dialable(u):
		return usagef("--url %q: give a ws://, wss:// or unix:// URL, for example %s", c.URL, defaultURL)
	}
	if c.Dialect != "" {
		if err := oneOf("dialect", c.Dialect, arcp.DialectRFC.String(), arcp.DialectDraft.String(), autoDialect); err != nil {
			return usagef("%w", err)
		}
	}
	if c.TokenFile != "" {
		if _, err := readTokenFile(c.TokenFile); err != nil {
			return err
		}
	}
	if c.CAFile != "" {
		if _, err := os.Stat(c.CAFile); err != nil {
			return usagef("--ca-file %s: %w", c.CAFile, cause(err))
		}
	}
	for _, file := range []*string{&c.TokenFile, &c.CAFile} {
		if *file == "" {
			continue
		}
		abs, err := filepath.Abs(*file)
		if err != nil {
			return err
		}
		*file = abs
	}
	return nil
}

// changeContexts reads the contexts, changes them and writes them.
func changeContexts(change func(*contexts) error) error {
	all, err := readContexts()
	if err != nil {
		return err
	}
	if err := change(&all); err != nil {
		return err
	}
	return all.write()
}

func newContextUse(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "use NAME", Short: "Make a context the current one", Args: argsBetween(1, 1)}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completeContexts(cmd, args, prefix)
	}
	cmd.RunE = action(func(_ *cobra.Command, args []string) error {
		return changeContexts(func(all *contexts) error {
			c, err := all.named(args[0])
			if err != nil {
				return err
			}
			all.Current = args[0]
			_, err = fmt.Fprintf(a.stdout, "the current context is %s: %s\n", args[0], c.URL)
			return err
		})
	})
	return cmd
}

func newContextRemove(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "rm NAME…", Short: "Remove contexts", Args: argsBetween(1, 64)}
	cmd.ValidArgsFunction = completeContexts
	cmd.RunE = action(func(_ *cobra.Command, args []string) error {
		return changeContexts(func(all *contexts) error {
			for _, name := range args {
				if _, err := all.named(name); err != nil {
					return err
				}
				delete(all.Contexts, name)
				if all.Current == name {
					all.Current = ""
				}
			}
			_, err := fmt.Fprintf(a.stdout, "removed: %s\n", strings.Join(args, ", "))
			return err
		})
	})
	return cmd
}

// contextRow is an item of `arcp context ls`.
type contextRow struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	clientContext
}

func newContextList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the contexts", Args: noArgs}
	output := addOutput(cmd, outputFormats...)
	cmd.RunE = action(func(*cobra.Command, []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		all, err := readContexts()
		if err != nil {
			return err
		}
		rows := []contextRow{}
		for _, name := range all.names() {
			rows = append(rows, contextRow{name, name == all.Current, all.Contexts[name]})
		}
		l := list[contextRow]{columns: []column[contextRow]{
			{"CONTEXT", func(r *contextRow) any { return r.Name }},
			{"CURRENT", func(r *contextRow) any { return map[bool]string{true: "*"}[r.Current] }},
			{"URL", func(r *contextRow) any { return r.URL }},
			{"TOKEN FILE", func(r *contextRow) any { return r.TokenFile }},
			{"CA FILE", func(r *contextRow) any { return r.CAFile }},
			{"DIALECT", func(r *contextRow) any { return r.Dialect }},
		}}
		return l.print(a, arcp.Page[contextRow]{Items: rows})
	})
	return cmd
}
