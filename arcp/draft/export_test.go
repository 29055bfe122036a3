package draft

// SetIDs replaces the source of identifiers.
func (s *Session) SetIDs(newID func(prefix string) string) { s.newID = newID }
