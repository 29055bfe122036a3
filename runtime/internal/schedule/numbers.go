package schedule

// numbers is a part of a rule: a set of numbers from 1 to 366, or from -1 to -366, which count from the
// end.
type numbers struct {
	some               bool // false: the rule does not have the part
	fromStart, fromEnd [6]uint64
}

func newNumbers(list []int) (s numbers) {
	for _, n := range list {
		s.add(n)
	}
	return s
}

func (s *numbers) add(n int) {
	s.some = true
	bits := &s.fromStart
	if n < 0 {
		bits, n = &s.fromEnd, -n
	}
	bits[n/64] |= 1 << (n % 64)
}

// has reports whether the set contains the n-th of a number of things.
func (s *numbers) has(n, of int) bool {
	back := of - n + 1
	return s.fromStart[n/64]>>(n%64)&1 == 1 || s.fromEnd[back/64]>>(back%64)&1 == 1
}
