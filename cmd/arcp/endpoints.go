package main

import (
	"net"
	"path"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime"
)

// minFrame is the smallest --max-frame, enough to open a session.
const minFrame = 64 << 10

// endpoints are the listen addresses of a server. An empty address is not used.
type endpoints struct {
	listen, admin, unix string
	stdio               bool
}

// endpointsOf returns the endpoints of the settings. With --stdio the default listeners are not opened.
func endpointsOf(v *settings.Values) endpoints {
	e := endpoints{v.Text("listen"), v.Text("admin"), v.Text("unix"), v.On("stdio")}
	if e.stdio && !v.IsSet("listen") {
		e.listen = ""
	}
	if e.stdio && !v.IsSet("admin") {
		e.admin = ""
	}
	return e
}

// check returns every invalid and unsafe setting.
func (e endpoints) check(v *settings.Values) error {
	var mistakes []error
	add := func(name string, err error) {
		if err != nil {
			mistakes = append(mistakes, v.MistakeIn(name, err))
		}
	}
	if e.listen == "" && e.unix == "" && !e.stdio {
		add("listen", usagef("no listener: give --listen HOST:PORT, --unix PATH or --stdio"))
	}
	add("path", checkPath(v))
	if n := v.Size("max-frame"); n < minFrame {
		add("max-frame", usagef("%s %d: give at least 64KiB", v.Where("max-frame"), n))
	}
	if d := v.Duration("commit-delay"); d > runtime.MaxCommitDelay {
		add("commit-delay", usagef("%s %v: give at most %v", v.Where("commit-delay"), d, runtime.MaxCommitDelay))
	}
	add("listen", e.checkListen(v))
	add("artifact-url", checkArtifactURL(v, e.listen))
	add("admin", e.checkAdmin(v))
	return settings.Join(mistakes...)
}

func checkPath(v *settings.Values) error {
	p := v.Text("path")
	if !strings.HasPrefix(p, "/") || p == "/" || path.Clean(p) != p || strings.ContainsAny(p, "?#{} ") {
		return usagef("%s %s: give an absolute path, for example /arcp", v.Where("path"), p)
	}
	return nil
}

func checkAddress(v *settings.Values, name, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return usagef("%s %s: give HOST:PORT, for example %s", v.Where(name), addr, settings.Lookup(name).Default)
	}
	return nil
}

func (e endpoints) checkListen(v *settings.Values) error {
	if e.listen == "" {
		return nil
	}
	if err := checkAddress(v, "listen", e.listen); err != nil {
		return err
	}
	if !isLoopback(e.listen) && v.Text("tls-cert") == "" && !v.On("behind-proxy") {
		return usagef("%s: refusing to listen on %s without TLS: give --tls-cert and --tls-key, or --behind-proxy if a proxy terminates TLS", v.Where("listen"), e.listen)
	}
	return nil
}

func (e endpoints) checkAdmin(v *settings.Values) error {
	if e.admin == "" {
		return nil
	}
	if err := checkAddress(v, "admin", e.admin); err != nil {
		return err
	}
	if e.admin == e.listen && !strings.HasSuffix(e.admin, ":0") {
		return usagef(`%s %s: it is the address of the main listener: give another, or --admin "" to serve metrics and health on the main listener`, v.Where("admin"), e.admin)
	}
	if !isLoopback(e.admin) && !v.On("admin-remote") {
		return usagef("%s: refusing to open the admin listener on %s: it has no authentication; use a loopback address, or give --admin-remote if only trusted machines can reach it",
			v.Where("admin"), e.admin)
	}
	return nil
}

// checkAuth refuses a network listener without authentication.
func (e endpoints) checkAuth(set *auth.Set) error {
	if e.listen != "" && len(set.Schemes()) == 0 {
		return usagef("refusing to listen without authentication: give --token NAME=TOKEN or --auth-file FILE; `arcp dev` creates a token for a first try")
	}
	return nil
}
