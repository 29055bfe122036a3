package runtime

import (
	"fmt"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
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
}

// artifacts are the artifacts of a runtime.
type artifacts struct {
	*artifact.Store
	closeContent func() // ends the requests of content on another machine
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
