// Package ordered has an ordered set of strings in memory.
package ordered

import (
	"iter"
	"slices"
	"strings"
)

// Set is an ordered set of strings. It has pieces of bounded length, so that adding one
// string does not move half of a million. The zero value is empty. Add and Remove must not
// be called at the same time as another method.
type Set struct{ pieces [][]string }

const pieceLen = 512

// piece returns the index of the piece for a string; 0 if there are no pieces.
func (s *Set) piece(x string) int {
	i, found := slices.BinarySearchFunc(s.pieces, x, func(p []string, x string) int { return strings.Compare(p[0], x) })
	if !found && i > 0 {
		i--
	}
	return i
}

// Add adds a string that the set does not have.
func (s *Set) Add(x string) {
	if len(s.pieces) == 0 {
		s.pieces = [][]string{{x}}
		return
	}
	i := s.piece(x)
	p := s.pieces[i]
	k, _ := slices.BinarySearch(p, x)
	if len(p) < pieceLen {
		s.pieces[i] = slices.Insert(p, k, x)
		return
	}
	low, high := slices.Clone(p[:len(p)/2]), slices.Clone(p[len(p)/2:])
	s.pieces = slices.Replace(s.pieces, i, i+1, low, high)
	s.Add(x)
}

// Remove removes a string that the set has.
func (s *Set) Remove(x string) {
	i := s.piece(x)
	k, _ := slices.BinarySearch(s.pieces[i], x)
	if s.pieces[i] = slices.Delete(s.pieces[i], k, k+1); len(s.pieces[i]) == 0 {
		s.pieces = slices.Delete(s.pieces, i, i+1)
	}
}

// Before yields the strings that are less than x, in reverse order.
func (s *Set) Before(x string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(s.pieces) == 0 {
			return
		}
		for i := s.piece(x); i >= 0; i-- {
			k, _ := slices.BinarySearch(s.pieces[i], x)
			for _, y := range slices.Backward(s.pieces[i][:k]) {
				if !yield(y) {
					return
				}
			}
		}
	}
}

// From yields the strings that are not less than x, in order.
func (s *Set) From(x string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := s.piece(x); i < len(s.pieces); i++ {
			k, _ := slices.BinarySearch(s.pieces[i], x)
			for _, y := range s.pieces[i][k:] {
				if !yield(y) {
					return
				}
			}
		}
	}
}
