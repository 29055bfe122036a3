package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/store"
)

// openProvisioners opens the configured provisioners and the sealer of their credentials. Without provisioners a
// sealer is opened only if the data directory has a key, because credentials of earlier runs may not be revoked yet.
func openProvisioners(ctx context.Context, v *settings.Values, st store.Store) ([]credential.Source, *credential.Sealer, error) {
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
	sealer, err := openSealer(ctx, v, st, len(sources) > 0)
	return sources, sealer, err
}

func openSealer(ctx context.Context, v *settings.Values, st store.Store, needed bool) (*credential.Sealer, error) {
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
	file := filepath.Join(dir, credential.KeyFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		sealed, err := credential.HasUnrevoked(ctx, st)
		switch {
		case err != nil:
			return nil, failf("data directory %s: %w", dir, err)
		case sealed:
			return nil, failf("the store has credentials sealed with the missing key %s: restore the key from the same backup; if it is lost, create another (openssl rand -hex 32 > %s; chmod 600 %[2]s), with which they can be revoked but not read", file, file)
		case !needed:
			return nil, nil
		}
	}
	s, err := credential.OpenSealer(dir)
	if err != nil {
		return nil, failf("open the key for sealing secrets: %w", err)
	}
	return s, nil
}
