package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime"
)

// bucketFile names the bucket with the artifacts of a data directory. Without the bucket a server would delete the
// rows of all artifacts, so it does not start then.
const bucketFile = "artifact-bucket.json"

// bucketAddress is the content of bucketFile.
type bucketAddress struct {
	Endpoint  string `json:"endpoint"`
	Bucket    string `json:"bucket"`
	Prefix    string `json:"prefix"`    // of the setting
	Directory string `json:"directory"` // below the prefix; random, so that two data directories never share objects
}

// String returns the address for messages.
func (b *bucketAddress) String() string {
	return fmt.Sprintf("bucket %s at %s", b.path(), b.Endpoint)
}

// path returns the bucket and the prefix of the objects.
func (b *bucketAddress) path() string { return b.Bucket + "/" + b.objects() }

func (b *bucketAddress) objects() string {
	if b.Prefix == "" {
		return b.Directory + "/"
	}
	return b.Prefix + "/" + b.Directory + "/"
}

// checkArtifactURL refuses an artifact-url that clients cannot use, or that shows links to others.
func checkArtifactURL(v *settings.Values, listen string) error {
	text := v.Text("artifact-url")
	if text == "" {
		return nil
	}
	where := v.Where("artifact-url")
	if err := (&runtime.ArtifactStorage{URL: text}).CheckURL(); err != nil {
		return usagef("%s: %w", where, err) // without the value, which may have a password
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return usagef("%s: %w", where, err)
	case listen == "":
		return usagef("%s %s: there is no listener that serves it: give --listen HOST:PORT", where, text)
	case u.Scheme == "http" && !loopbackHost(u.Hostname()) && !v.On("behind-proxy"):
		return usagef("%s %s: refusing links without TLS: give a URL with https, or --behind-proxy if only trusted machines can reach it", where, text)
	}
	return nil
}

// artifactPattern returns the pattern of the requests for links below artifact-url.
func artifactPattern(v *settings.Values) string {
	u, err := url.Parse(v.Text("artifact-url"))
	if err != nil { // checkArtifactURL has parsed it
		panic("artifact-url: " + err.Error())
	}
	return "GET " + strings.TrimSuffix(u.Path, "/") + "/{token}"
}

// openArtifactStorage returns where the artifacts of a data directory are. It refuses a bucket in place of files with artifacts, and files or a bucket in place of another bucket.
func openArtifactStorage(v *settings.Values) (runtime.ArtifactStorage, error) {
	var none runtime.ArtifactStorage
	data := v.Text("data")
	want, err := bucketOf(v)
	switch {
	case err != nil:
		return none, err
	case want == nil && data == memory:
		return none, nil
	case data == memory:
		return none, errBucketInMemory(v)
	}
	known, err := readBucketAddress(data)
	if err != nil {
		return none, err
	}
	files := filepath.Join(data, artifactDir)
	switch {
	case want == nil && known == nil:
		return runtime.ArtifactStorage{Dir: files}, nil
	case want == nil:
		return none, failf("the artifacts of %s are in %s: give the settings artifact-endpoint and artifact-bucket, or remove %s to delete the artifacts",
			data, known, filepath.Join(data, bucketFile))
	case known == nil:
		if known, err = firstBucket(data, *want); err != nil {
			return none, err
		}
	case want.Endpoint != known.Endpoint || want.Bucket != known.Bucket || want.Prefix != known.Prefix:
		return none, failf("the artifacts of %s are in %s, and the settings name another: to move them, copy the objects and change %s",
			data, known, filepath.Join(data, bucketFile))
	}
	bucket := &runtime.Bucket{Endpoint: known.Endpoint, Region: v.Text("artifact-region"), Name: known.Bucket, Prefix: known.objects()}
	if bucket.AccessKey, bucket.SecretKey, err = bucketCredentials(v); err != nil {
		return none, err
	}
	return runtime.ArtifactStorage{Bucket: bucket}, nil
}

func errBucketInMemory(v *settings.Values) error {
	return usagef("%s: artifacts in a bucket need a data directory, which knows them after a restart: give --data DIR", v.Where("artifact-bucket"))
}

// bucketOf returns the bucket of the settings, without its Directory; nil: there is none.
func bucketOf(v *settings.Values) (*bucketAddress, error) {
	name, prefix, _ := strings.Cut(strings.TrimRight(v.Text("artifact-bucket"), "/"), "/")
	if name == "" {
		return nil, nil
	}
	b := &bucketAddress{Endpoint: strings.TrimRight(v.Text("artifact-endpoint"), "/"), Bucket: name, Prefix: prefix}
	if err := (&runtime.Bucket{Endpoint: b.Endpoint, Name: b.Bucket}).Check(); err != nil {
		return nil, usagef("%s: %w", v.Where("artifact-endpoint"), err)
	}
	return b, nil
}

// firstBucket records the bucket of a data directory that had none.
func firstBucket(data string, b bucketAddress) (*bucketAddress, error) {
	switch list, err := os.ReadDir(filepath.Join(data, artifactDir)); {
	case len(list) > 0:
		return nil, failf("the artifacts of %s are in %s: remove that directory to delete them, or go on without artifact-bucket",
			data, filepath.Join(data, artifactDir))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, dataError(data, err)
	}
	b.Directory = strings.ToLower(rand.Text())
	text, err := json.MarshalIndent(b, "", "  ")
	if err == nil {
		err = writeSecret(filepath.Join(data, bucketFile), append(text, '\n'))
	}
	if err != nil {
		return nil, dataError(data, err)
	}
	return &b, nil
}

// readBucketAddress returns the bucket of a data directory; nil: the artifacts are in files.
func readBucketAddress(data string) (*bucketAddress, error) {
	file := filepath.Join(data, bucketFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	b := new(bucketAddress)
	if err == nil {
		err = json.Unmarshal(text, b)
	}
	if err == nil && (b.Endpoint == "" || b.Bucket == "" || b.Directory == "") {
		err = errors.New("endpoint, bucket or directory is missing")
	}
	if err != nil {
		return nil, failf("%s: %w; restore it from a backup", file, cause(err))
	}
	return b, nil
}

// bucketCredentials returns the credentials of the settings.
func bucketCredentials(v *settings.Values) (accessKey string, secretKey auth.Secret, err error) {
	accessKey, reference := v.Text("artifact-access-key"), v.Secret("artifact-secret-key")
	switch {
	case accessKey == "" && reference == "":
		return "", "", nil
	case accessKey == "" || reference == "":
		return "", "", usagef("artifact-access-key and artifact-secret-key belong together: give both, or none for the credentials of AWS in the environment")
	}
	if secretKey, err = resolveSecret(reference); err != nil {
		return "", "", usagef("%s: %w", v.Where("artifact-secret-key"), err)
	}
	return accessKey, secretKey, nil
}

// maxSecretFile bounds the size of a file with a secret, in bytes.
const maxSecretFile = 4 << 10

// resolveSecret returns the secret that env:NAME or file:PATH names. No error contains a value.
func resolveSecret(reference auth.Secret) (auth.Secret, error) {
	kind, name, _ := strings.Cut(reference.Reveal(), ":")
	var secret string
	switch {
	case kind == "env" && name != "":
		secret = os.Getenv(name)
		if secret == "" {
			return "", fmt.Errorf("the variable %s is empty or not set", name)
		}
	case kind == "file" && name != "":
		text, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", name, cause(err))
		}
		secret = strings.TrimSpace(string(text))
		if secret == "" || len(text) > maxSecretFile || strings.ContainsAny(secret, "\r\n") {
			return "", fmt.Errorf("%s must have one line with the secret", name)
		}
	default:
		return "", errors.New("want env:NAME or file:PATH, and not the secret itself")
	}
	return auth.Secret(secret), nil
}
