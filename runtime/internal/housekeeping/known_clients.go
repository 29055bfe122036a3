package housekeeping

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/store"
)

// knownClientPrefix begins the keys of the records of known clients; the client follows. They
// are written without sync: a client whose record is lost in a crash is challenged again.
const knownClientPrefix = "sighting/"

// knownClient is the stored form of a known client.
type knownClient struct {
	At time.Time `json:"at"`
}

func (j *Janitor) knownClients() records.Table[knownClient] {
	return records.Table[knownClient]{Reader: j.opts.Store}
}

func knownClientKey(c auth.ClientKey) string {
	return knownClientPrefix + base64.RawURLEncoding.EncodeToString(c[:])
}

// LoadKnownClients restores the stored known clients into Auth, which decides about
// challenges.
func (j *Janitor) LoadKnownClients(ctx context.Context) error {
	var list []auth.KnownClient
	var failed error
	err := j.knownClients().Scan(ctx, knownClientPrefix, "", func(row records.Row[knownClient], bad error) bool {
		id, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(row.Key, knownClientPrefix))
		if err != nil || len(id) != len(auth.ClientKey{}) {
			bad = fmt.Errorf("%s: the key names no client", row.Key)
		}
		if failed = bad; failed == nil {
			list = append(list, auth.KnownClient{Client: auth.ClientKey(id), At: row.Value.At})
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err == nil {
		j.opts.Auth.LoadKnownClients(list)
	}
	return err
}

// storeKnownClients writes at most step clients that have proved their identity since the last
// call. It is called by one goroutine at a time, the only writer of these records.
func (j *Janitor) storeKnownClients(ctx context.Context, now time.Time) (more bool, err error) {
	list := j.opts.Auth.KnownClientChanges(now, step)
	if len(list) == 0 {
		return false, nil
	}
	w := &store.Write{NoSync: true}
	for _, c := range list {
		rec, err := j.changeKnownClient(ctx, c)
		if err != nil {
			return false, err
		}
		if rec.Value != nil || rec.Rev != 0 {
			w.Put(rec)
		}
	}
	_, err = j.opts.Log.Commit(ctx, w)
	return len(list) == step, err
}

// changeKnownClient returns the record that stores a known client or, with a zero time, deletes it.
func (j *Janitor) changeKnownClient(ctx context.Context, c auth.KnownClient) (store.Record, error) {
	row, err := j.knownClients().Get(ctx, knownClientKey(c.Client))
	if err != nil {
		return store.Record{}, err
	}
	if c.At.IsZero() {
		return row.Delete(), nil
	}
	return row.Put(&knownClient{c.At.UTC()})
}

// SaveKnownClients writes the clients that the janitor has not written yet. It is called after
// Stop.
func (j *Janitor) SaveKnownClients(ctx context.Context) {
	for more := true; more; {
		var err error
		if more, err = j.storeKnownClients(ctx, time.Now()); err != nil && !j.opts.Broken() {
			j.opts.Logger.Warn().Err(err).Msg("store the clients that have proved themselves; some will be challenged again")
		}
	}
}
