package runtime

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/conn"
)

// Bucket is a bucket of S3-compatible storage.
type Bucket struct {
	Endpoint string // URL of the storage without a path, https or http
	Region   string // default: the storage is asked for it
	Name     string
	Prefix   string // of the names of the objects; nothing else uses it, and no other runtime

	// AccessKey and SecretKey are the credentials; default: those of the variables AWS_*, of
	// ~/.aws/credentials, or of the machine or its container.
	AccessKey string
	SecretKey auth.Secret
}

// Check returns an error if the bucket cannot be used. It sends no request.
func (b *Bucket) Check() error {
	s, err := b.open()
	if err == nil {
		s.Close()
	}
	return err
}

func (b *Bucket) open() (*artifact.S3, error) {
	return artifact.OpenS3(artifact.S3Config{
		Endpoint:  b.Endpoint,
		Region:    b.Region,
		Bucket:    b.Name,
		Prefix:    b.Prefix,
		AccessKey: b.AccessKey,
		SecretKey: b.SecretKey.Reveal(),
	})
}

// ArtifactStorage says where a runtime has the content of artifacts. The zero value is in memory: the
// artifacts are lost with the process.
type ArtifactStorage struct {
	// Dir is a directory, which no other process uses.
	Dir string

	// Bucket, if set, has the content instead of Dir. While the storage does not answer, requests of
	// artifacts fail, and jobs run on.
	Bucket *Bucket

	// URL, if set, is the URL under which clients reach Runtime.ArtifactHandler, http or https. The runtime
	// then offers the capability artifact_redirect: it answers artifact.fetch of an artifact over 4 MiB with a
	// link below this URL.
	URL string
}

// CheckURL returns an error if URL is set and is not valid.
func (a *ArtifactStorage) CheckURL() error {
	_, err := a.parseURL()
	return err
}

// parseURL returns URL; nil: it is not set.
func (a *ArtifactStorage) parseURL() (*url.URL, error) {
	if a.URL == "" {
		return nil, nil
	}
	u, err := url.Parse(a.URL)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL; give one such as https://arcp.example/artifacts")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("give an absolute URL with https or http, such as https://arcp.example/artifacts")
	case u.User != nil:
		return nil, errors.New("give the URL without a user name and a password: each link has a token of its own")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(a.URL, "#"):
		return nil, errors.New("give the URL without a query and a fragment: a token is added to its path")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	if u.RawPath != "" || u.Path != "" && path.Clean(u.Path) != u.Path || strings.ContainsAny(u.Path, "{} ") {
		return nil, errors.New("give a URL with a plain path, such as https://arcp.example/artifacts")
	}
	return u, nil
}

// artifacts are the artifacts of a runtime.
type artifacts struct {
	conn.Artifacts
	url          *url.URL // of the links; nil: there are none
	closeContent func()   // ends the requests of content on another machine
}

// open opens the content of artifacts. It sends no request.
func (a *ArtifactStorage) open() (content artifact.Content, closeContent func(), err error) {
	nothing := func() {}
	switch {
	case a.Bucket != nil:
		s, err := a.Bucket.open()
		if err != nil {
			return nil, nil, fmt.Errorf("bucket of artifacts: %w", err)
		}
		return s, s.Close, nil
	case a.Dir != "":
		files, err := artifact.OpenFiles(a.Dir)
		if err != nil {
			return nil, nil, fmt.Errorf("open the directory of artifacts: %w", err)
		}
		return files, nothing, nil
	}
	return new(artifact.Memory), nothing, nil
}
