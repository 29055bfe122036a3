package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/internal/backoff"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Config says where an MCP server is and how its tools are published. It is not
// changed after New. Zero members are the documented defaults.
type Config struct {
	Name string // of the server, in logs and errors: [a-z0-9][a-z0-9._-]*, at most 64 bytes

	// Command is the program to start, with its arguments; URL is where a server is
	// reached over streamable HTTP. Exactly one of them is set.
	Command []string
	Env     []string // variables of the runtime that the program gets, besides PATH and HOME
	Dir     string   // the program's working directory; default the runtime's
	URL     string
	// HeadersFile is a file of lines "Name: value" that go with each request. Nobody
	// but its owner may have access to it. It is read again when it changes.
	HeadersFile string

	Prefix string   // of the tools' names; default Name and a dot
	Allow  []string // globs of the server's own names; default all

	SideEffect tool.SideEffect // default read for tools with readOnlyHint, else external_system
	Approval   tool.Approval   // default none for tools with readOnlyHint, else manual
	Limits     tool.Limits     // of each tool; default DefaultTimeout, 8 MiB of a result, the rest as of all tools

	Log     zerolog.Logger
	Metrics *Metrics // nil: none
	Version string   // of this runtime, as the server is told
}

// DefaultTimeout bounds a call: much of what is behind MCP servers, such as
// browsers, builds and models, takes longer than the 5 s of other tools.
const DefaultTimeout = 10 * time.Minute

// Bounds of what a server may take. Each is far above what servers do that mean
// well.
const (
	maxMessage      = 16 << 20 // bytes of one message; as much as the SDK takes
	maxResponse     = 8 << 20  // bytes of a result, if nothing else is configured
	maxTools        = 4096     // published by one server
	maxPages        = 256      // of a list, so that one without an end has one
	maxListBytes    = 64 << 20 // of a list's definitions
	maxDescription  = 8 << 10  // bytes
	maxQueued       = 256      // notifications of one call that wait to become events
	maxAsks         = 64       // questions under way in a session; people answer them one by one
	maxErrorBody    = 64 << 10 // bytes of an HTTP error
	maxHeadersFile  = 64 << 10
	maxGarbageLines = 100 // in a row on standard output, then the program does not speak MCP

	maxNoise   = 4 << 10 // bytes of what a server says to nobody, which is logged
	noiseRate  = 50      // of that, a second
	noiseBurst = 200
)

// How long things may take.
const (
	connectTimeout = 2 * time.Minute // start, handshake and first list: some programs are installed at first
	listTimeout    = time.Minute
	writeTimeout   = 30 * time.Second // a program that does not read its input for so long is broken
	pingEvery      = 30 * time.Second
	missedPings    = 4                      // in a row while no call is under way, then the session has ended
	settle         = 200 * time.Millisecond // between a change and the list: changes come in groups
	listEvery      = time.Second            // at most, however often the list changes
	listAgain      = 15 * time.Second       // after a list that failed in a session that goes on
	exitGrace      = time.Second            // between the end of a program's input and SIGTERM
	closeGrace     = 5 * time.Second        // of taking leave over HTTP
	streamWait     = 5 * time.Second        // for the header of the stream that a server may offer over HTTP
)

// restartBackoff is the delay of the next session after one that has ended.
var restartBackoff = backoff.Policy{Min: 500 * time.Millisecond, Max: time.Minute, Jitter: 0.2}

// termGrace is between SIGTERM and SIGKILL. Only tests change it.
var termGrace = 4 * time.Second

var serverName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = c.Name + "."
	}
	c.Limits.Timeout = cmp.Or(c.Limits.Timeout, DefaultTimeout)
	c.Limits.MaxResponseBytes = cmp.Or(c.Limits.MaxResponseBytes, maxResponse)
	c.Version = cmp.Or(c.Version, "dev")
	return c
}

// check refuses what cannot become right by trying again.
func (c *Config) check() error {
	switch {
	case !serverName.MatchString(c.Name):
		return fmt.Errorf("name %q: use a-z, 0-9, dots, dashes and underscores, at most 64", c.Name)
	case (len(c.Command) == 0) == (c.URL == ""):
		return errors.New("give either command or url")
	case !prefixGrammar.MatchString(c.Prefix):
		return fmt.Errorf("prefix %q: use a-z, 0-9, dots, dashes and underscores, at most 64, beginning with a letter or digit", c.Prefix)
	case c.URL == "" && c.HeadersFile != "":
		return errors.New("headers_file: only a server with a url has headers")
	case c.URL != "" && (len(c.Env) > 0 || c.Dir != ""):
		return errors.New("env, dir: only a server with a command has them")
	}
	for _, g := range c.Allow {
		if _, err := path.Match(g, ""); err != nil {
			return fmt.Errorf("allow: %q is no pattern", g)
		}
	}
	return cmp.Or(c.checkWords(), c.checkURL(), c.checkCommand())
}

var prefixGrammar = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// checkWords has the tool package say whether it knows the words, and that the
// prefix is not the runtime's own.
func (c *Config) checkWords() error {
	for _, p := range tool.Reserved {
		if strings.HasPrefix(c.Prefix, p) {
			return fmt.Errorf("prefix %q: names that begin with %q are reserved", c.Prefix, p)
		}
	}
	if c.SideEffect != "" && !slices.Contains(tool.SideEffects, c.SideEffect) {
		return fmt.Errorf("side_effect %q: it must be one of %v", c.SideEffect, tool.SideEffects)
	}
	_, err := tool.NewRaw(tool.Capability{Name: "probe", Approval: c.Approval}, nil)
	return err
}

func (c *Config) checkURL() error {
	if c.URL == "" {
		return nil
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("url: give an http:// or https:// URL")
	case u.User != nil:
		return errors.New("url: put credentials into headers_file, not into the URL")
	case c.HeadersFile == "":
		return nil
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return fmt.Errorf("url: headers_file is not sent to %s without TLS; use https", u.Hostname())
	}
	_, err = newHeaders(c.HeadersFile).current()
	return err
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c *Config) checkCommand() error {
	if len(c.Command) == 0 {
		return nil
	}
	if strings.Contains(c.Command[0], "/") {
		return nil // relative to Dir, and it may come later
	}
	if _, err := exec.LookPath(c.Command[0]); err != nil {
		return fmt.Errorf("command %q: not found in PATH; install it, or give its path", c.Command[0])
	}
	return nil
}

// allows reports whether a tool of the server is wanted.
func (c *Config) allows(name string) bool {
	return len(c.Allow) == 0 || slices.ContainsFunc(c.Allow, func(g string) bool {
		ok, _ := path.Match(g, name) // the pattern is checked
		return ok
	})
}

// approval is who must approve calls of a tool: what a server says about its own
// harmlessness counts only until somebody has said something else.
func (c *Config) approval(d *definition) tool.Approval {
	said := tool.ApprovalManual
	if d.readOnly {
		said = tool.ApprovalNone
	}
	return cmp.Or(c.Approval, said)
}

func (c *Config) sideEffect(d *definition) tool.SideEffect {
	if c.SideEffect != "" {
		return c.SideEffect
	}
	if d.readOnly {
		return tool.SideEffectRead
	}
	return tool.SideEffectExternal
}
