package bench

import (
	"context"
	"crypto/rand"
	"encoding/base64"
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
		submit := s.dialect.putFrame()
		for {
			id, err := s.put(submit)
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
		id, err := s.put(s.dialect.putFrame())
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
			moved.Add(artifactSize)
		}
	})
}

// measureArtifacts measures work, and before it the baseline: the same frames over a bare WebSocket. The
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
		bare.sessions = append(bare.sessions, &session{conn, r.dialect})
	}
	var moved atomic.Int64
	value, err := bare.measureRate(&moved, func(_ int, s *session) error { return s.exchange(request, &moved) })
	return value, errors.Join(err, server.Stop())
}

// exchange puts a frame, and repeats that or a get until the connection ends. It adds the bytes of the
// content to moved.
func (s *session) exchange(request string, moved *atomic.Int64) error {
	frame := s.dialect.putFrame().next()
	for n := 0; ; n++ {
		if n == 1 && request == get {
			frame = []byte(get)
		}
		if err := s.send(frame); err != nil {
			return err
		}
		if _, err := s.conn.Read(); err != nil {
			return err
		}
		moved.Add(artifactSize)
	}
}

// putFrame returns an artifact.put with random content.
func (d *dialect) putFrame() *prepared {
	content := make([]byte, artifactSize)
	_, _ = rand.Read(content) // never fails
	return d.prepare(string(arcp.ArtifactPut), `{"media_type":"application/octet-stream","data":"`+base64.StdEncoding.EncodeToString(content)+`"}`)
}

// put puts an artifact and returns its id.
func (s *session) put(submit *prepared) (string, error) {
	if err := s.send(submit.next()); err != nil {
		return "", err
	}
	frame, err := s.await(string(arcp.ArtifactRef))
	return string(member(frame, artifactKey)), err
}
