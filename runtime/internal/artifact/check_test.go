package artifact

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/runtime/store"
)

// Content of an artifact that is released during a hold stays until the last hold ends.
func TestHoldKeepsContent(t *testing.T) {
	f := newFixture(t, new(Memory), Limits{})
	row := f.put("alice", "hello")
	first, second := Hold(f.Store), Hold(f.Store)
	if err := f.Release(t.Context(), "alice", row.ID); err != nil {
		t.Fatal(err)
	}
	first()
	first() // is without effect
	if _, err := f.content.Open(row.ID); err != nil {
		t.Errorf("during the second hold the content is gone: %v", err)
	}
	second()
	if _, err := f.content.Open(row.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the holds the content is there: %v", err)
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	files, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, files, Limits{})
	whole, missing, short, changed := f.put("alice", "one"), f.put("alice", "two"), f.put("bob", "three"), f.put("bob", "four")
	for _, err := range []error{
		os.Remove(filepath.Join(dir, string(missing.ID))),
		os.WriteFile(filepath.Join(dir, string(short.ID)), []byte("thre"), 0o600),
		os.WriteFile(filepath.Join(dir, string(changed.ID)), []byte("FOUR"), 0o600),
		os.WriteFile(filepath.Join(dir, "art_without_a_row"), nil, 0o600), // a server removes it at its start
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write := store.NewWrite().Put(store.Record{Key: recordPrefix + "art_bad", Value: []byte("{")},
		store.Record{Key: recordPrefix + "art_other", Value: []byte(`{"id":"` + string(whole.ID) + `"}`)})
	if err := f.rows.Commit([]*store.Write{write}, make([]store.Result, 1)); err != nil {
		t.Fatal(err)
	}
	var found []string
	n, err := CheckFiles(t.Context(), f.rows, dir, func(err error) { found = append(found, err.Error()) })
	if err != nil || n != 6 {
		t.Errorf("CheckFiles = %d, %v, want 6 rows", n, err)
	}
	all := strings.Join(found, "\n")
	for _, want := range []string{
		string(missing.ID) + ": its file is missing",
		string(short.ID) + ": its file has 4 bytes instead of 5",
		string(changed.ID) + ": its file has the SHA-256 ",
		"record artifact/art_bad: ",
		"record artifact/art_other: it belongs to another key",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("problems:\n%s\nwant one with %q", all, want)
		}
	}
	if len(found) != 5 {
		t.Errorf("%d problems, want 5:\n%s", len(found), all)
	}
	found = nil
	if _, err := CheckFiles(t.Context(), f.rows, "", func(err error) { found = append(found, err.Error()) }); err != nil || len(found) != 2 {
		t.Errorf("without a directory: %v and problems %q, want those of two rows", err, found)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := CheckFiles(ctx, f.rows, dir, func(error) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("CheckFiles = %v, want that it is cancelled", err)
	}
}
