package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime"
)

// bucketSettings are settings with lines of arcp.yaml.
func bucketSettings(t *testing.T, data string, lines ...string) *settings.Values {
	t.Helper()
	file := write(t, filepath.Join(t.TempDir(), "arcp.yaml"), strings.Join(append(lines, "data: '"+data+"'"), "\n")+"\n")
	v, err := settings.Load(settings.Input{Environ: []string{settings.ConfigEnv + "=" + file}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A data directory belongs to one bucket, in a directory that no other one uses.
func TestArtifactStorageOfADataDirectory(t *testing.T) {
	const endpoint = "artifact-endpoint: http://127.0.0.1:9"
	open := func(data string, lines ...string) (runtime.ArtifactStorage, error) {
		t.Helper()
		return openArtifactStorage(bucketSettings(t, data, lines...))
	}
	refused := func(why, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", why, err, want)
		}
	}
	first, second, files := t.TempDir(), t.TempDir(), t.TempDir()
	a, err := open(first, endpoint, "artifact-bucket: bucket/some/prefix/", "artifact-region: eu-west-1")
	if err != nil || a.Bucket == nil || a.Bucket.Name != "bucket" || !strings.HasPrefix(a.Bucket.Prefix, "some/prefix/") || a.Bucket.Region != "eu-west-1" || a.Dir != "" {
		t.Fatalf("the storage is %+v, %v", a.Bucket, err)
	}
	b, err := open(second, endpoint, "artifact-bucket: bucket/some/prefix")
	if err != nil || a.Bucket.Prefix == b.Bucket.Prefix || !strings.HasSuffix(b.Bucket.Prefix, "/") {
		t.Errorf("two data directories have the prefixes %q and %q, %v", a.Bucket.Prefix, b.Bucket.Prefix, err)
	}
	again, err := open(first, endpoint+"/", "artifact-bucket: bucket/some/prefix")
	if err != nil || again.Bucket.Prefix != a.Bucket.Prefix {
		t.Errorf("the next start has the prefix %q, %v; want %q", again.Bucket.Prefix, err, a.Bucket.Prefix)
	}
	_, err = open(first)
	refused("without the settings", "are in bucket bucket/some/prefix/", err)
	_, err = open(first, endpoint, "artifact-bucket: other")
	refused("with another bucket", "to move them, copy the objects and change "+filepath.Join(first, bucketFile), err)

	if s, err := open(files); err != nil || s.Dir != filepath.Join(files, artifactDir) || s.Bucket != nil {
		t.Errorf("without settings the storage is %+v, %v", s, err)
	}
	write(t, filepath.Join(files, artifactDir, "art_1"), "content")
	_, err = open(files, endpoint, "artifact-bucket: bucket")
	refused("a bucket after files", "remove that directory to delete them", err)
	_, err = open(":memory:", endpoint, "artifact-bucket: bucket")
	refused("a bucket without a data directory", "give --data DIR", err)
	_, err = open(t.TempDir(), "artifact-endpoint: s3.example.com", "artifact-bucket: bucket")
	refused("an endpoint without a scheme", "the endpoint must be a URL", err)
	damaged := t.TempDir()
	write(t, filepath.Join(damaged, bucketFile), "{}")
	_, err = open(damaged, endpoint, "artifact-bucket: bucket")
	refused("a damaged address", "restore it from a backup", err)
	if s, err := open(":memory:"); err != nil || s != (runtime.ArtifactStorage{}) {
		t.Errorf("in memory the storage is %+v, %v", s, err)
	}
}

func TestBucketCredentials(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "key"), "of a file\n")
	t.Setenv("BUCKET_SECRET", "of the environment")
	for _, tt := range []struct {
		access, reference string
		want              auth.Secret
		refusal           string
	}{
		{"", "", "", ""},
		{"key", "env:BUCKET_SECRET", "of the environment", ""},
		{"key", "file:" + file, "of a file", ""},
		{"key", "", "", "belong together"},
		{"", "env:BUCKET_SECRET", "", "belong together"},
		{"key", "env:BUCKET_UNSET", "", "the variable BUCKET_UNSET is empty or not set"},
		{"key", "file:" + file + "x", "", "no such file"},
		{"key", "hunter2", "", "want env:NAME or file:PATH"},
		{"key", "hunter2:secret", "", "want env:NAME or file:PATH"},
	} {
		v := bucketSettings(t, t.TempDir(), "artifact-access-key: '"+tt.access+"'", "artifact-secret-key: '"+tt.reference+"'")
		access, secret, err := bucketCredentials(v)
		if err == nil && (access != tt.access || secret != tt.want) || (err != nil) != (tt.refusal != "") {
			t.Errorf("%q, %q: %q, %q, %v", tt.access, tt.reference, access, secret.Reveal(), err)
		}
		if err != nil && (!strings.Contains(err.Error(), tt.refusal) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%q: %v, want %q without the secret", tt.reference, err, tt.refusal)
		}
		if strings.Contains(string(v.AppendYAML(nil)), "hunter2") {
			t.Errorf("config print shows the secret")
		}
	}
}

// A copy of a data directory says which bucket has its artifacts.
func TestBackupNamesTheBucket(t *testing.T) {
	data, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	a, err := openArtifactStorage(bucketSettings(t, data, "artifact-endpoint: http://127.0.0.1:9", "artifact-bucket: bucket"))
	if err != nil {
		t.Fatal(err)
	}
	if err := backupData(t.Context(), copyable{}, data, to); err != nil {
		t.Fatal(err)
	}
	answer := backupAnswer{Dir: to}
	if err := answer.measure(); err != nil || answer.NotCopied != "the content of artifacts, which is in bucket bucket/"+a.Bucket.Prefix+" at http://127.0.0.1:9" {
		t.Errorf("the answer is %+v, %v", answer, err)
	}
}
