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

// minFrame is the least --max-frame with which a session can be opened.
const minFrame = 64 << 10

// endpoints are the places where a server will be reachable; empty: not there.
type endpoints struct {
	listen, admin, unix string
	stdio               bool
}

// endpointsOf picks them: with --stdio the default listeners stay closed.
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

// check refuses settings that cannot work or are not safe, before anything is opened.
func (e endpoints) check(v *settings.Values) error {
	if e.listen == "" && e.unix == "" && !e.stdio {
		return usagef("there is nothing to serve on: give --listen HOST:PORT, --unix PATH or --stdio")
	}
	if err := checkPath(v.Text("path")); err != nil {
		return err
	}
	if n := v.Size("max-frame"); n < minFrame {
		return usagef("%s %d: give at least 64KiB", v.Where("max-frame"), n)
	}
	if d := v.Duration("commit-delay"); d > runtime.MaxCommitDelay {
		return usagef("%s %v: give at most %v", v.Where("commit-delay"), d, runtime.MaxCommitDelay)
	}
	if err := e.checkListen(v); err != nil {
		return err
	}
	return e.checkAdmin(v)
}

func checkPath(p string) error {
	if !strings.HasPrefix(p, "/") || p == "/" || path.Clean(p) != p || strings.ContainsAny(p, "?#{} ") {
		return usagef("--path %s: give an absolute path, for example /arcp", p)
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
		return usagef("refusing to listen on %s in clear text: give --tls-cert and --tls-key, or --behind-proxy if a proxy in front ends TLS", e.listen)
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
		return usagef(`--admin %s is the main listener's address: give another, or --admin "" to serve metrics and health on the main listener`, e.admin)
	}
	if !isLoopback(e.admin) && !v.On("behind-proxy") {
		return usagef("refusing to open the admin listener on %s: it asks nobody who they are; keep it on loopback, or give --behind-proxy if only trusted machines can reach it", e.admin)
	}
	return nil
}

// checkAuth refuses a network listener that no client, or any client, could use.
func (e endpoints) checkAuth(set *auth.Set) error {
	if e.listen != "" && len(set.Schemes()) == 0 {
		return usagef("refusing to listen without authentication: give --token NAME=TOKEN or --auth-file FILE; for a first try, `arcp dev` makes a token")
	}
	return nil
}
