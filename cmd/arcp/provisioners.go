package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime/credential"
)

// openProvisioners opens what gives jobs credentials, and what seals them. Without
// either there is no sealer: but for a data directory that has a key something may
// be left to revoke.
func openProvisioners(v *settings.Values) ([]credential.Source, *credential.Sealer, error) {
	configs, err := credential.ParseConfigs(v.Block("provisioners"))
	if err != nil {
		return nil, nil, usagef("%s: %w", v.Where("provisioners"), err)
	}
	var sources []credential.Source
	for i := range configs {
		source, err := configs[i].Open()
		if err != nil {
			return nil, nil, failf("provisioner %s: %w", configs[i].Name, err)
		}
		sources = append(sources, source)
	}
	sealer, err := openSealer(v, len(sources) > 0)
	return sources, sealer, err
}

func openSealer(v *settings.Values, needed bool) (*credential.Sealer, error) {
	dir := v.Text("data")
	switch file := v.Text("secret-key-file"); {
	case file != "":
		s, err := credential.LoadSealer(file)
		if err != nil {
			return nil, failf("%s: %w", v.Where("secret-key-file"), err)
		}
		return s, nil
	case dir == memory && needed:
		return credential.EphemeralSealer(), nil
	case dir == memory:
		return nil, nil
	}
	if _, err := os.Stat(filepath.Join(dir, credential.KeyFile)); errors.Is(err, fs.ErrNotExist) && !needed {
		return nil, nil
	}
	s, err := credential.OpenSealer(dir)
	if err != nil {
		return nil, failf("the key that seals secrets: %w", err)
	}
	return s, nil
}
