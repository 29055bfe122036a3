package main

import (
	"strings"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime"
)

// loadAuth reads the authentication settings. local reports a loopback listener, where tokens have more roles.
func loadAuth(v *settings.Values, local bool) (*auth.Config, error) {
	cfg := new(auth.Config)
	if name := v.Text("auth-file"); name != "" {
		var err error
		if cfg, err = auth.Load(name, auth.Options{RuntimeID: v.Text("runtime-id"), CheckLease: runtime.CheckLease}); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	var roles []auth.Role // of a principal without an entry in the auth file
	if local {
		roles = auth.LocalRoles()
	}
	for _, t := range v.Secrets("token") {
		name, token, ok := strings.Cut(t.Reveal(), "=")
		if !ok || name == "" || token == "" {
			return nil, usagef("%s: write a token of a server as NAME=TOKEN with the name of the principal", v.Where("token"))
		}
		if err := cfg.AddToken(auth.Token{Principal: name, Secret: auth.Secret(token), Roles: roles}); err != nil {
			return nil, usagef("%s: %w", v.Where("token"), err)
		}
	}
	return cfg, nil
}
