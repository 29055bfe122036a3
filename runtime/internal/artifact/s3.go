package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/arcpd/arcpd/arcp"
)

const (
	// partSize is the size of the parts of an object, in bytes. Storage accepts 10,000 parts of at least
	// 5 MiB each.
	partSize = 8 << 20
	maxParts = 10_000

	// maxBuffered bounds the memory of the parts that are being written, in bytes. An idle upload keeps
	// its last part. A principal has at most a quarter. The last quarter is for parts of at most half
	// the size: large artifacts leave it to small ones.
	maxBuffered = 256 << 20
	maxShare    = maxBuffered / 4
	maxLarge    = maxBuffered / 4 * 3
	smallPart   = partSize / 2
)

// Time limits of requests. They end a request to storage that has stopped to answer. A request that waits for
// the credentials of a role may take longer; see Close.
const (
	dialTimeout    = 5 * time.Second
	requestTimeout = 10 * time.Second // of a request without content, with its repetitions
	stallTimeout   = 10 * time.Second // without a byte of the content that is read
	partTimeout    = time.Minute      // of a request that writes a part, with its repetitions
	recoverTimeout = 10 * time.Minute // of the lists that Recover reads
	maxAttempts    = 3                // of a request
)

// S3Config says where an S3 has its objects.
type S3Config struct {
	Endpoint string // URL of the storage without a path, https or http
	Region   string // "": the storage is asked for it
	Bucket   string
	Prefix   string // of the names of the objects; nothing else uses it

	// AccessKey and SecretKey are the credentials. Without them S3 uses those of the variables AWS_*,
	// of ~/.aws/credentials, or of the machine or its container.
	AccessKey string
	SecretKey string
}

// S3 is a Content in a bucket of S3-compatible storage. Each artifact is an object, which is there as
// soon as it is complete. Errors are ErrUnavailable, except for content that is not there. An object whose
// deletion fails after its last reader is closed stays until the next process calls Recover.
type S3 struct {
	api    minio.Core
	bucket string
	prefix string
	before arcp.ArtifactID // ids of earlier processes are less
	ctx    context.Context // of all requests
	stop   context.CancelFunc

	mu       sync.Mutex // is not held during a request
	uploads  map[arcp.ArtifactID]string
	readers  map[arcp.ArtifactID]int
	removed  map[arcp.ArtifactID]bool // the last reader deletes the object
	buffered int                      // bytes of the parts that are being written
	shares   map[string]int           // buffered by principal; none is 0
}

// OpenS3 returns an S3. It sends no request.
func OpenS3(c S3Config) (*S3, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("the endpoint must be a URL such as https://s3.example.com, without a path")
	}
	tr, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, err
	}
	tr.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	tr.TLSHandshakeTimeout = dialTimeout
	api, err := minio.NewCore(u.Host, &minio.Options{
		Creds:      c.credentials(),
		Secure:     u.Scheme == "https",
		Region:     c.Region,
		Transport:  tr,
		MaxRetries: maxAttempts,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	return &S3{
		ctx:     ctx,
		stop:    stop,
		api:     *api,
		bucket:  c.Bucket,
		prefix:  c.Prefix,
		before:  arcp.ArtifactID(arcp.NewID(arcp.ArtifactPrefix)),
		uploads: make(map[arcp.ArtifactID]string),
		readers: make(map[arcp.ArtifactID]int),
		removed: make(map[arcp.ArtifactID]bool),
		shares:  make(map[string]int),
	}, nil
}

func (c *S3Config) credentials() *credentials.Credentials {
	if c.AccessKey != "" {
		return credentials.NewStaticV4(c.AccessKey, c.SecretKey, "")
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{},
		&credentials.IAM{Client: &http.Client{Timeout: requestTimeout}},
	})
}

// Close ends all requests. Later ones fail. A request of the credentials of a role does not end, and requests
// that came after it wait for it: three HTTP requests, two of at most requestTimeout and one of a second.
func (s *S3) Close() { s.stop() }

func (s *S3) key(id arcp.ArtifactID) string { return s.prefix + string(id) }

// id returns the id of an object. Other objects below the prefix have none.
func (s *S3) id(key string) (arcp.ArtifactID, bool) {
	id := arcp.ArtifactID(strings.TrimPrefix(key, s.prefix))
	return id, id.Valid() && !strings.Contains(string(id), "/")
}

// do performs a request within a time limit.
func (s *S3) do(operation string, limit time.Duration, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	return failed(operation, request(ctx))
}

// failed returns the error of a request. Its cause is text only: it may be one that has a meaning here, such as
// io.ErrUnexpectedEOF of a connection.
func failed(operation string, err error) error {
	switch {
	case err == nil || err == fs.ErrNotExist: // see missing
		return err
	case isMissing(err):
		return fmt.Errorf("%s: %w: the bucket or the object does not exist: %v", operation, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w: %v", operation, ErrUnavailable, err)
}

// isMissing reports whether storage has answered that an object is not there. Without a body the answer may
// mean the bucket.
func isMissing(err error) bool { return minio.ToErrorResponse(err).Code == minio.NoSuchKey }

// missing returns fs.ErrNotExist if the bucket is there, and an object is not in its list.
func (s *S3) missing(ctx context.Context, id arcp.ArtifactID) error {
	for o := range s.api.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.key(id), MaxKeys: 1}) {
		switch {
		case o.Err != nil:
			return o.Err
		case o.Key == s.key(id):
			return errors.New("the object is in the list of the bucket, but cannot be found")
		}
		break
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fs.ErrNotExist
}

// Create implements Content. It sends no request.
func (s *S3) Create(principal string, id arcp.ArtifactID) (Writer, error) {
	return &s3Writer{s: s, principal: principal, id: id}, nil
}

// Open implements Content.
func (s *S3) Open(id arcp.ArtifactID) (io.ReadSeekCloser, error) {
	s.mu.Lock()
	removed := s.removed[id]
	if !removed {
		s.readers[id]++ // from here on Remove leaves the object to the reader
	}
	s.mu.Unlock()
	if removed {
		return nil, fs.ErrNotExist
	}
	r := &s3Reader{s: s, id: id}
	err := s.do("look up object", requestTimeout, func(ctx context.Context) error {
		info, err := s.api.StatObject(ctx, s.bucket, s.key(id), minio.StatObjectOptions{})
		r.size = info.Size
		if isMissing(err) {
			return s.missing(ctx, id)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Remove implements Content.
func (s *S3) Remove(id arcp.ArtifactID) error {
	s.mu.Lock()
	open := s.readers[id] > 0
	if open {
		s.removed[id] = true
	}
	s.mu.Unlock()
	if open {
		return nil
	}
	if err := s.abort(id); err != nil {
		return err
	}
	err := s.do("delete object", requestTimeout, func(ctx context.Context) error {
		err := s.api.RemoveObject(ctx, s.bucket, s.key(id), minio.RemoveObjectOptions{})
		if isMissing(err) {
			return s.missing(ctx, id)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// release ends a reader of an artifact. The last reader of a removed one deletes the object.
func (s *S3) release(id arcp.ArtifactID) error {
	s.mu.Lock()
	s.readers[id]--
	last := s.readers[id] == 0
	if last {
		delete(s.readers, id)
	}
	removed := last && s.removed[id]
	s.mu.Unlock()
	if !removed {
		return nil
	}
	err := s.Remove(id)
	s.mu.Lock()
	delete(s.removed, id)
	s.mu.Unlock()
	return err
}

// abort discards the parts of an object that is not complete.
func (s *S3) abort(id arcp.ArtifactID) error {
	s.mu.Lock()
	upload := s.uploads[id]
	s.mu.Unlock()
	if upload == "" {
		return nil
	}
	err := s.do("abort upload", requestTimeout, func(ctx context.Context) error {
		return s.abortUpload(ctx, s.key(id), upload)
	})
	if err == nil {
		s.ended(id)
	}
	return err
}

// abortUpload discards the parts of an upload, if it has not ended.
func (s *S3) abortUpload(ctx context.Context, key, upload string) error {
	err := s.api.AbortMultipartUpload(ctx, s.bucket, key, upload)
	if minio.ToErrorResponse(err).Code == minio.NoSuchUpload {
		return nil
	}
	return err
}

func (s *S3) ended(id arcp.ArtifactID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uploads, id)
}

// Recover implements Content. It may be called at any time, and ignores the uploads of this process.
func (s *S3) Recover() (ids []arcp.ArtifactID, err error) {
	err = s.do("list objects", recoverTimeout, func(ctx context.Context) error {
		for o := range s.api.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix}) {
			if o.Err != nil {
				return o.Err
			}
			if id, ok := s.id(o.Key); ok {
				ids = append(ids, id)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return ids, s.do("abort uploads", recoverTimeout, s.abortUploads)
}

// abortUploads discards the parts of the uploads of earlier processes.
func (s *S3) abortUploads(ctx context.Context) error {
	var old []minio.ObjectMultipartInfo
	var err error
	for u := range s.api.ListIncompleteUploads(ctx, s.bucket, s.prefix, true) { // to its end, or else its goroutine stays
		if u.Err != nil {
			err = u.Err
		} else if id, ok := s.id(u.Key); ok && id < s.before {
			old = append(old, u)
		}
	}
	if err != nil {
		return err
	}
	for _, u := range old {
		if err := s.abortUpload(ctx, u.Key, u.UploadID); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// reserve counts the memory of a part of a principal that changes its size, and reports whether there is
// enough. There is always enough for less.
func (s *S3) reserve(principal string, from, to int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	buffered, share, limit := s.buffered+to-from, s.shares[principal]+to-from, maxBuffered
	if to > smallPart {
		limit = maxLarge
	}
	if to > from && (buffered > limit || share > maxShare) {
		return false
	}
	s.buffered = buffered
	s.shares[principal] = share
	if share == 0 {
		delete(s.shares, principal)
	}
	return true
}

// s3Writer is the Writer of S3. It writes an object that has one part with one request, and others in
// parts.
type s3Writer struct {
	s         *S3
	principal string
	id        arcp.ArtifactID
	upload    string // "": no part is written
	parts     []minio.CompletePart
	part      []byte // the part that is not written yet
}

func (w *s3Writer) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if len(w.part) == partSize {
			if err := w.writePart(); err != nil {
				return n, err
			}
		}
		more := p[n:min(len(p), n+partSize-len(w.part))]
		if err := w.grow(len(w.part) + len(more)); err != nil {
			return n, err
		}
		w.part = append(w.part, more...)
		n += len(more)
	}
	return n, nil
}

// grow makes room for a part of n bytes.
func (w *s3Writer) grow(n int) error {
	if n <= cap(w.part) {
		return nil
	}
	size := min(max(n, 2*cap(w.part), blockSize/4), partSize)
	if !w.s.reserve(w.principal, cap(w.part), size) {
		return arcp.Errorf(arcp.CodeResourceExhausted, "too many artifacts are being put now").RetryAfter(10)
	}
	w.part = append(make([]byte, 0, size), w.part...)
	return nil
}

// free frees the memory of the part.
func (w *s3Writer) free() {
	w.s.reserve(w.principal, cap(w.part), 0)
	w.part = nil
}

// writePart writes the part to the storage.
func (w *s3Writer) writePart() error {
	if len(w.parts) == maxParts {
		return arcp.Errorf(arcp.CodeInvalidArgument, "an artifact may have at most %d bytes", int64(maxParts)*partSize)
	}
	if w.upload == "" {
		if err := w.begin(); err != nil {
			return err
		}
	}
	number := len(w.parts) + 1
	return w.s.do("write part", partTimeout, func(ctx context.Context) error {
		part, err := w.s.api.PutObjectPart(ctx, w.s.bucket, w.s.key(w.id), w.upload, number, bytes.NewReader(w.part), int64(len(w.part)),
			minio.PutObjectPartOptions{Sha256Hex: hexSHA256(w.part), DisableContentSha256: true}) // the digest replaces a signature of chunks
		if err != nil {
			return err
		}
		w.parts = append(w.parts, minio.CompletePart{PartNumber: number, ETag: part.ETag})
		w.part = w.part[:0]
		return nil
	})
}

// begin begins an upload in parts.
func (w *s3Writer) begin() error {
	return w.s.do("begin upload", requestTimeout, func(ctx context.Context) (err error) {
		w.upload, err = w.s.api.NewMultipartUpload(ctx, w.s.bucket, w.s.key(w.id), minio.PutObjectOptions{})
		if err == nil {
			w.s.mu.Lock()
			w.s.uploads[w.id] = w.upload
			w.s.mu.Unlock()
		}
		return err
	})
}

func (w *s3Writer) Commit() error {
	defer w.free()
	if w.upload == "" {
		return w.s.do("write object", partTimeout, func(ctx context.Context) error {
			_, err := w.s.api.PutObject(ctx, w.s.bucket, w.s.key(w.id), bytes.NewReader(w.part), int64(len(w.part)), "", hexSHA256(w.part),
				minio.PutObjectOptions{DisableContentSha256: true})
			return err
		})
	}
	if err := w.writePart(); err != nil {
		return err
	}
	err := w.s.do("complete object", partTimeout, func(ctx context.Context) error {
		_, err := w.s.api.CompleteMultipartUpload(ctx, w.s.bucket, w.s.key(w.id), w.upload, w.parts, minio.PutObjectOptions{})
		return err
	})
	if err == nil {
		w.s.ended(w.id)
	}
	return err
}

func (w *s3Writer) Abort() {
	w.free()
	_ = w.s.abort(w.id) // or else by Remove or Recover
}

func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
