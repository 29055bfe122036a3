package arcp

import "bytes"

// maxNesting is the depth of the JSON library.
const maxNesting = 10_000

// Valid is raw.IsValid, and faster: it reports whether raw is one JSON value of valid UTF-8
// without duplicate names, nested no deeper than 10,000 levels.
func Valid(raw Raw) bool {
	s := scanners.Get().(*scanner)
	defer func() {
		s.src = nil
		scanners.Put(s)
	}()
	s.reset(raw, maxNesting)
	_, err := s.value()
	return err == nil && s.end() == nil
}

// DeeperThan reports whether the objects and arrays in raw nest deeper than n levels. raw must be
// valid JSON.
func DeeperThan(raw Raw, n int) bool {
	if bytes.Count(raw, []byte{'{'})+bytes.Count(raw, []byte{'['}) <= n { // fast path for almost all values
		return false
	}
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i)
		case '{', '[':
			if depth++; depth > n {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// stringEnd returns the index of the closing quote of the string that begins at i.
func stringEnd(raw Raw, i int) int {
	for i++; i < len(raw) && raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i
}
