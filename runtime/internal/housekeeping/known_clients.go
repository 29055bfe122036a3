package housekeeping

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/store"
)

// knownClientPrefix is the key prefix of the records of known clients; the client follows. They
// are written without sync: a client whose record is lost in a crash is challenged again.
const knownClientPrefix = "sighting/"

// knownClientRecord is the stored form of a known client.
type knownClientRecord struct {
	At time.Time `json:"at"`
}

func knownClientKey(c auth.Client) string {
	return knownClientPrefix + base64.RawURLEncoding.EncodeToString(c[:])
}

// LoadKnownClients restores the stored known clients into Auth, which decides about
// challenges.
func (j *Janitor) LoadKnownClients(ctx context.Context) error {
	var list []auth.KnownClient
	var bad error
	err := j.opts.Store.Records(ctx, knownClientPrefix, "", func(rec store.Record) bool {
		var s auth.KnownClient
		if s, bad = readKnownClient(&rec); bad == nil {
			list = append(list, s)
		}
		return bad == nil
	})
	if err = errors.Join(err, bad); err == nil {
		j.opts.Auth.LoadKnownClients(list)
	}
	return err
}

func readKnownClient(rec *store.Record) (auth.KnownClient, error) {
	var value knownClientRecord
	if err := arcp.Unmarshal(rec.Value, &value); err != nil {
		return auth.KnownClient{}, fmt.Errorf("%s: %w", rec.Key, err)
	}
	id, err := base64.RawURLEncoding.DecodeString(rec.Key[len(knownClientPrefix):])
	if err != nil || len(id) != len(auth.Client{}) {
		return auth.KnownClient{}, fmt.Errorf("%s: the key names no client", rec.Key)
	}
	return auth.KnownClient{Client: auth.Client(id), At: value.At}, nil
}

// keepKnownClients writes which clients have proved themselves since it was last
// called, a step of them. It is called by one goroutine at a time, the only writer
// of these records.
func (j *Janitor) keepKnownClients(ctx context.Context, now time.Time) (more bool, err error) {
	list := j.opts.Auth.KnownClientChanges(now, step)
	if len(list) == 0 {
		return false, nil
	}
	w := &store.Write{NoSync: true}
	for _, s := range list {
		rec, err := j.opts.Store.Get(ctx, knownClientKey(s.Client))
		if err != nil {
			return false, err
		}
		change := store.Record{Key: knownClientKey(s.Client), Rev: rec.Rev}
		if !s.At.IsZero() {
			if change.Value, err = arcp.Marshal(knownClientRecord{s.At.UTC()}); err != nil {
				return false, err
			}
		}
		if change.Value != nil || change.Rev != 0 {
			w.Put(change)
		}
	}
	_, err = j.opts.Log.Commit(ctx, w)
	return len(list) == step, err
}

// SaveKnownClients writes the clients that the janitor has not written yet. It is called after
// Stop.
func (j *Janitor) SaveKnownClients(ctx context.Context) {
	for more := true; more; {
		var err error
		if more, err = j.keepKnownClients(ctx, time.Now()); err != nil && !j.opts.Broken() {
			j.opts.Logger.Warn().Err(err).Msg("keep which clients have proved themselves; some will be challenged again")
		}
	}
}
