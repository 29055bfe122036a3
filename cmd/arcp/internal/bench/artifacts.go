package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

const (
	artifactSessions = 4
	artifactSize     = 1 << 20
	artifactGoal     = 0.7 // target, as a part of the baseline
)

var artifactKey = []byte(`"artifact_id":"`)

// artifactsIn measures the MiB a second of artifacts that are put.
func (r *run) artifactsIn() (float64, error) {
	return r.measureArtifacts(put, func(s *session, moved *atomic.Int64) error {
		content := s.dialect.newArtifact()
		for {
			id, err := s.put(content)
			if err != nil {
				return err
			}
			moved.Add(artifactSize)
			if err := s.send(s.dialect.prepare(string(arcp.ArtifactRelease), fmt.Sprintf(`{"artifact_id":%q}`, id)).next()); err != nil {
				return err
			}
		}
	})
}

// artifactsOut measures the MiB a second of artifacts that are fetched.
func (r *run) artifactsOut() (float64, error) {
	return r.measureArtifacts(get, func(s *session, moved *atomic.Int64) error {
		id, err := s.put(s.dialect.newArtifact())
		if err != nil {
			return err
		}
		fetch := s.dialect.prepare(string(arcp.ArtifactFetch), fmt.Sprintf(`{"artifact_id":%q}`, id))
		for {
			if err := s.send(fetch.next()); err != nil {
				return err
			}
			if _, err := s.await(string(arcp.ArtifactPut)); err != nil {
				return err
			}
			if err := s.readContent(); err != nil {
				return err
			}
			moved.Add(artifactSize)
		}
	})
}

// measureArtifacts measures work, and before it the baseline: the same content over a bare WebSocket. The
// target is a part of the baseline.
func (r *run) measureArtifacts(request string, work func(s *session, moved *atomic.Int64) error) (float64, error) {
	const mib = 1 << 20
	bare, err := r.baseline(request)
	if err != nil {
		return 0, fmt.Errorf("baseline: %w", err)
	}
	if err := r.open(artifactSessions); err != nil {
		return 0, err
	}
	var moved atomic.Int64
	bytesPerSecond, err := r.measureRate(&moved, func(_ int, s *session) error { return work(s, &moved) })
	r.details["baseline_mib_per_s"] = bare / mib
	r.details["to_baseline"] = ratio(false, bytesPerSecond, bare)
	r.target = artifactGoal * bare / mib
	return bytesPerSecond / mib, err
}

// baseline returns the bytes of content a second that a Baseline moves.
func (r *run) baseline(request string) (float64, error) {
	server, err := r.opts.StartBaseline(r.ctx, r.mode)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	bare := &run{ctx: ctx, cancel: cancel, server: server, dialect: r.dialect, opts: r.opts, details: map[string]float64{}}
	defer bare.end()
	for range artifactSessions {
		conn, err := transport.Dial(ctx, server.URL, transport.DialOptions{Limits: transport.Limits{ReadLimit: readLimit}})
		if err != nil {
			return 0, errors.Join(err, server.Stop())
		}
		acceptBinary(conn)
		bare.sessions = append(bare.sessions, &session{conn, r.dialect})
	}
	var moved atomic.Int64
	value, err := bare.measureRate(&moved, func(_ int, s *session) error { return s.exchange(request, &moved) })
	return value, errors.Join(err, server.Stop())
}

// exchange puts content, and repeats that or a get until the connection ends. It adds the bytes of the content to
// moved.
func (s *session) exchange(request string, moved *atomic.Int64) error {
	content := newContent(0)
	for n := 0; ; n++ {
		send := func() error { return s.sendBinary(content) }
		if n > 0 && request == get {
			send = func() error { return s.send([]byte(get)) }
		}
		if err := send(); err != nil {
			return err
		}
		if _, err := s.conn.Read(); err != nil {
			return err
		}
		moved.Add(artifactSize)
	}
}

// newContent returns random content behind room for a header.
func newContent(header int) []byte {
	content := make([]byte, header+artifactSize)
	_, _ = rand.Read(content[header:]) // never fails
	return content
}

// newArtifact is an artifact that is put repeatedly.
type newArtifact struct {
	submit *prepared
	binary []byte // the frame with the content
}

func (d *dialect) newArtifact() *newArtifact {
	submit := d.prepare(string(arcp.ArtifactPut), fmt.Sprintf(`{"media_type":"application/octet-stream","data":"","encoding":"sidecar","length":%d}`, artifactSize))
	return &newArtifact{submit, newContent(len(submit.header().Append(nil)))}
}

// header returns the header of the binary frame that belongs to the frame.
func (p *prepared) header() arcp.SidecarHeader {
	return arcp.SidecarHeader{Kind: arcp.SidecarMessage, ID: arcp.MessagePrefix + string(p.id)}
}

// put puts an artifact and returns its id.
func (s *session) put(a *newArtifact) (string, error) {
	if err := s.conn.Write(a.submit.next()); err != nil {
		return "", err
	}
	a.submit.header().Append(a.binary[:0])
	if err := s.sendBinary(a.binary); err != nil {
		return "", err
	}
	frame, err := s.await(string(arcp.ArtifactRef))
	return string(member(frame, artifactKey)), err
}

// readContent reads the binary frame of an artifact.
func (s *session) readContent() error {
	frame, err := s.conn.Read()
	if err != nil {
		return err
	}
	_, content, err := arcp.ParseSidecar(frame)
	if err == nil && len(content) != artifactSize {
		err = fmt.Errorf("the binary frame has %d bytes of content, want %d", len(content), artifactSize)
	}
	return err
}
