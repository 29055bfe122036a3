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

// sightingPrefix is the key prefix of the records of known clients; the client follows. They
// are written without sync: a client whose record is lost in a crash is challenged again.
const sightingPrefix = "sighting/"

// sightingRecord is the stored form of a known client.
type sightingRecord struct {
	At time.Time `json:"at"`
}

func sightingKey(c auth.Client) string {
	return sightingPrefix + base64.RawURLEncoding.EncodeToString(c[:])
}

// LoadKnownClients restores the stored known clients into Auth, which decides about
// challenges.
func (j *Janitor) LoadKnownClients(ctx context.Context) error {
	var list []auth.Sighting
	var bad error
	err := j.opts.Store.Records(ctx, sightingPrefix, "", func(rec store.Record) bool {
		var s auth.Sighting
		if s, bad = readSighting(&rec); bad == nil {
			list = append(list, s)
		}
		return bad == nil
	})
	if err = errors.Join(err, bad); err == nil {
		j.opts.Auth.Restore(list)
	}
	return err
}

func readSighting(rec *store.Record) (auth.Sighting, error) {
	var value sightingRecord
	if err := arcp.Unmarshal(rec.Value, &value); err != nil {
		return auth.Sighting{}, fmt.Errorf("%s: %w", rec.Key, err)
	}
	id, err := base64.RawURLEncoding.DecodeString(rec.Key[len(sightingPrefix):])
	if err != nil || len(id) != len(auth.Client{}) {
		return auth.Sighting{}, fmt.Errorf("%s: the key names no client", rec.Key)
	}
	return auth.Sighting{Client: auth.Client(id), At: value.At}, nil
}

// keepKnownClients writes which clients have proved themselves since it was last
// called, a step of them. It is called by one goroutine at a time, the only writer
// of these records.
func (j *Janitor) keepKnownClients(ctx context.Context, now time.Time) (more bool, err error) {
	list := j.opts.Auth.Sightings(now, step)
	if len(list) == 0 {
		return false, nil
	}
	w := &store.Write{NoSync: true}
	for _, s := range list {
		rec, err := j.opts.Store.Get(ctx, sightingKey(s.Client))
		if err != nil {
			return false, err
		}
		change := store.Record{Key: sightingKey(s.Client), Rev: rec.Rev}
		if !s.At.IsZero() {
			if change.Value, err = arcp.Marshal(sightingRecord{s.At.UTC()}); err != nil {
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
