package draft

// SetIDs replaces the source of identifiers.
func (s *ServerCodec) SetIDs(newID func(prefix string) string) { s.newID = newID }
