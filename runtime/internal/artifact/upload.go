package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/store"
)

// Spec describes an artifact to put.
type Spec struct {
	Principal string
	Session   arcp.SessionID // may be empty
	Job       arcp.JobID     // the root of the family of the job that puts it; empty: a client puts it
	MediaType string
	Retain    time.Duration // 0: DefaultRetention; more than MaxRetention: MaxRetention
	SHA256    string        // expected digest in hexadecimal; "": any

	// Put with the Key of an earlier put of the principal, or with the Request and the content of an
	// earlier put of the session, returns the artifact of that put, as long as there is one.
	Key     string         // idempotency key; "": none
	Request arcp.MessageID // of a put without a Key; "": the put is not repeated

	// PutOnce with the same Result returns the artifact of the first one, as long as there is one.
	Result arcp.JobID // the job whose result is the content; "": it is no result
}

// once returns the key of Store.once; "": the put is not repeated.
func (s *Spec) once() string {
	switch {
	case s.Result != "":
		return "result/" + string(s.Result)
	case s.Key != "":
		return records.Group("key/", s.Principal) + s.Key
	case s.Request != "":
		return "request/" + string(s.Session) + "/" + string(s.Request)
	}
	return ""
}

// Upload writes an artifact. One goroutine uses it. It calls Abort, or Finish and then Committed.
type Upload struct {
	store   *Store
	writer  Writer
	hash    hash.Hash
	row     Row
	want    string // expected digest; "": any
	counted int64  // bytes counted so far
}

// Begin begins an upload. The error is INVALID_ARGUMENT for an invalid media type, and
// RESOURCE_EXHAUSTED if there is no space.
func (s *Store) Begin(spec Spec) (*Upload, error) {
	u, err := s.begin(spec)
	if err != nil {
		s.opts.Operation("put", resultOf(err))
	}
	return u, err
}

// resultOf returns the label of an operation that has ended with an error.
func resultOf(err error) string {
	if e, refused := arcp.AsError(err); refused && e.Code != arcp.CodeUnavailable {
		return "refused"
	}
	return "failed"
}

func (s *Store) begin(spec Spec) (*Upload, error) {
	if !IsMediaType(spec.MediaType) {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "media_type must be a media type of at most %d bytes, such as text/plain", maxMediaType)
	}
	if spec.SHA256 != "" && !isDigest(spec.SHA256) {
		return nil, errDigest()
	}
	now := time.Now()
	u := &Upload{store: s, hash: sha256.New(), want: strings.ToLower(spec.SHA256), row: Row{
		ID:        arcp.ArtifactID(arcp.NewID(arcp.ArtifactPrefix)),
		Principal: spec.Principal,
		Session:   spec.Session,
		Job:       spec.Job,
		MediaType: spec.MediaType,
		CreatedAt: now,
		ExpiresAt: now.Add(retention(spec.Retain)),
		Once:      spec.once(),
	}}
	if err := u.reserve(); err != nil {
		return nil, err
	}
	var err error
	if u.writer, err = s.opts.Content.Create(u.row.Principal, u.row.ID); err != nil {
		u.unreserve()
		return nil, fmt.Errorf("create artifact %s: %w", u.row.ID, err)
	}
	return u, nil
}

func errDigest() *arcp.Error {
	return arcp.Errorf(arcp.CodeInvalidArgument, "sha256 must have 64 hexadecimal digits")
}

// errOtherDigest refuses a digest that is not the one of the content.
func errOtherDigest(digest string) *arcp.Error {
	return arcp.Errorf(arcp.CodeInvalidArgument, "sha256 does not match: the content has %s", digest)
}

// IsMediaType reports whether text is a media type with a subtype, and no more than that.
func IsMediaType(text string) bool {
	kind, _, err := mime.ParseMediaType(text)
	return err == nil && len(text) <= maxMediaType && strings.Contains(kind, "/") && strings.TrimSpace(text) == text
}

// isDigest reports whether text is a SHA-256 in hexadecimal.
func isDigest(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == sha256.Size
}

func retention(d time.Duration) time.Duration {
	if d <= 0 {
		return DefaultRetention
	}
	return min(d, MaxRetention)
}

// reserve counts the bytes of the upload, and refuses it if they exceed a bound.
func (u *Upload) reserve() error {
	s := u.store
	if s.opts.Full() {
		return arcp.Errorf(arcp.CodeResourceExhausted, "there is no space for artifacts now").RetryAfter(10)
	}
	more := counted(u.row.Size) - u.counted
	s.mu.Lock()
	defer s.mu.Unlock()
	var used owned
	if o := s.principals[u.row.Principal]; o != nil {
		used = *o
	}
	switch l := s.limits; {
	case l.Size > 0 && u.row.Size > l.Size:
		return arcp.Errorf(arcp.CodeInvalidArgument, "an artifact may have at most %d bytes", l.Size)
	case u.counted == 0 && used.number >= MaxNumber:
		return arcp.Errorf(arcp.CodeResourceExhausted, "a principal may have at most %d artifacts: release some", MaxNumber)
	case l.PerPrincipal > 0 && used.bytes+more > l.PerPrincipal:
		return arcp.Errorf(arcp.CodeResourceExhausted, "the artifacts of a principal may have at most %d bytes: release some", l.PerPrincipal)
	case s.opts.Total > 0 && s.bytes+more > s.opts.Total:
		return arcp.Errorf(arcp.CodeResourceExhausted, "there is no space for artifacts now").RetryAfter(10)
	}
	number := 0
	if u.counted == 0 {
		number = 1
	}
	if more != 0 {
		s.count(u.row.Principal, number, more)
		u.counted += more
	}
	return nil
}

func (u *Upload) unreserve() {
	u.store.mu.Lock()
	defer u.store.mu.Unlock()
	u.store.count(u.row.Principal, -1, -u.counted)
}

// Write appends to the content. INVALID_ARGUMENT: the artifact is too large. RESOURCE_EXHAUSTED:
// there is no space.
func (u *Upload) Write(p []byte) (int, error) {
	u.row.Size += int64(len(p))
	if err := u.reserve(); err != nil {
		return 0, err
	}
	u.hash.Write(p) // never fails
	n, err := u.writer.Write(p)
	if err != nil {
		err = u.store.opts.failure("write", u.row.ID, err)
	}
	return n, err
}

// Abort discards the upload because of an error.
func (u *Upload) Abort(err error) {
	u.writer.Abort()
	u.discard() // Abort may have failed
	u.store.opts.Operation("put", resultOf(err))
}

// Finish makes the content durable and returns the row and its record. The caller commits the
// record, and then calls Committed. After an error the upload is discarded; INVALID_ARGUMENT: the
// content does not have the expected digest.
func (u *Upload) Finish() (Row, store.Record, error) {
	u.row.SHA256 = hex.EncodeToString(u.hash.Sum(nil))
	if u.want != "" && u.want != u.row.SHA256 {
		err := errOtherDigest(u.row.SHA256)
		u.Abort(err)
		return Row{}, store.Record{}, err
	}
	u.retainFrom(time.Now())
	err := u.writer.Commit()
	var rec store.Record
	if err == nil {
		rec, err = records.Row[Row]{Key: recordPrefix + string(u.row.ID)}.Put(&u.row)
	}
	if err != nil {
		u.discard()
		u.store.opts.Operation("put", "failed")
		return Row{}, store.Record{}, u.store.opts.failure("store", u.row.ID, err)
	}
	return u.row, rec, nil
}

// retainFrom lets the retention begin: an upload may take longer than it.
func (u *Upload) retainFrom(now time.Time) {
	u.row.ExpiresAt = now.Add(u.row.ExpiresAt.Sub(u.row.CreatedAt))
	u.row.CreatedAt = now
}

// Committed ends the upload with the result of the commit of its record. It does not block. After an
// error, Sweep removes the content. Only if the store has failed it stays: the record may be durable, and
// Load finds out.
func (u *Upload) Committed(err error) {
	switch {
	case errors.Is(err, store.ErrBroken):
		u.unreserve()
		u.store.opts.Operation("put", "failed")
		return
	case err != nil:
		u.discard()
		u.store.opts.Operation("put", "failed")
		return
	}
	s := u.store
	s.mu.Lock()
	s.add(u.row)
	s.mu.Unlock()
	s.opts.Operation("put", "ok")
}

// discard leaves the content to Sweep.
func (u *Upload) discard() {
	u.unreserve()
	u.store.mu.Lock()
	defer u.store.mu.Unlock()
	u.store.garbage = append(u.store.garbage, u.row.ID)
}

// Copy writes the rest of a reader. After an error, or a panic of the reader, the upload is discarded;
// an error of the reader is returned unchanged.
func (u *Upload) Copy(ctx context.Context, content io.Reader) (err error) {
	err = errPanicked
	defer func() {
		if err != nil {
			u.Abort(err)
		}
	}()
	return u.copy(ctx, content)
}

var errPanicked = errors.New("the reader of the content has panicked")

func (u *Upload) copy(ctx context.Context, content io.Reader) error {
	buffer := make([]byte, blockSize)
	for {
		n, err := content.Read(buffer)
		if n > 0 {
			if _, err := u.Write(buffer[:n]); err != nil {
				return err
			}
		}
		switch err {
		case io.EOF:
			return nil
		case nil:
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// Put stores an artifact and returns its row when it is durable. The errors are those of Begin,
// Upload.Write and Upload.Finish, and DUPLICATE_KEY for a Key that was used with other content.
func (s *Store) Put(ctx context.Context, spec Spec, content []byte) (Row, error) {
	known, ended, err := s.startOnce(ctx, &spec)
	if err != nil {
		return Row{}, err
	}
	defer ended()
	switch {
	case known.ID == "":
	case known.repeats(&spec, content):
		s.opts.Operation("put", "ok")
		return known, nil
	case spec.Key != "":
		s.opts.Operation("put", "refused")
		return Row{}, arcp.Errorf(arcp.CodeDuplicateKey, "the idempotency key was used with another artifact")
	}
	u, err := s.Begin(spec)
	if err != nil {
		return Row{}, err
	}
	if _, err := u.Write(content); err != nil {
		u.Abort(err)
		return Row{}, err
	}
	return u.put(ctx)
}

// PutOnce stores the artifact of spec.Result unless there is one, and returns its row when it is durable.
// write writes the content; its error is returned unchanged. The other errors are those of Put.
func (s *Store) PutOnce(ctx context.Context, spec Spec, write func(io.Writer) error) (Row, error) {
	known, ended, err := s.startOnce(ctx, &spec)
	if err != nil {
		return Row{}, err
	}
	defer ended()
	if known.ID != "" {
		return known, nil
	}
	u, err := s.Begin(spec)
	if err != nil {
		return Row{}, err
	}
	if err := write(u); err != nil {
		u.Abort(err)
		return Row{}, err
	}
	return u.put(ctx)
}

// put finishes an upload and commits its record.
func (u *Upload) put(ctx context.Context) (Row, error) {
	row, rec, err := u.Finish()
	if err != nil {
		return Row{}, err
	}
	if err := u.store.opts.commit(ctx, []store.Record{rec}, u.Committed); err != nil {
		return Row{}, fmt.Errorf("store artifact %s: %w", row.ID, err)
	}
	return row, nil
}

// repeats reports whether a put is of the content of an earlier one.
func (r *Row) repeats(spec *Spec, content []byte) bool {
	sum := sha256.Sum256(content)
	return r.MediaType == spec.MediaType && r.SHA256 == hex.EncodeToString(sum[:])
}

// startOnce returns the artifact of an earlier put that spec repeats. If there is none, later puts that
// repeat spec wait until ended is called.
func (s *Store) startOnce(ctx context.Context, spec *Spec) (known Row, ended func(), err error) {
	once := spec.once()
	if once == "" {
		return Row{}, func() {}, nil
	}
	for {
		s.mu.Lock()
		if e := s.find(spec.Principal, s.once[once]); e != nil && !e.expired(time.Now()) {
			s.mu.Unlock()
			return e.row, func() {}, nil
		}
		other := s.uploading[once]
		if other == nil {
			break
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return Row{}, nil, context.Cause(ctx)
		}
	}
	defer s.mu.Unlock()
	endedc := make(chan struct{})
	s.uploading[once] = endedc
	return Row{}, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.uploading, once)
		close(endedc)
	}, nil
}
