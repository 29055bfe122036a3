package session

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// Elevation is a higher trust level of a session. It is in effect as long as its job holds the
// lease.
type Elevation struct {
	Level   arcp.TrustLevel
	Request arcp.MessageID // message that asked for the elevation
	Holds   func() bool    // reports whether the lease is held; may be called by any goroutine
}

// Elevate adds an elevation. remove ends it.
func (s *Session) Elevate(e *Elevation) (remove func()) {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	s.elevations.Store(new(append(slices.Clone(s.elevationList()), e)))
	return func() {
		s.dir.mu.Lock()
		defer s.dir.mu.Unlock()
		s.elevations.Store(new(slices.DeleteFunc(slices.Clone(s.elevationList()), func(o *Elevation) bool { return o == e })))
	}
}

// Elevating reports whether an elevation is being decided for a request, or is held.
func (s *Session) Elevating(request arcp.MessageID) bool {
	return slices.ContainsFunc(s.elevationList(), func(e *Elevation) bool { return e.Request == request })
}

// Trust returns the highest trust level that is held, at least own.
func (s *Session) Trust(own arcp.TrustLevel) arcp.TrustLevel {
	for _, e := range s.elevationList() {
		if e.Level.Rank() > own.Rank() && e.Holds() {
			own = e.Level
		}
	}
	return own
}

// elevationList returns the elevations. The slice is never changed.
func (s *Session) elevationList() []*Elevation {
	if list := s.elevations.Load(); list != nil {
		return *list
	}
	return nil
}
