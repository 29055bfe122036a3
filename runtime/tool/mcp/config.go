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

// Config configures the connection to an MCP server and the publication of its tools. A zero member
// means its default. The caller must not change a Config after New.
type Config struct {
	Name string // of the server, in logs and errors: [a-z0-9][a-z0-9._-]*, at most 64 bytes

	// Command is the program to start, with its arguments. URL is the address of a server over
	// streamable HTTP. Exactly one of them is set.
	Command []string
	Env     []string // names of variables that the program inherits, besides PATH and HOME
	Dir     string   // working directory of the program; default: the runtime's
	URL     string
	// HeadersFile is a file of lines "Name: value" that are added to each request. Only its owner
	// may have access to the file. A changed file is read again.
	HeadersFile string

	Prefix string   // of the published names; default Name and a dot
	Allow  []string // globs of the server's own names; default: every name

	SideEffect tool.SideEffect // default read for tools with readOnlyHint, else external_system
	Approval   tool.Approval   // default none for tools with readOnlyHint, else manual
	Limits     tool.Limits     // of each tool; Timeout defaults to DefaultTimeout, MaxResponseBytes to 8 MiB

	// ListFile keeps the last list of tools, for a start while the server does not answer. The tools are then
	// published from it at the end of the context of Start, and their jobs wait for the server. A list of another
	// command, URL or environment is ignored. Default: no file.
	ListFile string

	Log     zerolog.Logger
	Metrics *Metrics // nil: no metrics
	Version string   // of the runtime, sent to the server
}

// DefaultTimeout is the default time limit of a call. It is longer than for other tools: servers run
// browsers, builds and models.
const DefaultTimeout = 10 * time.Minute

// Bounds of the memory, messages and tools of a server. Correct servers stay far below them.
const (
	maxMessage      = 16 << 20 // bytes of a message; the default of the SDK
	maxResponse     = 8 << 20  // default of Limits.MaxResponseBytes
	maxTools        = 4096     // published tools of a server
	maxPages        = 256      // pages of a list
	maxListBytes    = 64 << 20 // bytes of the definitions of a list
	maxDescription  = 8 << 10  // bytes
	maxQueued       = 256      // queued notifications of a call
	maxQuestions    = 64       // open questions of a session
	maxErrorBody    = 64 << 10 // bytes of the body of an HTTP error
	maxHeadersFile  = 64 << 10 // bytes
	maxGarbageLines = 100      // lines in a row that are no messages; more end the session

	maxLogged = 4 << 10 // bytes of a logged text of the server
	logRate   = 50      // logged texts a second
	logBurst  = 200
)

// Timeouts and intervals.
const (
	connectTimeout = 2 * time.Minute // for start, handshake and first list; a launcher may install the program first
	listTimeout    = time.Minute
	writeTimeout   = 30 * time.Second // for a program that does not read its input
	pingEvery      = 30 * time.Second
	missedPings    = 4                      // unanswered pings in a row that end the session
	changeDelay    = 200 * time.Millisecond // from a change to the next list, which then covers a group of changes
	listEvery      = time.Second            // minimum between two lists
	listRetry      = 15 * time.Second       // from a failed list to the next list
	exitGrace      = time.Second            // from the end of a program's input to SIGTERM
	closeGrace     = 5 * time.Second        // for closing a session over HTTP
	streamWait     = 5 * time.Second        // for the response header of the notification stream over HTTP
)

// restartBackoff is the delay from the end of a session to the next session.
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
	c.Version = cmp.Or(c.Version, "devel")
	return c
}

// check returns errors of the configuration.
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
	return cmp.Or(c.checkEnums(), c.checkURL(), c.checkCommand())
}

var prefixGrammar = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// checkEnums checks the values of enumerations, and that the prefix is not reserved.
func (c *Config) checkEnums() error {
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
		return nil // a path relative to Dir, which may be created later
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

// approval returns the approval policy of a tool: the configured policy or, without one, the
// default for the readOnlyHint of the server.
func (c *Config) approval(d *definition) tool.Approval {
	byHint := tool.ApprovalManual
	if d.readOnly {
		byHint = tool.ApprovalNone
	}
	return cmp.Or(c.Approval, byHint)
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
