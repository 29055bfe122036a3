package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// reload reads the configuration again, and applies what can change while the server runs. A mistake or another error
// changes nothing.
func (s *server) reload() {
	next, cfg, err := s.readAgain()
	if err != nil {
		s.logReloadFailure(err)
		return
	}
	reloaded, restart := s.values.Changed(next)
	tools, err := s.tools.apply(cfg.tools)
	if err != nil {
		s.logReloadFailure(err)
		return
	}
	if len(restart) > 0 {
		s.log.Warn().Strs("settings", restart).Msg("these settings need a restart")
	}
	s.values = s.values.With(next, reloaded)
	setLogLevel(s.values)
	s.warnAboutTokens(s.values)
	s.auth.Reload(cfg.auth)
	authFile, certificate := !bytes.Equal(cfg.authDigest, s.config.authDigest), s.replaceCertificate(cfg)
	s.config = cfg
	if rt := s.rt.Load(); rt != nil {
		rt.SetLimits(limits(s.values))
		rt.Reauthenticate()
	}
	ev := addList(s.log.Info(), "settings", reloaded).Bool("auth_file", authFile).Bool("certificate", certificate)
	ev = addList(ev, "tools_added", tools.added)
	ev = addList(ev, "tools_changed", tools.changed)
	addList(ev, "tools_removed", tools.removed).Msg("reloaded")
	s.metrics.reloaded(nil)
}

// readAgain reads and checks the configuration for a reload. It changes nothing.
func (s *server) readAgain() (*settings.Values, *configuration, error) {
	next, loadErr := s.load()
	cfg, err := newConfiguration(next, loadErr, s.log)
	if err != nil {
		return nil, nil, err
	}
	if (cfg.cert == nil) != (s.cert == nil) {
		return nil, nil, errors.New("turning TLS on or off needs a restart")
	}
	if err := s.ends.checkAuth(auth.NewSet(cfg.auth)); err != nil {
		return nil, nil, err
	}
	reloaded, restart := s.values.Changed(next)
	if len(restart) > 0 { // sandboxes hide the data directory in use, not the one after a restart
		if cfg.tools, err = loadTools(s.values.With(next, reloaded), s.log); err != nil {
			return nil, nil, err
		}
	}
	return next, cfg, nil
}

// logReloadFailure logs each mistake.
func (s *server) logReloadFailure(err error) {
	s.metrics.reloaded(err)
	list := mistakesOf(err)
	for _, m := range list {
		ev := addTexts(s.log.Error(), "file", m.File)
		if m.Line > 0 {
			ev = ev.Int("line", m.Line).Int("column", m.Column)
		}
		addTexts(ev, "key", m.Key, "mistake", m.Message).Msg("mistake in the configuration")
	}
	event := s.log.Error()
	if list == nil {
		event = event.Err(err)
	} else {
		event = event.Int("mistakes", len(list))
	}
	event.Msg("reload failed; nothing was changed")
}

// replaceCertificate replaces the certificate of the server, and reports whether it is another one.
func (s *server) replaceCertificate(cfg *configuration) bool {
	if cfg.cert == nil {
		return false
	}
	before := s.cert.current.Swap(cfg.cert)
	return !bytes.Equal(before.Certificate[0], cfg.cert.Certificate[0])
}

// digest returns the SHA-256 of a file; nil for no file and for one that cannot be read.
func digest(file string) []byte {
	text, err := os.ReadFile(file)
	if file == "" || err != nil {
		return nil
	}
	sum := sha256.Sum256(text)
	return sum[:]
}
