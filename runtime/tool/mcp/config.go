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

// Config says how to reach an MCP server and how to publish its tools. It does not change after New. Zero
// members are the documented defaults.
type Config struct {
	Name string // of the server, in logs and errors: [a-z0-9][a-z0-9._-]*, at most 64 bytes

	// Command is the program to start, with its arguments; URL is the address of a server over
	// streamable HTTP. Exactly one of them is set.
	Command []string
	Env     []string // variables of the runtime that the program gets, besides PATH and HOME
	Dir     string   // the program's working directory; default the runtime's
	URL     string
	// HeadersFile is a file of lines "Name: value", which are added to each request. Only its owner
	// may have access to it. It is read again when it changes.
	HeadersFile string

	Prefix string   // of the tools' names; default Name and a dot
	Allow  []string // globs of the server's own names; default all

	SideEffect tool.SideEffect // default read for tools with readOnlyHint, else external_system
	Approval   tool.Approval   // default none for tools with readOnlyHint, else manual
	Limits     tool.Limits     // of each tool; default DefaultTimeout, 8 MiB of a result, the rest as of all tools

	Log     zerolog.Logger
	Metrics *Metrics // nil: none
	Version string   // of this runtime, sent to the server
}

// DefaultTimeout is the time limit of a call. Browsers, builds and models behind MCP servers take longer
// than the 5 s of other tools.
const DefaultTimeout = 10 * time.Minute

// Bounds of the memory, messages and tools of a server. Each is far above the use of correct
// servers.
const (
	maxMessage      = 16 << 20 // bytes of one message, as of the SDK
	maxResponse     = 8 << 20  // default bytes of a result
	maxTools        = 4096     // published by one server
	maxPages        = 256      // of a list: bounds an endless one
	maxListBytes    = 64 << 20 // of a list's definitions
	maxDescription  = 8 << 10  // bytes
	maxQueued       = 256      // queued notifications of one call
	maxAsks         = 64       // open questions of a session
	maxErrorBody    = 64 << 10 // bytes of an HTTP error
	maxHeadersFile  = 64 << 10
	maxGarbageLines = 100 // in a row on standard output: the program does not speak MCP

	maxLogged = 4 << 10 // bytes of a logged text of the server
	logRate   = 50      // logged texts a second
	logBurst  = 200
)

// Timeouts and intervals.
const (
	connectTimeout = 2 * time.Minute // start, handshake and first list: some programs are installed at first
	listTimeout    = time.Minute
	writeTimeout   = 30 * time.Second // for a program that does not read its input
	pingEvery      = 30 * time.Second
	missedPings    = 4                      // in a row without a call under way: the session has ended
	changeDelay    = 200 * time.Millisecond // from a change to the next list: changes come in groups
	listEvery      = time.Second            // minimum between two lists
	listAgain      = 15 * time.Second       // after a list has failed
	exitGrace      = time.Second            // from the end of a program's input to SIGTERM
	closeGrace     = 5 * time.Second        // for closing a session over HTTP
	streamWait     = 5 * time.Second        // for the response header of the stream over HTTP
)

// restartBackoff is the delay of the next session after one that has ended.
var restartBackoff = backoff.Policy{Min: 500 * time.Millisecond, Max: time.Minute, Jitter: 0.2}

// termGrace is the time from SIGTERM to SIGKILL. Only tests change it.
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

// check returns errors that a retry cannot mend.
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

// checkWords checks the values of enumerations, and that the prefix is not reserved.
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
		return nil // relative to Dir, where it may be created later
	}
	if _, err := exec.LookPath(c.Command[0]); err != nil {
		return fmt.Errorf("command %q: not found in PATH; install it, or give its path", c.Command[0])
	}
	return nil
}

// allows reports whether Allow matches the name of a tool.
func (c *Config) allows(name string) bool {
	return len(c.Allow) == 0 || slices.ContainsFunc(c.Allow, func(g string) bool {
		ok, _ := path.Match(g, name) // the pattern is checked
		return ok
	})
}

// approval returns the approval policy of a tool. The readOnlyHint of the server counts only if none is
// configured.
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
