package main

import (
	"strings"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime"
)

// loadAuth reads the authentication settings. local is set for a listener on loopback, where
// tokens have more roles.
func loadAuth(v *settings.Values, local bool) (*auth.Config, error) {
	cfg := new(auth.Config)
	if name := v.Text("auth-file"); name != "" {
		var err error
		if cfg, err = auth.Load(name, auth.Options{RuntimeID: v.Text("runtime-id"), CheckLease: runtime.CheckLease}); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	var roles []auth.Role // of a principal that is named by its token only
	if local {
		roles = auth.LocalRoles()
	}
	for _, t := range v.Secrets("token") {
		name, token, ok := strings.Cut(t.Reveal(), "=")
		if !ok || name == "" || token == "" {
			return nil, usagef("%s: a token of a server is given as NAME=TOKEN, NAME being its principal", v.Where("token"))
		}
		if err := cfg.AddToken(auth.Token{Principal: name, Secret: auth.Secret(token), Roles: roles}); err != nil {
			return nil, usagef("%s: %w", v.Where("token"), err)
		}
	}
	return cfg, nil
}
