package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/store"
)

// Retention of artifacts.
const (
	DefaultRetention = time.Hour
	MaxRetention     = 7 * 24 * time.Hour
)

// MaxNumber bounds the artifacts of a principal, with those that are being put.
const MaxNumber = 100_000

// MaxInline bounds the content of an artifact in one message, in bytes.
const MaxInline = 4 << 20

const (
	recordPrefix = "artifact/"

	// minCounted is the number of bytes that an artifact counts at least against the bounds: its row
	// is in memory.
	minCounted = 4 << 10

	maxMediaType = 256 // bytes
)

// Row is the row of an artifact.
type Row struct {
	ID        arcp.ArtifactID `json:"id"`
	Principal string          `json:"principal"`
	Session   arcp.SessionID  `json:"session,omitzero"` // of the put; empty: a job without a session
	Job       arcp.JobID      `json:"job,omitzero"`     // the root of the family whose job put it; empty: a client put it
	MediaType string          `json:"media_type"`
	Size      int64           `json:"size"`
	SHA256    string          `json:"sha256"` // in hexadecimal
	CreatedAt time.Time       `json:"created_at"`
	ExpiresAt time.Time       `json:"expires_at"`
	Once      string          `json:"once,omitzero"` // see Spec.once
}

// Object returns the description of the artifact for clients.
func (r *Row) Object() arcp.ArtifactObject {
	uri := "arcp://artifact/" + string(r.ID)
	if r.Session != "" {
		uri = "arcp://session/" + string(r.Session) + "/artifact/" + string(r.ID)
	}
	return arcp.ArtifactObject{ArtifactID: r.ID, URI: uri, MediaType: r.MediaType, Size: uint64(r.Size),
		SHA256: r.SHA256, ExpiresAt: r.ExpiresAt.UTC()}
}

// Limits bound artifacts. A value that is not positive is no bound.
type Limits struct {
	Size         int64 // bytes of one artifact
	PerPrincipal int64 // bytes of the artifacts of a principal; each counts at least 4 KiB
}

// Options of a Store. The functions may be called by any goroutine and must not block.
type Options struct {
	Content Content
	Remote  bool // Content is on another machine: Load does not use it, the first Sweep that can does
	Records records.Reader
	Log     records.Committer
	Logger  zerolog.Logger
	Total   int64       // bound of the bytes of all artifacts; not positive: none
	Full    func() bool // reports whether the disk or the store is full: nothing is put

	// Live, if set, calls fn with the principal, the id and the arguments of every job that has not
	// ended. An artifact does not expire while the arguments of such a job of its principal name it.
	Live func(fn func(principal string, id arcp.JobID, arguments arcp.Raw) bool)

	// IsLive reports whether Live calls fn with a job. It is set if Live is, and cheap.
	IsLive func(id arcp.JobID) bool

	// Operation, if set, counts an operation: put, fetch, release or expire. result is ok, refused or
	// failed.
	Operation func(operation, result string)
}

// Store has the artifacts. Any goroutine may call its methods after Load. They return an
// *arcp.Error for a mistake of the caller, and another error if the store or the content fails.
type Store struct {
	opts     Options
	table    records.Table[Row]
	recovery recovery // of Load, and then of Sweep

	mu         sync.Mutex
	limits     Limits
	byID       map[arcp.ArtifactID]*entry
	principals map[string]*owned
	once       map[string]arcp.ArtifactID // by Row.Once
	uploading  map[string]chan struct{}   // by Row.Once: closed when the put has ended
	uploads    map[arcp.ArtifactID]*chunkedUpload
	bytes      int64             // counted bytes of all artifacts and uploads
	garbage    []arcp.ArtifactID // content without a row, which Sweep removes
	holds      int               // calls of Hold that are not released: garbage stays
}

// entry is an artifact with its row.
type entry struct {
	row      Row
	deleting bool // the deletion of the row is being committed

	// Results of isNamed, which is called after the retention.
	namedBy arcp.JobID // the job that was found last to name the artifact; empty: none
	gone    bool       // no job named the artifact: Get does not return it any more

	// checked is the time of the last comparison of the content with the digest of the row.
	checked time.Time
}

// expired reports whether the retention of the artifact has passed. Jobs may still name it.
func (e *entry) expired(now time.Time) bool { return !now.Before(e.row.ExpiresAt) }

// owned has the artifacts of a principal.
type owned struct {
	bytes   int64             // counted bytes, with those of uploads
	number  int               // artifacts and uploads
	uploads int               // in Store.uploads
	ids     []arcp.ArtifactID // in order
}

// NewStore returns a Store that is not loaded.
func NewStore(o Options, l Limits) *Store {
	if o.Operation == nil {
		o.Operation = func(string, string) {}
	}
	s := &Store{opts: o, table: records.Table[Row]{Reader: o.Records}, limits: l,
		byID:       make(map[arcp.ArtifactID]*entry),
		principals: make(map[string]*owned),
		once:       make(map[string]arcp.ArtifactID),
		uploading:  make(map[string]chan struct{}),
		uploads:    make(map[arcp.ArtifactID]*chunkedUpload)}
	s.recovery = recovery{store: s, started: arcp.ArtifactID(arcp.NewID(arcp.ArtifactPrefix))}
	return s
}

// SetLimits changes the limits. Artifacts above a new limit stay.
func (s *Store) SetLimits(l Limits) {
	s.mu.Lock()
	s.limits = l
	s.mu.Unlock()
}

// Load reads the rows. It removes content without a row, and rows without content. It is called
// once, before any other method.
func (s *Store) Load(ctx context.Context) error {
	var unreadable []store.Record
	err := s.table.Scan(ctx, recordPrefix, "", func(row records.Row[Row], bad error) bool {
		if bad != nil {
			s.opts.Logger.Warn().Err(bad).Str("record", row.Key).Msg("the row of an artifact cannot be read: it is deleted")
			unreadable = append(unreadable, row.Delete())
			return true
		}
		s.count(row.Value.Principal, 1, counted(row.Value.Size))
		s.add(row.Value)
		return true
	})
	if err == nil && len(unreadable) > 0 {
		err = s.opts.commit(ctx, unreadable, func(error) {})
	}
	if err != nil || s.opts.Remote {
		return err
	}
	return s.recovery.run(ctx)
}

// commit makes records durable. It waits for the result also if ctx ends.
func (o *Options) commit(ctx context.Context, list []store.Record, done func(error)) error {
	return o.Log.Commit(context.WithoutCancel(ctx), store.NewWrite().Put(list...), done)
}

// counted returns the bytes that an artifact of a size counts.
func counted(size int64) int64 { return max(size, minCounted) }

// count changes the number and the counted bytes of the artifacts of a principal. Called with mu, or
// by Load.
func (s *Store) count(principal string, number int, bytes int64) {
	o := s.principals[principal]
	if o == nil {
		o = new(owned)
		s.principals[principal] = o
	}
	o.number += number
	o.bytes += bytes
	s.bytes += bytes
	if o.number == 0 {
		delete(s.principals, principal)
	}
}

// add adds an artifact whose bytes are counted. Called with mu, or by Load.
func (s *Store) add(row Row) {
	s.byID[row.ID] = &entry{row: row}
	o := s.principals[row.Principal]
	i, _ := slices.BinarySearch(o.ids, row.ID)
	o.ids = slices.Insert(o.ids, i, row.ID)
	if row.Once != "" {
		s.once[row.Once] = row.ID
	}
}

// remove removes a deleted artifact. Its content is garbage.
func (s *Store) remove(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := e.row.ID
	delete(s.byID, id)
	if s.once[e.row.Once] == id {
		delete(s.once, e.row.Once)
	}
	o := s.principals[e.row.Principal]
	if i, ok := slices.BinarySearch(o.ids, id); ok {
		o.ids = slices.Delete(o.ids, i, i+1)
	}
	s.count(e.row.Principal, -1, -counted(e.row.Size))
	s.garbage = append(s.garbage, id)
}

// removeGarbage removes content without a row. What cannot be removed is tried again next time, after the
// others.
func (s *Store) removeGarbage() {
	s.mu.Lock()
	if s.holds > 0 {
		s.mu.Unlock()
		return
	}
	list := s.garbage
	s.garbage = nil
	s.mu.Unlock()
	var failed []arcp.ArtifactID
	for i, id := range list {
		err := s.opts.Content.Remove(id)
		if err == nil {
			continue
		}
		s.opts.Logger.Error().Err(err).Str("artifact_id", string(id)).Msg("remove the content of an artifact")
		if errors.Is(err, ErrUnavailable) { // perhaps the rest too
			failed = slices.Concat(list[i+1:], failed, list[i:i+1])
			break
		}
		failed = append(failed, id)
	}
	s.mu.Lock()
	s.garbage = append(s.garbage, failed...)
	s.mu.Unlock()
}

// Hold keeps the content of artifacts that are deleted from now on until release is called. Their rows are
// deleted. release may be called again.
func Hold(s *Store) (release func()) {
	s.mu.Lock()
	s.holds++
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.holds--
		s.mu.Unlock()
		s.removeGarbage()
	})
}

// Get returns the row of an artifact of a principal: NOT_FOUND if the principal has none with the
// id, or no longer.
func (s *Store) Get(principal string, id arcp.ArtifactID) (Row, error) {
	s.mu.Lock()
	e := s.find(principal, id)
	s.mu.Unlock()
	if e == nil || e.expired(time.Now()) && !isNamed(s, e) {
		return Row{}, arcp.Errorf(arcp.CodeNotFound, "no artifact %s", id)
	}
	return e.row, nil
}

// find returns an artifact of a principal, or nil. It may have expired. Called with mu.
func (s *Store) find(principal string, id arcp.ArtifactID) *entry {
	if e := s.byID[id]; e != nil && e.row.Principal == principal && !e.deleting {
		return e
	}
	return nil
}

// Open opens the content of an artifact of a principal. It stays readable until it is closed.
// NOT_FOUND as of Get. DATA_LOSS: there is no content.
func (s *Store) Open(principal string, id arcp.ArtifactID) (Row, io.ReadSeekCloser, error) {
	row, content, err := s.open(principal, id)
	s.opts.countFetch(id, err)
	return row, content, err
}

func (s *Store) open(principal string, id arcp.ArtifactID) (Row, io.ReadSeekCloser, error) {
	row, err := s.Get(principal, id)
	if err != nil {
		return Row{}, nil, err
	}
	content, err := s.opts.Content.Open(id)
	if err == nil {
		return row, content, nil
	}
	if _, gone := s.Get(principal, id); gone != nil { // released meanwhile
		return Row{}, nil, gone
	}
	return Row{}, nil, s.opts.damaged(id, err)
}

// countFetch counts a fetch by its error. It logs a failure: the client cannot mend it.
func (o *Options) countFetch(id arcp.ArtifactID, err error) {
	e, isRefusal := arcp.AsError(err)
	switch {
	case err == nil:
		o.Operation("fetch", "ok")
	case isRefusal && e.Code == arcp.CodeUnavailable: // is logged with its cause
		o.Operation("fetch", "failed")
	case isRefusal && e.Code != arcp.CodeDataLoss:
		o.Operation("fetch", "refused")
	default:
		o.Operation("fetch", "failed")
		o.Logger.Error().Err(err).Str("artifact_id", string(id)).Msg("read the content of an artifact")
	}
}

// damaged returns the error for content that cannot be read: DATA_LOSS if it is not there, or not all
// of it.
func (o *Options) damaged(id arcp.ArtifactID, err error) error {
	if errors.Is(err, ErrUnavailable) { // which may wrap the end of a connection
		return o.failure("read", id, err)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errDamaged(id)
	}
	return o.failure("read", id, err)
}

// failure returns the error of an operation on content. Clients are told that the content is
// unavailable, and the log why.
func (o *Options) failure(operation string, id arcp.ArtifactID, err error) error {
	if errors.Is(err, ErrUnavailable) {
		o.Logger.Error().Err(err).Str("artifact_id", string(id)).Str("operation", operation).Msg("the storage of artifacts is not available")
		return arcp.Errorf(arcp.CodeUnavailable, "the storage of artifacts is not available now").RetryAfter(10)
	}
	return fmt.Errorf("%s artifact %s: %w", operation, id, err)
}

func errDamaged(id arcp.ArtifactID) *arcp.Error {
	return arcp.Errorf(arcp.CodeDataLoss, "the content of artifact %s is damaged", id)
}

// List calls fn for the artifacts of a principal that have not expired, the newest first, until fn returns
// false. before is the position: the id of an artifact that is followed by older ones; "": the start.
func (s *Store) List(principal string, before arcp.ArtifactID, fn func(*Row) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.principals[principal]
	if o == nil {
		return
	}
	now := time.Now()
	end := len(o.ids)
	if before != "" {
		end, _ = slices.BinarySearch(o.ids, before)
	}
	for _, id := range slices.Backward(o.ids[:end]) {
		if e := s.byID[id]; !e.deleting && !e.expired(now) && !fn(&e.row) {
			return
		}
	}
}

// Usage returns the number of artifacts, and their bytes as they count against the bounds.
func (s *Store) Usage() (artifacts int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID), s.bytes
}

// LocalBytes returns the bytes of Usage that this machine stores.
func (s *Store) LocalBytes() int64 {
	if s.opts.Remote {
		return 0
	}
	_, bytes := s.Usage()
	return bytes
}

// Release deletes an artifact of a principal. An artifact that the principal does not have is
// ignored.
func (s *Store) Release(ctx context.Context, principal string, id arcp.ArtifactID) error {
	list := s.markReleased(principal, id)
	if len(list) == 0 {
		return nil
	}
	return s.delete(ctx, "release", list)
}

// delete deletes artifacts that are marked as deleting.
func (s *Store) delete(ctx context.Context, operation string, list []*entry) error {
	rows, err := s.read(ctx, list)
	if err != nil {
		s.deleted(operation, list, err)
		return err
	}
	err = s.opts.commit(ctx, rows, func(err error) { s.deleted(operation, list, err) })
	if !s.opts.Remote { // a client that releases an artifact does not wait for another machine
		s.removeGarbage()
	}
	return err
}

// read returns the records that delete artifacts.
func (s *Store) read(ctx context.Context, list []*entry) ([]store.Record, error) {
	rows := make([]store.Record, len(list))
	for i, e := range list {
		rec, err := s.opts.Records.Get(ctx, recordPrefix+string(e.row.ID))
		if err != nil {
			return nil, err
		}
		rows[i] = store.Record{Key: recordPrefix + string(e.row.ID), Rev: rec.Rev}
	}
	return rows, nil
}

// deleted ends the deletion of artifacts with the result of its commit.
func (s *Store) deleted(operation string, list []*entry, err error) {
	for _, e := range list {
		if err == nil {
			s.remove(e)
			s.opts.Operation(operation, "ok")
			continue
		}
		s.mu.Lock()
		e.deleting = false
		s.mu.Unlock()
		s.opts.Operation(operation, "failed")
	}
}

// sweepBatch bounds the artifacts that are deleted in one write.
const sweepBatch = 500

// Sweep deletes artifacts that have expired, discards idle uploads, and removes garbage. It reads the
// arguments of the live jobs once. It is not called concurrently. Artifacts expire also if their content
// cannot be compared. The end of ctx ends the search of arguments and the deletions; the next Sweep does the rest.
func (s *Store) Sweep(ctx context.Context, now time.Time) error {
	s.abortIdle(now)
	defer s.removeGarbage()
	err := s.expire(ctx, now)
	if bad := s.recovery.run(ctx); bad != nil {
		err = errors.Join(err, fmt.Errorf("compare the artifacts with their content: %w", bad))
	}
	return err
}

// expire deletes artifacts that have expired.
func (s *Store) expire(ctx context.Context, now time.Time) error {
	list, err := s.opts.unnamed(ctx, s.expired(now))
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(list, sweepBatch) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.delete(ctx, "expire", s.markDeleting(batch)); err != nil {
			return err
		}
	}
	return nil
}

// expired returns the artifacts that have expired.
func (s *Store) expired(now time.Time) (list []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.byID {
		if !e.deleting && e.expired(now) {
			list = append(list, e)
		}
	}
	return list
}

// markDeleting marks artifacts as deleting, and returns those that were not marked before.
func (s *Store) markDeleting(list []*entry) []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(list, func(e *entry) bool {
		marked := e.deleting
		e.deleting = true
		return marked
	})
}

// Inline returns the content of an artifact of a principal that is at most MaxInline bytes. The caller must not
// change it. A larger one is FAILED_PRECONDITION. DATA_LOSS: the content is damaged.
func (s *Store) Inline(principal string, id arcp.ArtifactID) (Row, []byte, error) {
	row, data, err := s.inline(principal, id)
	s.opts.countFetch(id, err)
	return row, data, err
}

func (s *Store) inline(principal string, id arcp.ArtifactID) (Row, []byte, error) {
	row, content, err := s.open(principal, id)
	if err != nil {
		return Row{}, nil, err
	}
	defer content.Close()
	if row.Size > MaxInline {
		return Row{}, nil, arcp.Errorf(arcp.CodeFailedPrecondition,
			"the artifact has %d bytes, and a message at most %d: read it with artifact.get", row.Size, MaxInline)
	}
	memory, inMemory := content.(memoryReader)
	if inMemory && memory.whole() != nil {
		return row, memory.whole(), nil
	}
	data := make([]byte, row.Size)
	if _, err := io.ReadFull(content, data); err != nil {
		return Row{}, nil, s.opts.damaged(id, err)
	}
	if !inMemory && checkIsDue(s, id) {
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != row.SHA256 {
			return Row{}, nil, errDamaged(id)
		}
		markChecked(s, id)
	}
	return row, data, nil
}

// checkInterval is the time for which content that was compared with its digest is not compared again: the
// comparison costs more than the rest of a fetch.
const checkInterval = 10 * time.Minute

// checkIsDue reports whether the content of an artifact is to be compared with its digest.
func checkIsDue(s *Store, id arcp.ArtifactID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	return e == nil || time.Since(e.checked) >= checkInterval
}

// markChecked records that the content of an artifact has the digest of its row.
func markChecked(s *Store, id arcp.ArtifactID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		e.checked = time.Now()
	}
}
