package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime"
)

// loadAuth reads the authentication settings. local reports a loopback listener, where tokens have more roles.
func loadAuth(v *settings.Values, local bool) (*auth.Config, error) {
	cfg := new(auth.Config)
	var mistakes []error
	if name := v.Text("auth-file"); name != "" {
		loaded, err := auth.Load(name, auth.Options{RuntimeID: v.Text("runtime-id"), CheckLease: runtime.CheckLease})
		if err != nil {
			mistakes = append(mistakes, authMistakes(v, name, err))
		} else {
			cfg = loaded
		}
	}
	var roles []auth.Role // of a principal without an entry in the auth file
	if local {
		roles = auth.LocalRoles()
	}
	for _, t := range v.Secrets("token") {
		if err := addToken(cfg, t, roles); err != nil {
			mistakes = append(mistakes, v.MistakeIn("token", fmt.Errorf("%s: %w", v.Where("token"), err)))
		}
	}
	return cfg, settings.Join(mistakes...)
}

// addToken adds a token of the form NAME=TOKEN.
func addToken(cfg *auth.Config, text auth.Secret, roles []auth.Role) error {
	name, token, ok := strings.Cut(text.Reveal(), "=")
	if !ok || name == "" || token == "" {
		return errors.New("write a token of a server as NAME=TOKEN with the name of the principal")
	}
	return cfg.AddToken(auth.Token{Principal: name, Secret: auth.Secret(token), Roles: roles})
}

// minToken is the length of a token in bytes below which a token of a server gets a warning, and --http-token-file is
// refused. Tokens of `arcp token new` are longer.
const minToken = 16

func isShortToken(token auth.Secret) bool { return len(token.Reveal()) < minToken }

// shortTokens returns a warning about the tokens of the settings that are short; nil if there are none. The auth file has
// only hashes.
func shortTokens(v *settings.Values) []string {
	var names []string
	for _, t := range v.Secrets("token") {
		if name, token, ok := strings.Cut(t.Reveal(), "="); ok && isShortToken(auth.Secret(token)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s: a token of %s has fewer than %d characters and can be guessed; `arcp token new` makes one",
		v.Where("token"), strings.Join(names, ", "), minToken)}
}

// authMistakes returns the mistakes in the auth file, with their positions there. Another error, such as of a file that
// does not exist, is a mistake in the setting.
func authMistakes(v *settings.Values, name string, err error) error {
	var list []error
	for _, e := range auth.FileErrors(err) {
		list = append(list, settings.NewMistake(name, e.Line, e.Column, e.Path, e.Text))
	}
	if len(list) == 0 {
		list = append(list, v.MistakeIn("auth-file", err))
	}
	return settings.Join(list...)
}
